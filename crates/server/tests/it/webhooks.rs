//! Outbound webhooks: deliveries, signatures, retries, the event feed and the endpoints themselves.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::receiver::{self, Delivery, Receiver};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};
use crate::inbound_webhooks::Hook;

const UNREACHED_URL: &str = "https://e.example";

fn options() -> Options {
    Options::default()
        .with("EGRESS_ALLOW_CIDRS", "127.0.0.0/8")
        .with("WEBHOOK_RETRY_SCHEDULE", "50ms,50ms,50ms")
}

fn receiver() -> Receiver {
    Receiver::start(receiver::ReceiverOptions::default()).unwrap()
}

fn body(url: &str, events: &[&str]) -> Value {
    json!({ "name": "CI", "url": url, "events": events })
}

fn create_endpoint(ana: &User<'_>, url: &str, events: &[&str]) -> Value {
    ana.post("/api/webhooks", body(url, events)).created()
}

fn logs(ana: &User<'_>, query: &str) -> Vec<Value> {
    ana.get(&format!("/api/webhooks/logs{query}"))
        .ok()
        .as_array()
        .unwrap()
        .clone()
}

fn webhook(ana: &User<'_>, id: &str) -> Value {
    ana.get(&format!("/api/webhooks/{id}")).ok()
}

fn wait_for_deliveries(receiver: &Receiver, path: &str, count: usize) -> Vec<Delivery> {
    eventually("deliveries arrive", || {
        let found = receiver.deliveries_to(path);
        (found.len() >= count).then_some(found)
    })
}

fn status(status: u16) -> Fault {
    Fault::new(FaultKind::status(status, Value::Null))
}

#[test]
fn paging_logs_returns_each_once_while_others_arrive() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let id = hook.id.clone();
    let call = |number: usize| {
        let order = json!({ "type": "note", "data": { "number": number } });
        drop(hook.call(&server, &format!("m{number}"), &order));
    };
    (0..7).for_each(call);
    let (mut found, mut cursor) = (Vec::new(), String::new());
    for page in 0..4 {
        let reply = ana.get(&format!("/api/webhooks/logs?limit=2&endpoint_id={id}{cursor}"));
        let body = reply.expect(200);
        let logs = body["data"].as_array().unwrap();
        found.extend(logs.iter().map(|log| text(&log["id"])));
        assert_eq!(body["hasMore"], page < 3);
        assert_eq!(body["nextCursor"].is_string(), page < 3);
        cursor = format!("&cursor={}", body["nextCursor"].as_str().unwrap_or_default());
        call(7 + page);
    }
    assert_eq!(found.len(), 7);
    found.dedup();
    assert_eq!(found.len(), 7);
    assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
    let none = "?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z";
    assert_eq!(logs(&ana, none), Vec::<Value>::new());
    for since in ["2026-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "0001-01-01T00:00:00Z"] {
        assert_eq!(logs(&ana, &format!("?since={since}&limit=100")).len(), 11, "{since}");
    }
    assert_eq!(logs(&ana, "?until=9999-12-31T23:59:59Z&limit=100").len(), 11);
    assert_eq!(logs(&ana, "?until=1960-01-01T00:00:00Z"), Vec::<Value>::new());
    assert_eq!(ana.get("/api/webhooks/logs?cursor=x").invalid(), ["cursor"]);
    assert_eq!(ana.get("/api/webhooks/logs?since=today").invalid(), ["since"]);
}

