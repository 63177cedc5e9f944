//! The log says who did what: the line of a request, and security events.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys::create_key_response;
use crate::harness::client::Request;
use crate::harness::scrape::scrape;
use crate::harness::stream::Stream;
use crate::harness::users::User;
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

/// A request that is refused for this reason, and what its event says of the caller.
struct Refused {
    reason: &'static str,
    request: Request,
    route: &'static str,
    account: Value,
    user: Value,
}

impl Refused {
    /// A refusal of which no caller is known.
    fn of(reason: &'static str, route: &'static str, request: Request) -> Self {
        Self {
            reason,
            request,
            route,
            account: Value::Null,
            user: Value::Null,
        }
    }

    fn user(self, user: &User<'_>) -> Self {
        Self {
            user: json!(user.id),
            ..self
        }
    }

    fn account(self, user: &User<'_>) -> Self {
        Self {
            account: json!(user.account),
            ..self
        }
    }

    /// Sends the request, and checks its event and the counter.
    fn check(self, server: &Server, metrics: u16) {
        let before = refusals(metrics, self.reason);
        let lines = lines_of(server, self.request);
        let events: Vec<&Value> = lines
            .iter()
            .filter(|line| line["message"] == "access refused")
            .collect();
        assert_eq!((lines.len(), events.len()), (2, 1), "{}: {lines:?}", self.reason);
        let event = events[0];
        let fields = ["reason", "route", "client", "level"].map(|name| event[name].as_str().unwrap());
        assert_eq!(fields, [self.reason, self.route, "127.0.0.1", "WARN"], "{event}");
        assert_eq!(
            (&event["account"], &event["user"]),
            (&self.account, &self.user),
            "{event}"
        );
        assert_eq!(refusals(metrics, self.reason), before + 1.0, "{}", self.reason);
    }
}

#[test]
fn refusals_are_counted_and_logged_with_what_is_known() {
    let server = Server::start(Options::default().with_metrics());
    let port = server.metrics_port();
    let (ana, other) = (server.owner(), server.owner());
    let viewer = server.member(&ana.account, "viewer");
    let key = text(&create_key_response(&ana, "CI")["full_key"]);
    let hook = json!({ "name": "in", "direction": "inbound" });
    let hook = text(&ana.post("/api/webhooks", hook).created()["id"]);
    let (tags, body) = ("/api/tags", json!({ "name": "x" }));
    let post = |path: &str| server.post(path).json(&body);
    let foreign = post(tags)
        .cookie(&format!("svc-session={}", ana.token))
        .header("Origin", "https://evil.example");
    let elsewhere = ana.request("GET", tags).header("X-Account-Id", &other.account);
    let cases = [
        Refused::of("no_credential", tags, server.get(tags)),
        Refused::of("invalid_session", tags, server.get(tags).bearer("x.y.z")),
        Refused::of("unknown_key", tags, server.get(tags).bearer("svc_live_sk_nobody")),
        Refused::of(
            "session_required",
            "/api/accounts",
            server.get("/api/accounts").bearer(&key),
        ),
        Refused::of("not_member", tags, elsewhere).user(&ana),
        Refused::of("role", tags, viewer.request("POST", tags).json(&body))
            .user(&viewer)
            .account(&ana),
        Refused::of(
            "administrator",
            "/api/admin/stats",
            ana.request("GET", "/api/admin/stats"),
        )
        .user(&ana),
        Refused::of("origin", tags, foreign).user(&ana).account(&ana),
        Refused::of(
            "callback_signature",
            "/api/whatsapp/webhook",
            post("/api/whatsapp/webhook"),
        ),
        Refused::of(
            "callback_signature",
            "/api/hooks/{id}",
            post(&format!("/api/hooks/{hook}")),
        ),
        Refused::of("callback_token", "/api/billing/webhook", post("/api/billing/webhook")),
    ];
    for case in cases {
        case.check(&server, port);
    }
    // A success is no refusal, and neither is an unknown id.
    let total = || scrape(port).sum("recado_refusals_total", &[]).unwrap();
    let before = total();
    ana.get(tags).ok();
    let unknown = ana.get(&format!("/api/contacts/{}", Uuid::new_v4()));
    unknown.refused(404, "NOT_FOUND");
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
