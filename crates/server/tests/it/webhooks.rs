//! Webhooks from outside: what endpoints are told, whatever they answer.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::receiver::{self, Delivery, Receiver};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};

const NEVER: &str = "https://e.example";

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

/// A new endpoint, with its secrets.
fn made(ana: &User<'_>, url: &str, events: &[&str]) -> Value {
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

fn arrived(receiver: &Receiver, path: &str, count: usize) -> Vec<Delivery> {
    eventually("deliveries arrive", || {
        let found = receiver.deliveries_to(path);
        (found.len() >= count).then_some(found)
    })
}

fn status(status: u16) -> Fault {
    Fault::new(FaultKind::status(status, Value::Null))
}

#[test]
fn an_endpoint_is_told_what_it_wants_with_a_signature_that_verifies() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = made(&ana, &receiver.url("/a"), &["contact.created", "contact.updated"]);
    let (hex, signing) = (text(&hook["secret"]), text(&hook["signing_secret"]));
    assert!(hex.len() == 64 && signing.starts_with("whsec_") && hex.ends_with(&text(&hook["secret_hint"])));
    let contact = ana.contact("Bia", "+5511961234567");
    ana.put(&format!("/api/contacts/{contact}"), json!({ "name": "Caio" }))
        .ok();
    ana.delete(&format!("/api/contacts/{contact}")).gone();
    let found = arrived(&receiver, "/a", 2);
    for delivery in &found {
        delivery.verify(&hex).unwrap();
        delivery.verify(&signing).unwrap();
        let told = delivery.json();
        assert_eq!(Some(text(&told["id"]).as_str()), delivery.id());
        assert_eq!(
            (&told["account_id"], &told["data"]["id"]),
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
    let sent = found.iter().find(|one| one.id() == log["message_id"].as_str()).unwrap();
    assert_eq!(log["payload"], sent.json());
    assert_eq!((&log["response_status"], &log["attempt"]), (&json!(200), &json!(1)));
    assert!(server.db.count("FROM webhook_deliveries") == 0 && receiver.count() == 2);
}

#[test]
fn a_secret_is_shown_once_and_everything_is_audited() {
    let server = Server::start(options());
    let ana = server.owner();
    let hook = made(&ana, NEVER, &["*"]);
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
    ana.delete(&path).gone();
    ana.get(&path).refused(404, "NOT_FOUND");
    let audit = ana.get("/api/audit-logs?entityType=webhook").ok();
    let actions: Vec<String> = audit["logs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|log| text(&log["action"]))
        .collect();
    assert_eq!(actions, ["delete", "update", "update", "create"]);
    let kept = server.db.text("SELECT string_agg(t::text, '') FROM audit_logs t");
    assert!(!kept.contains(&secret) && !server.log().contains(&secret));
}

#[test]
fn wrong_endpoints_are_named() {
    let server = Server::new();
    let ana = server.owner();
    let refused = |change: Value| {
        let mut body = body(NEVER, &["*"]);
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
    let bare = json!({ "name": "CI", "url": NEVER });
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
fn nothing_is_ever_delivered_to_an_inbound_endpoint() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let inbound = json!({ "name": "Loja", "direction": "inbound", "url": receiver.url("/in") });
    let made = ana.post("/api/webhooks", inbound).created();
    assert_eq!(
        (&made["url"], &made["events"]),
        (&json!(receiver.url("/in")), &json!(["*"]))
    );
    let path = format!("/api/webhooks/{}", text(&made["id"]));
    // It alone makes no event worth keeping.
    ana.contact("Bia", "+5511961234567");
    let outbound = json!({ "name": "CI", "url": receiver.url("/out"), "events": "*" });
    assert_eq!(ana.post("/api/webhooks", outbound).created()["events"], json!(["*"]));
    ana.contact("Caio", "+5511961234568");
    arrived(&receiver, "/out", 1);
    until("nothing waits", || server.db.count("FROM webhook_deliveries") == 0);
    for (action, body) in [
        ("test", json!({})),
        ("recover", json!({ "since": "2026-01-01T00:00:00Z" })),
    ] {
        ana.post(&format!("{path}/{action}"), body)
            .refused(400, "VALIDATION_ERROR");
    }
    assert_eq!((receiver.deliveries_to("/in").len(), receiver.count()), (0, 1));
    assert_eq!(feed(&ana, "").0.len(), 1);
    // Its address is kept, changed and cleared like any other field.
    assert_eq!(ana.put(&path, json!({ "name": "Shop" })).ok()["url"], made["url"]);
    assert_eq!(ana.put(&path, json!({ "url": "ftp://x" })).invalid(), ["url"]);
    for none in [json!(""), Value::Null] {
        ana.put(&path, json!({ "url": receiver.url("/in") })).ok();
        assert_eq!(ana.put(&path, json!({ "url": none })).ok()["url"], Value::Null);
    }
    assert_eq!(ana.put(&path, json!({ "events": "*" })).ok()["events"], json!(["*"]));
}

#[test]
fn failures_are_tried_again_with_the_same_id_and_logged_each() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = made(&ana, &receiver.url("/a"), &["*"]);
    receiver.script(vec![status(500), Fault::new(FaultKind::AcceptThenReset)]);
    ana.contact("Bia", "+5511961234567");
    let found = arrived(&receiver, "/a", 3);
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
fn what_was_given_up_is_recovered_and_a_log_redelivered() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = text(&made(&ana, &receiver.url("/a"), &["*"])["id"]);
    receiver.script(vec![status(500).for_good()]);
    ana.contact("Bia", "+5511961234567");
    ana.contact("Caio", "+5511961234568");
    eventually("both are given up", || (logs(&ana, "").len() == 8).then_some(()));
    until("nothing waits", || {
        server.db.count("FROM webhook_deliveries WHERE state = 'waiting'") == 0
    });
    receiver.forget_faults();
    let path = format!("/api/webhooks/{hook}");
    let since = |moment: &str| json!({ "since": moment });
    let recovered = ana
        .post(&format!("{path}/recover"), since("2026-01-01T00:00:00Z"))
        .expect(202);
    assert_eq!(recovered["data"]["queued"], 2);
    until("both arrived", || logs(&ana, "?status=success").len() == 2);
    let again = ana
        .post(&format!("{path}/recover"), since("2026-01-01T00:00:00Z"))
        .expect(202);
    assert_eq!(again["data"]["queued"], 0, "what succeeded needs no recovery");
    let log = logs(&ana, "?status=success").remove(0);
    let redelivered = format!("/api/webhooks/logs/{}/redeliver", text(&log["id"]));
    let answer = ana.post(&redelivered, json!({})).expect(202);
    assert_eq!(answer["data"]["message_id"], log["message_id"]);
    until("it arrived once more", || logs(&ana, "?status=success").len() == 3);
    let same = receiver
        .deliveries()
        .into_iter()
        .filter(|one| one.id() == log["message_id"].as_str());
    assert_eq!(same.count(), 6);
    ana.put(&path, json!({ "is_active": false })).ok();
    ana.post(&redelivered, json!({})).refused(400, "VALIDATION_ERROR");
    ana.delete(&path).gone();
    ana.post(&redelivered, json!({})).refused(400, "VALIDATION_ERROR");
    assert_eq!(
        logs(&ana, &format!("?endpoint_id={hook}&event_type=contact.created")).len(),
        11
    );
}

#[test]
fn who_is_gone_is_switched_off_told_of_and_can_come_back() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let url = format!("{}?token=s3cret", receiver.url("/a"));
    let hook = text(&made(&ana, &url, &["contact.created"])["id"]);
    receiver.script(vec![status(410)]);
    ana.contact("Bia", "+5511961234567");
    until("it is switched off", || {
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
    until("it is in the feed", || feed(&ana, "").0.len() == 2);
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
    let found = arrived(&receiver, "/a", 2);
    assert_eq!(
        (found.len(), found[1].json()["type"].clone()),
        (2, json!("test.ping")),
        "a test ignores the list"
    );
    let kinds: Vec<String> = feed(&ana, "").0.iter().map(|one| text(&one["type"])).collect();
    assert_eq!(
        kinds,
        ["contact.created", "contact.created"],
        "what was missed stands in the feed, a test does not"
    );
}

fn feed(ana: &User<'_>, query: &str) -> (Vec<Value>, Value, Value) {
    let slice = ana.get(&format!("/api/webhooks/events{query}")).ok();
    let data = slice["data"].as_array().unwrap().clone();
    (data, slice["nextCursor"].clone(), slice["hasMore"].clone())
}

#[test]
fn a_feed_is_polled_for_ever() {
    let server = Server::start(options());
    let ana = server.owner();
    let hook = made(&ana, NEVER, &["*"]);
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
    until("what came later follows", || {
        feed(&ana, &format!("?cursor={}", text(&end))).0.len() == 1
    });
    assert_eq!(feed(&ana, "?type=message.sent").0.len(), 0);
    assert_eq!(feed(&server.owner(), &format!("?cursor={}", text(&end))).0.len(), 0);
}

#[test]
fn a_receiver_that_hangs_delays_nobody_else() {
    let (server, receiver) = (Server::start(options()), receiver());
    let (ana, bia) = (server.owner(), server.owner());
    made(&ana, &receiver.url("/hangs"), &["*"]);
    made(&bia, &receiver.url("/fine"), &["*"]);
    let hang = Fault::new(FaultKind::Hang { ms: 60_000 });
    receiver.script(vec![hang.on("POST", "/hangs").for_good()]);
    ana.contacts(500);
    arrived(&receiver, "/hangs", 1);
    bia.contacts(500);
    arrived(&receiver, "/fine", 500);
    assert!(receiver.deliveries_to("/hangs").len() <= 4);
    // It holds up no shutdown longer than its call takes.
    server.kill();
}

#[test]
fn a_server_that_dies_loses_nothing() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = made(&ana, &receiver.url("/a"), &["*"]);
    let slow = Fault::new(FaultKind::Hang { ms: 30_000 });
    receiver.script(vec![slow.for_good()]);
    ana.contacts(20);
    arrived(&receiver, "/a", 1);
    server.kill();
    receiver.forget_faults();
    // Nobody waits for the leases of the dead here.
    server.db.run("UPDATE webhook_deliveries SET next_attempt_at = now()");
    server.run(&["serve"]);
    until("all arrived", || logs(&ana, "?status=success&limit=100").len() == 20);
    let mut ids: Vec<String> = receiver
        .deliveries()
        .iter()
        .map(|one| one.id().unwrap().to_owned())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    assert!(
        receiver
            .deliveries()
            .iter()
            .all(|one| one.verify(&text(&hook["secret"])).is_ok())
    );
}

#[test]
fn after_a_rotation_both_secrets_verify() {
    let (server, receiver) = (Server::start(options()), receiver());
    let ana = server.owner();
    let hook = made(&ana, &receiver.url("/a"), &["*"]);
    let id = text(&hook["id"]);
    let rotated = ana.post(&format!("/api/webhooks/{id}/rotate-secret"), json!({})).ok();
    ana.post(&format!("/api/webhooks/{id}/test"), json!({})).expect(202);
    let first = arrived(&receiver, "/a", 1).remove(0);
    for secret in [&hook["secret"], &rotated["secret"], &rotated["signing_secret"]] {
        first.verify(&text(secret)).unwrap();
    }
    server
        .db
        .run("UPDATE webhook_endpoints SET previous_secret_until = now()");
    ana.post(&format!("/api/webhooks/{id}/test"), json!({})).expect(202);
    let second = arrived(&receiver, "/a", 2).remove(1);
    assert!(second.verify(&text(&hook["secret"])).is_err());
    second.verify(&text(&rotated["secret"])).unwrap();
}