#[test]
fn endpoint_gets_subscribed_events_with_valid_signatures() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = create_endpoint(&ana, &receiver.url("/a"), &["contact.created", "contact.updated"]);
    let (hex, signing) = (text(&hook["secret"]), text(&hook["signing_secret"]));
    assert!(hex.len() == 64 && signing.starts_with("whsec_") && hex.ends_with(&text(&hook["secret_hint"])));
    let contact = ana.contact("Bia", "+5511961234567");
    ana.put(&format!("/api/contacts/{contact}"), json!({ "name": "Caio" }))
        .ok();
    ana.delete(&format!("/api/contacts/{contact}")).no_content();
    let found = wait_for_deliveries(&receiver, "/a", 2);
    for delivery in &found {
        delivery.verify(&hex).unwrap();
        delivery.verify(&signing).unwrap();
        let event = delivery.json();
        assert_eq!(Some(text(&event["id"]).as_str()), delivery.id());
        assert_eq!(
            (&event["account_id"], &event["data"]["id"]),
            (&json!(ana.account), &json!(contact))
        );
    }
    let mut kinds: Vec<String> = found.iter().map(|delivery| text(&delivery.json()["type"])).collect();
    kinds.sort();
    assert_eq!(kinds, ["contact.created", "contact.updated"]);
    let written = eventually("attempts are logged", || {
        let found = logs(&ana, "?direction=outbound&status=success");
        (found.len() == 2).then_some(found)
    });
    let mut fields: Vec<&str> = written[0].as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "attempt",
        "created_at",
        "direction",
        "duration_ms",
        "endpoint_id",
        "error",
        "event_type",
        "id",
        "message_id",
        "next_attempt_at",
        "payload",
        "response_status",
    ];
    assert_eq!(fields, expected);
    let log = written
        .iter()
        .find(|log| log["event_type"] == "contact.created")
        .unwrap();
    let message_id = log["message_id"].as_str();
    let sent = found.iter().find(|call| call.id() == message_id).unwrap();
    assert_eq!(log["payload"], sent.json());
    assert_eq!((&log["response_status"], &log["attempt"]), (&json!(200), &json!(1)));
    assert!(server.db.count("FROM webhook_deliveries") == 0 && receiver.count() == 2);
}

