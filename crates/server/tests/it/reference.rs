//! The reference as it is served. That it is true is checked by the harness, on every answer of every test.

use recado_server::reference;

use crate::harness::Server;

#[test]
fn it_is_served_to_everybody() {
    let server = Server::new();
    let reply = server.get("/api/openapi.json").send();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json(), reference::document());
}
