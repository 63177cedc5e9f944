//! Rules for every request: error envelope, body size and media type, request id, query parameters, health checks.

use std::io::{Read as _, Write as _};

use serde_json::json;

use crate::harness::Server;
use crate::harness::client::connect;

const MIB: usize = 1024 * 1024;

#[test]
fn unknown_path_returns_404_in_the_error_envelope() {
    let server = Server::new();
    for path in [
        "/",
        "/api",
        "/api/no-such-thing",
        "//api/accounts",
        "/api//accounts",
        "/api/accounts/",
        "/api/accountsx",
        "/api/accounts/switch/x",
        "/api/campaigns/7/nothing",
        "/healthz/",
    ] {
        let error = server.get(path).send().refused(404, "NOT_FOUND");
        assert_eq!(error["details"], json!({}), "{path}");
    }
}

#[test]
fn wrong_method_returns_405_with_allowed_methods() {
    let server = Server::new();
    let allowed = |method: &str, path: &str| {
        let reply = server.request(method, path).send();
        let mut allowed: Vec<String> = reply.header("allow").unwrap().split(", ").map(str::to_owned).collect();
        allowed.sort_unstable();
        reply.refused(405, "METHOD_NOT_ALLOWED");
        allowed
    };
    assert_eq!(allowed("DELETE", "/api/accounts"), ["GET", "HEAD", "POST"]);
    assert_eq!(allowed("PATCH", "/api/contacts/7"), ["DELETE", "GET", "HEAD", "PUT"]);
    assert_eq!(allowed("GET", "/api/accounts/switch"), ["POST"]);
}

#[test]
fn json_errors_name_the_path_of_the_value() {
    let server = Server::new();
    let ana = server.owner();
    let fields = |path: &str, body: &str| {
        ana.request("POST", path)
            .body("application/json", body)
            .send()
            .invalid()
    };
    for body in ["", "{", "{\"name\":", "{\"name\":\"x\"} trailing", "\u{feff}{}", "nul"] {
        assert_eq!(fields("/api/accounts", body), ["body"], "{body:?}");
    }
    assert_eq!(fields("/api/accounts", "{}"), ["name"]);
    assert_eq!(fields("/api/accounts", "{\"name\":5}"), ["name"]);
    assert_eq!(fields("/api/accounts", "{\"name\":null}"), ["name"]);
    assert_eq!(fields("/api/accounts/switch", "{\"account_id\":\"7\"}"), ["account_id"]);
    let tags = "{\"name\":\"x\",\"segment_config\":{\"tag_ids\":[\"0190a1b2-0000-7000-8000-000000000000\",5]}}";
    assert_eq!(fields("/api/campaigns", tags), ["segment_config.tag_ids[1]"]);
    let unknown = "{\"name\":\"x\",\"segment_config\":{\"filters\":{\"age\":5}}}";
    let named = fields("/api/campaigns", unknown);
    assert!(named[0].starts_with("segment_config.filters"), "{named:?}");
    let when = "{\"name\":\"x\",\"scheduled_at\":\"tomorrow\"}";
    assert_eq!(fields("/api/campaigns", when), ["scheduled_at"]);
}

#[test]
fn json_scalar_is_rejected_as_body() {
    let server = Server::new();
    let ana = server.owner();
    for body in ["5", "\"x\"", "null", "true"] {
        let reply = ana.request("POST", "/api/tags").body("application/json", body).send();
        assert_eq!(reply.invalid(), ["body"], "{body}");
    }
}