#[test]
fn endpoint_secret_is_shown_once_and_changes_are_audited() {
    let server = Server::start(options());
    let ana = server.owner();
    let hook = create_endpoint(&ana, UNREACHED_URL, &["*"]);
    let (id, secret) = (text(&hook["id"]), text(&hook["secret"]));
    let path = format!("/api/webhooks/{id}");
    let listed = ana.get("/api/webhooks?limit=1").ok();
    assert_eq!(
        (&listed["total"], &listed["limit"], &listed["totalPages"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let found = webhook(&ana, &id);
    assert_eq!(listed["data"][0], found);
    let mut fields: Vec<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "created_at",
        "direction",
        "disabled_at",
        "disabled_reason",
        "events",
        "id",
        "is_active",
        "name",
        "secret_hint",
        "updated_at",
        "url",
    ];
    assert_eq!(fields, expected);
    let changed = ana
        .put(
            &path,
            json!({ "name": "Loja", "is_active": false, "secret": "x", "id": "y" }),
        )
        .ok();
    assert_eq!(
        (&changed["name"], &changed["is_active"], &changed["id"]),
        (&json!("Loja"), &json!(false), &json!(id))
    );
    let rotated = ana.post(&format!("{path}/rotate-secret"), json!({})).ok();
    assert_ne!(rotated["secret"], json!(secret));
    assert_eq!(webhook(&ana, &id)["secret_hint"], rotated["secret_hint"]);
    ana.delete(&path).no_content();
    ana.get(&path).refused(404, "NOT_FOUND");
    let audit = ana.get("/api/audit-logs?entityType=webhook").ok();
    let actions: Vec<String> = audit["logs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|log| text(&log["action"]))
        .collect();
    assert_eq!(actions, ["delete", "update", "update", "create"]);
    let audit_rows = server.db.text("SELECT string_agg(t::text, '') FROM audit_logs t");
    assert!(!audit_rows.contains(&secret) && !server.log().contains(&secret));
}

#[test]
fn invalid_endpoint_names_the_field() {
    let server = Server::new();
    let ana = server.owner();
    let refused = |change: Value| {
        let mut body = body(UNREACHED_URL, &["*"]);
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        ana.post("/api/webhooks", body).invalid()
    };
    for url in [
        "",
        "ftp://e.example",
        "https://u:p@e.example",
        "https://127.0.0.1/",
        "http://10.0.0.1",
        "http://[::1]/",
        "http://2130706433/",
        "http://localhost/",
        "http://0x7f.1/",
        "https://e.example/#x",
    ] {
        assert_eq!(refused(json!({ "url": url })), ["url"], "{url}");
    }
    assert_eq!(refused(json!({ "events": ["message.exploded"] })), ["events[0]"]);
    assert_eq!(refused(json!({ "events": [] })), ["events"]);
    assert_eq!(refused(json!({ "name": " " })), ["name"]);
    assert_eq!(refused(json!({ "direction": "up" })), ["direction"]);
    assert_eq!(refused(json!({ "events": "message.sent" })), ["events"]);
    assert_eq!(refused(json!({ "events": ["*", 7] })), ["events[1]"]);
    assert_eq!(
        refused(json!({ "direction": "inbound", "url": "https://10.0.0.1/" })),
        ["url"]
    );
    let bare = json!({ "name": "CI", "url": UNREACHED_URL });
    assert_eq!(ana.post("/api/webhooks", bare).invalid(), ["events"]);
    let inbound = json!({ "name": "Loja", "events": ["order.recorded"], "direction": "inbound" });
    let inbound = ana.post("/api/webhooks", inbound).created();
    assert_eq!(inbound["url"], Value::Null);
    let path = format!("/api/webhooks/{}", text(&inbound["id"]));
    assert_eq!(
        ana.put(&path, json!({ "direction": "outbound" })).invalid(),
        ["direction"]
    );
    ana.post(&format!("{path}/test"), json!({}))
        .refused(400, "VALIDATION_ERROR");
    assert_eq!(ana.get("/api/webhooks/logs?status=maybe").invalid(), ["status"]);
    assert_eq!(ana.get("/api/webhooks/events?cursor=7").invalid(), ["cursor"]);
    assert_eq!(ana.post(&format!("{path}/recover"), json!({})).invalid(), ["since"]);
}

#[test]
fn inbound_endpoint_gets_no_deliveries() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let inbound = json!({ "name": "Loja", "direction": "inbound", "url": receiver.url("/in") });
    let made = ana.post("/api/webhooks", inbound).created();
    assert_eq!(
        (&made["url"], &made["events"]),
        (&json!(receiver.url("/in")), &json!(["*"]))
    );
    let path = format!("/api/webhooks/{}", text(&made["id"]));
    // No event is stored while the only endpoint is inbound.
    ana.contact("Bia", "+5511961234567");
    let outbound = json!({ "name": "CI", "url": receiver.url("/out"), "events": "*" });
    assert_eq!(ana.post("/api/webhooks", outbound).created()["events"], json!(["*"]));
    ana.contact("Caio", "+5511961234568");
    wait_for_deliveries(&receiver, "/out", 1);
    until("no delivery waits", || server.db.count("FROM webhook_deliveries") == 0);
    for (action, body) in [
        ("test", json!({})),
        ("recover", json!({ "since": "2026-01-01T00:00:00Z" })),
    ] {
        ana.post(&format!("{path}/{action}"), body)
            .refused(400, "VALIDATION_ERROR");
    }
    assert_eq!((receiver.deliveries_to("/in").len(), receiver.count()), (0, 1));
    assert_eq!(feed(&ana, "").0.len(), 1);
    // The URL of an inbound endpoint can be changed and cleared like any other field. An absent URL is unchanged.
    assert_eq!(ana.put(&path, json!({ "name": "Shop" })).ok()["url"], made["url"]);
    assert_eq!(ana.put(&path, json!({ "url": "ftp://x" })).invalid(), ["url"]);
    for none in [json!(""), Value::Null] {
        ana.put(&path, json!({ "url": receiver.url("/in") })).ok();
        assert_eq!(ana.put(&path, json!({ "url": none })).ok()["url"], Value::Null);
    }
    assert_eq!(ana.put(&path, json!({ "events": "*" })).ok()["events"], json!(["*"]));
}

#[test]
fn failed_delivery_is_retried_with_the_same_id_and_logged() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = create_endpoint(&ana, &receiver.url("/a"), &["*"]);
    receiver.script(vec![status(500), Fault::new(FaultKind::AcceptThenReset)]);
    ana.contact("Bia", "+5511961234567");
    let found = wait_for_deliveries(&receiver, "/a", 3);
    assert!(
        found
            .iter()
            .all(|delivery| delivery.id() == found[0].id() && delivery.body == found[0].body)
    );
    for delivery in &found {
        delivery.verify(&text(&hook["secret"])).unwrap();
    }
    let written = eventually("every attempt is logged", || {
        let found = logs(&ana, "");
        (found.len() == 3).then_some(found)
    });
    let seen: Vec<_> = written
        .iter()
        .map(|log| (log["attempt"].clone(), log["response_status"].clone()))
        .collect();
    let expected = [(json!(3), json!(200)), (json!(2), Value::Null), (json!(1), json!(500))];
    assert_eq!(seen, expected);
    assert_eq!(
        (
            logs(&ana, "?status=failed").len(),
            logs(&ana, "?status=success&limit=1").len()
        ),
        (2, 1)
    );
    assert!(written[2]["next_attempt_at"].is_string() && written[0]["next_attempt_at"].is_null());
    assert!(written[1]["error"].is_string());
}

#[test]
fn abandoned_deliveries_can_be_recovered_or_redelivered() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = text(&create_endpoint(&ana, &receiver.url("/a"), &["*"])["id"]);
    receiver.script(vec![status(500).for_good()]);
    ana.contact("Bia", "+5511961234567");
    ana.contact("Caio", "+5511961234568");
    eventually("both are abandoned", || (logs(&ana, "").len() == 8).then_some(()));
    until("no delivery waits", || {
        server.db.count("FROM webhook_deliveries WHERE state = 'waiting'") == 0
    });
    receiver.clear_faults();
    let path = format!("/api/webhooks/{hook}");
    let since = |time: &str| json!({ "since": time });
    let recovered = ana
        .post(&format!("{path}/recover"), since("2026-01-01T00:00:00Z"))
        .expect(202);
    assert_eq!(recovered["data"]["queued"], 2);
    until("both deliveries succeeded", || logs(&ana, "?status=success").len() == 2);
    let again = ana
        .post(&format!("{path}/recover"), since("2026-01-01T00:00:00Z"))
        .expect(202);
    assert_eq!(again["data"]["queued"], 0, "what succeeded needs no recovery");
    let log = logs(&ana, "?status=success").remove(0);
    let redelivered = format!("/api/webhooks/logs/{}/redeliver", text(&log["id"]));
    let response = ana.post(&redelivered, json!({})).expect(202);
    assert_eq!(response["data"]["message_id"], log["message_id"]);
    until("the redelivery succeeded", || logs(&ana, "?status=success").len() == 3);
    let message_id = log["message_id"].as_str();
    let calls = receiver.deliveries().into_iter().filter(|call| call.id() == message_id);
    assert_eq!(calls.count(), 6);
    ana.put(&path, json!({ "is_active": false })).ok();
    ana.post(&redelivered, json!({})).refused(400, "VALIDATION_ERROR");
    ana.delete(&path).no_content();
    ana.post(&redelivered, json!({})).refused(400, "VALIDATION_ERROR");
    assert_eq!(
        logs(&ana, &format!("?endpoint_id={hook}&event_type=contact.created")).len(),
        11
    );
}

