//! The OpenAPI document as it is served. The harness checks every response of every test against it.

use std::panic::catch_unwind;

use recado_api::reference;
use serde_json::{Value, json};

use crate::harness::Server;
use crate::harness::client::Reply;
use crate::harness::reference::check;

#[test]
fn openapi_document_is_public() {
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
        body: vec![],
    }
}

/// The harness detects a response that the OpenAPI document does not describe.
#[test]
fn undocumented_response_fails_the_check() {
    let is_documented = |status: u16, body: &Value| {
        let reply = reply(status, body);
        catch_unwind(|| check("GET", "/api/tags?limit=1", &reply)).is_ok()
    };
    let tag = json!({ "id": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", "name": "vip", "color": null });
    let page = |tag: &Value| json!({ "data": { "data": [tag], "nextCursor": null, "hasMore": false } });
    assert!(is_documented(200, &page(&tag)));
    assert!(!is_documented(201, &page(&tag)), "another status");
    assert!(!is_documented(200, &tag), "without its envelope");
    for (field, value) in [
        ("id", json!(7)),
        ("id", json!("x")),
        ("name", Value::Null),
        ("secret", json!("x")),
    ] {
        let mut changed = tag.clone();
        changed[field] = value;
        assert!(!is_documented(200, &page(&changed)), "{changed}");
    }
    let error_body = |code: &str| json!({ "error": { "code": code, "message": "m", "details": {} } });
    assert!(is_documented(422, &error_body("VALIDATION_ERROR")));
    assert!(!is_documented(422, &error_body("NOT_FOUND")), "another code");
}
