//! The log says who did what: the line of a request, and security events.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys::create_key_response;
use crate::harness::client::Request;
use crate::harness::process::free_port;
use crate::harness::scrape::scrape;
use crate::harness::stream::Stream;
use crate::harness::{Options, Server, eventually, text, until};

/// Sends a request and returns its log lines.
fn lines_of(server: &Server, request: Request) -> Vec<Value> {
    let id = Uuid::new_v4().to_string();
    request.header("X-Request-Id", &id).send();
    logged(server, &id)
}

/// The log lines of a request.
fn logged(server: &Server, id: &str) -> Vec<Value> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains(id));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn request_line_names_route_caller_address_and_bytes() {
    let server = Server::start(Options::default().with("TRUSTED_PROXIES", "127.0.0.1"));
    let ana = server.owner();
    let key = create_key_response(&ana, "CI");
    let body = json!({ "name": "Bia Segredo", "phone": "+5511960000001", "email": "bia@segredo.example" });
    let sent = body.to_string().len();
    let created = ana.request("POST", "/api/contacts").json(&body);
    let lines = lines_of(&server, created.header("X-Forwarded-For", "2001:db8::7"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!(
        (&line["method"], &line["route"]),
        (&json!("POST"), &json!("/api/contacts"))
    );
    assert_eq!((&line["status"], &line["client"]), (&json!(201), &json!("2001:db8::7")));
    assert_eq!((&line["account"], &line["user"]), (&json!(ana.account), &json!(ana.id)));
    assert_eq!((&line["key"], &line["request_bytes"]), (&Value::Null, &json!(sent)));
    assert!(
        line["bytes"].as_u64().unwrap() > 100 && line["duration_ms"].is_number(),
        "{line}"
    );
    for secret in [
        "Segredo",
        "segredo",
        "5511960000001",
        ana.token.as_str(),
        ana.email.as_str(),
    ] {
        assert!(!line.to_string().contains(secret), "{secret}: {line}");
    }

    // An API key is named instead of its creator. A path is logged as its route, and without its query.
    let contact = ana.contact("Caio", "+5511960000002");
    let path = format!("/api/contacts/{contact}?phone=5511960000002");
    let lines = lines_of(&server, server.get(&path).bearer(&text(&key["full_key"])));
    let line = &lines[0];
    assert_eq!(line["route"], "/api/contacts/{id}");
    assert_eq!((&line["key"], &line["user"]), (&key["id"], &Value::Null));
    assert_eq!(
        (&line["account"], &line["client"]),
        (&json!(ana.account), &json!("127.0.0.1"))
    );
    assert!(
        !line.to_string().contains(&contact) && !line.to_string().contains("5511"),
        "{line}"
    );

    let lines = lines_of(&server, server.get("/api/nowhere/5511960000002"));
    assert_eq!(
        (&lines[0]["route"], &lines[0]["account"]),
        (&json!("unmatched"), &Value::Null)
    );
    assert!(!lines[0].to_string().contains("5511"), "{}", lines[0]);
    assert_eq!(lines[0]["request_bytes"], 0);
}

#[test]
fn line_of_a_streamed_response_is_written_at_its_end() {
    let server = Server::new();
    let ana = server.owner();
    let id = Uuid::new_v4().to_string();
    let stream = Stream::open(
        &ana.request("GET", "/api/notifications/stream")
            .header("X-Request-Id", &id),
    );
    assert_eq!(stream.status, 200);
    assert!(logged(&server, &id).is_empty());
    drop(stream);
    // A write reveals that the client has disconnected. At the limit, every stream of the user writes.
    let line = eventually("the line of the stream is written", || {
        ana.get("/api/notifications/stream");
        logged(&server, &id).pop()
    });
    assert_eq!(line["route"], "/api/notifications/stream");
    assert!(line["bytes"].as_u64().unwrap() > 0, "{line}");
}

#[test]
fn refusals_are_counted_and_logged_with_what_is_known() {
    let port = free_port();
    let options = Options::default()
        .with("METRICS_BIND", format!("127.0.0.1:{port}"))
        .with("CORS_ORIGINS", "https://app.example.com");
    let server = Server::start(options);
    let ana = server.owner();
    let viewer = server.member(&ana.account, "viewer");
    let key = text(&create_key_response(&ana, "CI")["full_key"]);
    let other = server.owner();
    let hook = text(
        &ana.post("/api/webhooks", json!({ "name": "in", "direction": "inbound" }))
            .created()["id"],
    );
    let (account, user) = (json!(ana.account), json!(ana.id));
    let none = Value::Null;
    let post = |path: &str| server.post(path).json(&json!({ "name": "x" }));
    let cases = [
        (
            "no_credential",
            server.get("/api/contacts"),
            "/api/contacts",
            &none,
            &none,
        ),
        (
            "invalid_session",
            server.get("/api/tags").bearer("x.y.z"),
            "/api/tags",
            &none,
            &none,
        ),
        (
            "unknown_key",
            server.get("/api/tags").bearer("svc_live_sk_nobody"),
            "/api/tags",
            &none,
            &none,
        ),
        (
            "session_required",
            server.get("/api/accounts").bearer(&key),
            "/api/accounts",
            &none,
            &none,
        ),
        (
            "not_member",
            ana.request("GET", "/api/tags").header("X-Account-Id", &other.account),
            "/api/tags",
            &none,
            &user,
        ),
        (
            "role",
            viewer.request("POST", "/api/tags").json(&json!({ "name": "x" })),
            "/api/tags",
            &account,
            &json!(viewer.id),
        ),
        (
            "administrator",
            ana.request("GET", "/api/admin/stats"),
            "/api/admin/stats",
            &none,
            &user,
        ),
        (
            "origin",
            post("/api/tags")
                .cookie(&format!("svc-session={}", ana.token))
                .header("Origin", "https://evil.example"),
            "/api/tags",
            &account,
            &user,
        ),
        (
            "callback_signature",
            post("/api/whatsapp/webhook"),
            "/api/whatsapp/webhook",
            &none,
            &none,
        ),
        (
            "callback_signature",
            post(&format!("/api/hooks/{hook}")),
            "/api/hooks/{id}",
            &none,
            &none,
        ),
        (
            "callback_token",
            post("/api/billing/webhook"),
            "/api/billing/webhook",
            &none,
            &none,
        ),
    ];
    for (reason, request, route, account, user) in cases {
        let before = refusals(port, reason);
        let lines = lines_of(&server, request);
        let events: Vec<&Value> = lines
            .iter()
            .filter(|line| line["message"] == "access refused")
            .collect();
        assert_eq!((lines.len(), events.len()), (2, 1), "{reason}: {lines:?}");
        let event = events[0];
        assert_eq!(
            [
                &event["reason"],
                &event["route"],
                &event["client"],
                &event["account"],
                &event["user"],
                &event["level"]
            ],
            [
                &json!(reason),
                &json!(route),
                &json!("127.0.0.1"),
                account,
                user,
                &json!("WARN")
            ],
            "{event}"
        );
        assert_eq!(refusals(port, reason), before + 1.0, "{reason}");
    }
    // A success is no refusal, and neither is an unknown id.
    let total = || scrape(port).sum("recado_refusals_total", &[]).unwrap();
    let before = total();
    ana.get("/api/tags").ok();
    ana.get(&format!("/api/contacts/{}", Uuid::new_v4()))
        .refused(404, "NOT_FOUND");
    assert_eq!(total(), before);
}

fn refusals(port: u16, reason: &str) -> f64 {
    let label = format!("reason=\"{reason}\"");
    scrape(port).sum("recado_refusals_total", &[&label]).unwrap()
}

#[test]
fn forwarded_address_of_an_untrusted_peer_is_warned_of_once() {
    let server = Server::new();
    for _ in 0..3 {
        server
            .get("/healthz")
            .header("X-Forwarded-For", "192.0.2.1")
            .send()
            .ok();
    }
    until("the warning is logged", || {
        server.log().contains("is not in TRUSTED_PROXIES")
    });
    assert_eq!(server.log().matches("is not in TRUSTED_PROXIES").count(), 1);
    assert!(!server.log().contains("192.0.2.1"));
}