#[test]
fn endpoint_that_returns_410_is_disabled_and_reported() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let url = format!("{}?token=s3cret", receiver.url("/a"));
    let hook = text(&create_endpoint(&ana, &url, &["contact.created"])["id"]);
    receiver.script(vec![status(410)]);
    ana.contact("Bia", "+5511961234567");
    until("the endpoint is disabled", || {
        webhook(&ana, &hook)["is_active"] == json!(false)
    });
    let off = webhook(&ana, &hook);
    assert_eq!(off["disabled_reason"], "gone");
    assert!(off["disabled_at"].is_string());
    let notes = ana.get("/api/notifications").ok();
    let message = text(&notes["data"][0]["message"]);
    assert!(
        message.contains(&text(&off["name"])) && message.contains("127.0.0.1"),
        "{message}"
    );
    let log = ana.get("/api/audit-logs?entityType=webhook").ok();
    assert!(
        !format!("{notes}{log}").contains("s3cret"),
        "the query of a URL may hold secrets"
    );
    assert_eq!(
        (&notes["data"][0]["type"], &notes["data"][0]["data"]["webhook_id"]),
        (&json!("warning"), &json!(hook))
    );
    let log = &ana.get("/api/audit-logs?entityType=webhook&action=update").ok()["logs"][0];
    assert_eq!(
        (&log["entity_id"], &log["user_id"], &log["changes"]["disabled_reason"]),
        (&json!(hook), &Value::Null, &json!("gone"))
    );
    ana.contact("Caio", "+5511961234568");
    until("both events are in the feed", || feed(&ana, "").0.len() == 2);
    ana.post(&format!("/api/webhooks/{hook}/test"), json!({}))
        .refused(400, "VALIDATION_ERROR");
    let on = ana
        .put(&format!("/api/webhooks/{hook}"), json!({ "is_active": true }))
        .ok();
    assert_eq!(
        (&on["disabled_at"], &on["disabled_reason"]),
        (&Value::Null, &Value::Null)
    );
    ana.post(&format!("/api/webhooks/{hook}/test"), json!({})).expect(202);
    let found = wait_for_deliveries(&receiver, "/a", 2);
    assert_eq!(
        (found.len(), found[1].json()["type"].clone()),
        (2, json!("test.ping")),
        "a test ping ignores the list of events"
    );
    let kinds: Vec<String> = feed(&ana, "").0.iter().map(|event| text(&event["type"])).collect();
    assert_eq!(
        kinds,
        ["contact.created", "contact.created"],
        "the feed holds missed events but no test ping"
    );
}

