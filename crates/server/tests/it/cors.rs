//! CORS: preflights and response headers for configured and other origins.

use serde_json::json;

use crate::harness::client::Reply;
use crate::harness::{Options, Server};

const ALLOWED_ORIGIN: &str = "https://app.example.com";

fn preflight(server: &Server, path: &str, origin: &str) -> Reply {
    server
        .request("OPTIONS", path)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "PUT")
        .header("Access-Control-Request-Headers", "content-type, idempotency-key")
        .send()
}

fn server_with_origins() -> Server {
    Server::start(Options::default().with("CORS_ORIGINS", format!("http://localhost:3000, {ALLOWED_ORIGIN}")))
}

#[test]
fn preflights_of_configured_origins_are_allowed() {
    let server = server_with_origins();
    for path in ["/api/contacts", "/api/accounts", "/api/campaigns/7"] {
        let reply = preflight(&server, path, ALLOWED_ORIGIN);
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert_eq!(reply.header("access-control-allow-origin"), Some(ALLOWED_ORIGIN));
        assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
        let methods = reply.header("access-control-allow-methods").unwrap();
        for method in ["GET", "POST", "PUT", "DELETE"] {
            assert!(methods.contains(method), "{methods}");
        }
        let headers = reply.header("access-control-allow-headers").unwrap();
        assert_eq!(headers, "content-type, idempotency-key");
        assert!(reply.header("access-control-max-age").is_some());
        assert!(reply.header("vary").unwrap().contains("Origin"));
        assert!(reply.header("x-request-id").is_some());
    }
}

#[test]
fn preflights_of_other_origins_are_refused() {
    let server = server_with_origins();
    for origin in [
        "https://evil.example.com",
        "null",
        "https://app.example.com.evil.example",
        "http://app.example.com",
    ] {
        let reply = preflight(&server, "/api/contacts", origin);
        assert_eq!(reply.header("access-control-allow-origin"), None, "{origin}");
        reply.refused(403, "FORBIDDEN");
    }
    // Without configured origins, no origin is allowed.
    let without_origins = Server::new();
    let reply = preflight(&without_origins, "/api/contacts", ALLOWED_ORIGIN);
    assert_eq!(reply.header("access-control-allow-origin"), None);
    assert_eq!(reply.header("allow"), Some("GET, HEAD, POST"));
    reply.refused(405, "METHOD_NOT_ALLOWED");
}

#[test]
fn configured_origin_can_use_cookies_and_read_responses() {
    let server = server_with_origins();
    let ana = server.owner();
    let create_tag = |origin: &str| {
        let request = server.post("/api/tags").cookie(&format!("svc-session={}", ana.token));
        let request = request.header("Origin", origin).header("Sec-Fetch-Site", "cross-site");
        request.json(&json!({ "name": "vip" })).send()
    };
    let reply = create_tag(ALLOWED_ORIGIN);
    assert_eq!(reply.header("access-control-allow-origin"), Some(ALLOWED_ORIGIN));
    assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
    let exposed = reply.header("access-control-expose-headers").unwrap().to_lowercase();
    assert!(exposed.contains("retry-after"), "{exposed}");
    reply.created();
    let reply = create_tag("https://evil.example.com");
    assert_eq!(reply.header("access-control-allow-origin"), None);
    reply.refused(403, "FORBIDDEN");
    // The page can read errors, too.
    let unauthenticated = server.get("/api/tags").header("Origin", ALLOWED_ORIGIN).send();
    assert_eq!(
        unauthenticated.header("access-control-allow-origin"),
        Some(ALLOWED_ORIGIN)
    );
    unauthenticated.refused(401, "AUTH_ERROR");
}