#[test]
fn deeply_nested_json_is_rejected() {
    let server = Server::new();
    let ana = server.owner();
    let deep = format!(
        "{{\"name\":\"x\",\"attributes\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let reply = ana
        .request("POST", "/api/contacts")
        .body("application/json", deep)
        .send();
    assert_eq!(reply.status, 422, "{}", reply.text);
    ana.get("/api/contacts").ok();
}

#[test]
fn body_over_one_mebibyte_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let body = |bytes: usize| {
        let (head, tail) = ("{\"name\":\"Loja\",\"x\":\"", "\"}");
        format!("{head}{}{tail}", "a".repeat(bytes - head.len() - tail.len()))
    };
    let post = |body: String| {
        ana.request("POST", "/api/accounts")
            .body("application/json", body)
            .send()
    };
    post(body(MIB)).created();
    post(body(MIB + 1)).refused(413, "PAYLOAD_TOO_LARGE");

    let chunked = |bytes: usize| {
        let body = body(bytes).into_bytes();
        let chunks: Vec<&[u8]> = body.chunks(65_536).collect();
        ana.request("POST", "/api/accounts")
            .header("Content-Type", "application/json")
            .send_chunked(&chunks)
            .0
    };
    assert_eq!((chunked(MIB), chunked(MIB + 1)), (201, 413));
}

#[test]
fn excessive_content_length_is_refused_before_the_body() {
    let server = Server::new();
    let ana = server.owner();
    let mut stream = connect(server.port());
    stream.set_read_timeout(Some(crate::harness::DEADLINE)).unwrap();
    write!(
        stream,
        "POST /api/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 5000000000\r\n\r\n",
        ana.token
    )
    .unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
}

#[test]
fn other_media_types_and_encodings_are_refused() {
    let server = Server::new();
    let ana = server.owner();
    let post = |media_type: &str| ana.request("POST", "/api/tags").body(media_type, "{\"name\":\"x\"}");
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "",
    ] {
        post(media_type).send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let encoded = post("application/json").header("Content-Encoding", "gzip").send();
    encoded.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    post("Application/JSON; charset=utf-8").send().created();
}

#[test]
fn nul_character_is_rejected_before_the_database() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "a\u{0}b", "phone": "+5511961234567" });
    assert_eq!(ana.post("/api/contacts", body).invalid(), ["body"]);
    assert_eq!(ana.get("/api/contacts?search=a%00b").invalid(), ["search"]);
    assert_eq!(ana.get("/api/contacts?cursor=%00").status, 422);
    let attributes = json!({ "name": "a", "phone": "+5511961234567", "attributes": { "k\u{0}": 1 } });
    assert_eq!(ana.post("/api/contacts", attributes).invalid(), ["body"]);
}

#[test]
fn request_id_is_echoed_or_generated() {
    let server = Server::new();
    let id_of = |given: Option<&str>| {
        let request = server.get("/api/accounts");
        let request = given
            .iter()
            .fold(request, |request, given| request.header("X-Request-Id", given));
        request.send().header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_of(Some("abc-123")), "abc-123");
    assert_eq!(id_of(Some(&"x".repeat(128))), "x".repeat(128));
    let made = id_of(None);
    uuid::Uuid::parse_str(&made).unwrap();
    for wrong in ["", "a b", &"x".repeat(129)] {
        assert_ne!(id_of(Some(wrong)), wrong);
    }
    assert_ne!(id_of(None), made);
    // A 404 also has the id, and so does the log.
    let not_found = server.get("/nowhere").header("X-Request-Id", "find-me").send();
    assert_eq!(not_found.header("x-request-id"), Some("find-me"));
    crate::harness::until("the id is logged", || server.log().contains("find-me"));
}

#[test]
fn query_errors_name_parameters_and_numbers_are_clamped() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(
        ana.get("/api/campaigns?page=x&limit=1.5&order=up&sort=age&folder_id=7")
            .invalid(),
        ["folder_id", "limit", "order", "page", "sort"]
    );
    let page = ana.get("/api/campaigns?page=0&limit=100000").expect(200);
    assert_eq!((&page["page"], &page["totalPages"]), (&json!(1), &json!(0)));
    ana.get("/api/campaigns?page=99999999999999999999999&limit=-1")
        .expect(200);
    ana.get("/api/campaigns?page=&limit=&sort=&order=&folder_id=")
        .expect(200);
    assert_eq!(ana.get("/api/contacts?cursor=garbage").invalid(), ["cursor"]);
}

#[test]
fn health_checks_respond_and_server_stops_cleanly() {
    let server = Server::new();
    assert_eq!(server.get("/healthz").send().ok()["status"], "ok");
    assert_eq!(server.get("/readyz").send().ok()["status"], "ready");
    assert_eq!(server.stop(), Some(0));
}