fn feed(ana: &User<'_>, query: &str) -> (Vec<Value>, Value, Value) {
    let page = ana.get(&format!("/api/webhooks/events{query}")).ok();
    let data = page["data"].as_array().unwrap().clone();
    (data, page["nextCursor"].clone(), page["hasMore"].clone())
}

#[test]
fn event_feed_continues_at_its_cursor() {
    let server = Server::start(options());
    let ana = server.owner();
    let hook = create_endpoint(&ana, UNREACHED_URL, &["*"]);
    ana.put(
        &format!("/api/webhooks/{}", text(&hook["id"])),
        json!({ "is_active": false }),
    )
    .ok();
    assert_eq!(feed(&ana, ""), (vec![], Value::Null, json!(false)));
    ana.contacts(5);
    let all = eventually("the import is in the feed", || {
        let (found, ..) = feed(&ana, "?cursor=&limit=100");
        (found.len() == 5).then_some(found)
    });
    let (first, cursor, more) = feed(&ana, "?limit=2");
    assert_eq!((&first[..], more), (&all[..2], json!(true)));
    let (rest, end, more) = feed(&ana, &format!("?cursor={}", text(&cursor)));
    assert_eq!((&rest[..], more), (&all[2..], json!(false)));
    assert_eq!(
        feed(&ana, &format!("?cursor={}", text(&end))),
        (vec![], end.clone(), json!(false))
    );
    ana.contact("Bia", "+5511951234567");
    until("the later event is in the feed", || {
        feed(&ana, &format!("?cursor={}", text(&end))).0.len() == 1
    });
    assert_eq!(feed(&ana, "?type=message.sent").0.len(), 0);
    assert_eq!(feed(&server.owner(), &format!("?cursor={}", text(&end))).0.len(), 0);
}

#[test]
fn hanging_receiver_delays_no_other_endpoint() {
    let (server, receiver) = (Server::start(options()), receiver());
    let (ana, bia) = (server.owner(), server.owner());
    create_endpoint(&ana, &receiver.url("/hangs"), &["*"]);
    create_endpoint(&bia, &receiver.url("/fine"), &["*"]);
    let hang = Fault::new(FaultKind::Hang { ms: 60_000 });
    receiver.script(vec![hang.on("POST", "/hangs").for_good()]);
    ana.contacts(500);
    wait_for_deliveries(&receiver, "/hangs", 1);
    bia.contacts(500);
    wait_for_deliveries(&receiver, "/fine", 500);
    assert!(receiver.deliveries_to("/hangs").len() <= 4);
    // Not a graceful stop: it would wait for the hanging call.
    server.kill();
}

#[test]
fn killed_server_loses_no_delivery() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = create_endpoint(&ana, &receiver.url("/a"), &["*"]);
    let slow = Fault::new(FaultKind::Hang { ms: 30_000 });
    receiver.script(vec![slow.for_good()]);
    ana.contacts(20);
    wait_for_deliveries(&receiver, "/a", 1);
    server.kill();
    receiver.clear_faults();
    // The test does not wait for the killed server's leases.
    server.db.run("UPDATE webhook_deliveries SET next_attempt_at = now()");
    server.run(&["serve"]);
    until("all arrive", || logs(&ana, "?status=success&limit=100").len() == 20);
    let mut ids: Vec<String> = receiver
        .deliveries()
        .iter()
        .map(|delivery| delivery.id().unwrap().to_owned())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    assert!(
        receiver
            .deliveries()
            .iter()
            .all(|delivery| delivery.verify(&text(&hook["secret"])).is_ok())
    );
}

#[test]
fn deliveries_verify_with_both_secrets_after_rotation() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = create_endpoint(&ana, &receiver.url("/a"), &["*"]);
    let id = text(&hook["id"]);
    let rotated = ana.post(&format!("/api/webhooks/{id}/rotate-secret"), json!({})).ok();
    ana.post(&format!("/api/webhooks/{id}/test"), json!({})).expect(202);
    let first = wait_for_deliveries(&receiver, "/a", 1).remove(0);
    for secret in [&hook["secret"], &rotated["secret"], &rotated["signing_secret"]] {
        first.verify(&text(secret)).unwrap();
    }
    server
        .db
        .run("UPDATE webhook_endpoints SET previous_secret_until = now()");
    ana.post(&format!("/api/webhooks/{id}/test"), json!({})).expect(202);
    let second = wait_for_deliveries(&receiver, "/a", 2).remove(1);
    assert!(second.verify(&text(&hook["secret"])).is_err());
    second.verify(&text(&rotated["secret"])).unwrap();
}
