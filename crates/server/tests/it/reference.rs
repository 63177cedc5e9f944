//! The reference as it is served. That it is true is checked by the harness, on every answer of every test.

use std::panic::catch_unwind;

use recado_server::reference;
use serde_json::{Value, json};

use crate::harness::Server;
use crate::harness::client::Reply;
use crate::harness::reference::check;

#[test]
fn it_is_served_to_everybody() {
    let server = Server::new();
    let reply = server.get("/api/openapi.json").send();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json(), reference::document());
}

fn reply(status: u16, body: &Value) -> Reply {
    let mut headers = ureq::http::HeaderMap::new();
    headers.insert("content-type", "application/json".parse().unwrap());
    Reply {
        status,
        headers,
        text: body.to_string(),
    }
}

/// The harness would say so if an answer were not the one that the reference tells of.
#[test]
fn an_answer_that_is_not_told_of_is_found() {
    let tags = |status: u16, body: &Value| {
        let reply = reply(status, body);
        catch_unwind(|| check("GET", "/api/tags?limit=1", &reply)).is_ok()
    };
    let tag = json!({ "id": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", "name": "vip", "color": null });
    let slice = |tag: &Value| json!({ "data": { "data": [tag], "nextCursor": null, "hasMore": false } });
    assert!(tags(200, &slice(&tag)));
    assert!(!tags(201, &slice(&tag)), "another status");
    assert!(!tags(200, &tag), "without its envelope");
    for (field, value) in [
        ("id", json!(7)),
        ("id", json!("x")),
        ("name", Value::Null),
        ("secret", json!("x")),
    ] {
        let mut other = tag.clone();
        other[field] = value;
        assert!(!tags(200, &slice(&other)), "{other}");
    }
    let refusal = |code: &str| json!({ "error": { "code": code, "message": "m", "details": {} } });
    assert!(tags(422, &refusal("VALIDATION_ERROR")));
    assert!(!tags(422, &refusal("NOT_FOUND")), "another code");
}
