//! Inbound endpoints: calls signed by an independent Standard Webhooks library, their effect and their log.

use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::harness::client::{Reply, Request};
use crate::harness::users::{User, now};
use crate::harness::{Options, Server, text};

/// An inbound endpoint and a signer with its secret.
pub(crate) struct Hook {
    pub(crate) id: String,
    signer: Webhook,
}

impl Hook {
    pub(crate) fn new(ana: &User<'_>) -> Self {
        let body = json!({ "name": "Loja", "direction": "inbound", "events": ["*"] });
        Self::from_response(&ana.post("/api/webhooks", body).created())
    }

    pub(crate) fn from_response(made: &Value) -> Self {
        Self {
            id: text(&made["id"]),
            signer: Webhook::new(&text(&made["signing_secret"])).unwrap(),
        }
    }

    /// Signs and fills a request for this endpoint.
    fn signed(&self, request: Request, message_id: &str, at: u64, body: &str) -> Request {
        let at = i64::try_from(at).unwrap();
        let signature = self.signer.sign(message_id, at, body.as_bytes()).unwrap();
        request
            .path(&format!("/api/hooks/{}", self.id))
            .header("webhook-id", message_id)
            .header("webhook-timestamp", &at.to_string())
            .header("webhook-signature", &signature)
            .body("application/json", body)
    }

    pub(crate) fn request(&self, request: Request, message_id: &str, body: &Value) -> Request {
        self.signed(request, message_id, now(), &body.to_string())
    }

    fn call_at(&self, server: &Server, message_id: &str, at: u64, body: &str) -> Reply {
        self.signed(server.post("/"), message_id, at, body).send()
    }

    pub(crate) fn call(&self, server: &Server, message_id: &str, body: &Value) -> Reply {
        self.call_at(server, message_id, now(), &body.to_string())
    }
}

fn order_call(status: &str) -> Value {
    json!({ "type": "order.recorded", "data": { "external_id": "1001", "platform": "loja", "status": status,
        "total": 149.9, "items": [], "placed_at": "2026-03-01T12:00:00Z" } })
}

fn list_inbound_logs(ana: &User<'_>) -> Vec<Value> {
    let logs = ana.get("/api/webhooks/logs?direction=inbound").ok();
    logs.as_array().unwrap().clone()
}

#[test]
fn inbound_calls_are_recorded_once_and_logged() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let contact = json!({ "type": "contact.upserted", "data": { "name": "Bia", "phone": "11961234567",
        "tags": ["vip"], "attributes": { "city": "SP" } } });
    let metric = json!({ "type": "metric.recorded", "data": { "metric_name": "visit",
        "contact_phone": "+5511961234567", "source": "site", "value": 2 } });
    for (message, body) in [("m1", &contact), ("m2", &metric), ("m3", &order_call("paid"))] {
        assert_eq!(hook.call(&server, message, body).ok(), json!({ "received": true }));
        // A repeated message id is ignored, whatever its body.
        hook.call(&server, message, &json!({ "type": "x", "data": {} })).ok();
    }
    hook.call(
        &server,
        "m4",
        &json!({ "type": "stock.changed", "data": { "left": 3 } }),
    )
    .ok();
    let contacts = ana.get("/api/contacts").ok();
    assert_eq!(contacts["data"].as_array().unwrap().len(), 1);
    assert_eq!(contacts["data"][0]["phone"], "+5511961234567");
    let metrics = ana.get("/api/analytics/metrics").ok();
    assert_eq!(metrics["metrics"][0]["total_events"], 1);
    assert_eq!(
        server.db.text("SELECT status || ' ' || total FROM orders"),
        "paid 149.9"
    );
    let logs = list_inbound_logs(&ana);
    let entries: Vec<_> = logs
        .iter()
        .map(|log| (text(&log["event_type"]), text(&log["message_id"])))
        .collect();
    let expected = [
        ("stock.changed", "m4"),
        ("order.recorded", "m3"),
        ("metric.recorded", "m2"),
        ("contact.upserted", "m1"),
    ];
    assert_eq!(
        entries,
        expected.map(|(kind, message)| (kind.to_owned(), message.to_owned()))
    );
    assert!(
        logs.iter()
            .all(|log| log["response_status"] == 200 && log["endpoint_id"] == json!(hook.id))
    );
    assert_eq!(logs[1]["payload"], order_call("paid"));
    assert_eq!(
        ana.get("/api/webhooks/logs?status=success")
            .ok()
            .as_array()
            .unwrap()
            .len(),
        4
    );
    // Another call reports the same order with a new status.
    hook.call(&server, "m5", &order_call("refunded")).ok();
    assert_eq!(server.db.text("SELECT string_agg(status, ' ') FROM orders"), "refunded");
}

#[test]
fn inbound_contact_sets_every_contact_field() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let vip = ana.tag("vip");
    let upsert = |message_id: &str, data: Value| {
        let body = json!({ "type": "contact.upserted", "data": data });
        hook.call(&server, message_id, &body)
    };
    let list_contacts = || ana.get("/api/contacts").ok()["data"].as_array().unwrap().clone();
    upsert(
        "m1",
        json!({ "name": "Bia", "wa_user_id": "BR.1a", "tag_ids": [vip], "attributes": { "city": "SP" } }),
    )
    .ok();
    // The same contact, now with a phone number. Absent and null fields are kept.
    let more = json!({ "name": "Bia S.", "phone": "11961234567", "wa_user_id": "BR.1a", "tags": ["new"],
        "attributes": { "size": 3 }, "email": "bia@loja.example" });
    upsert("m2", more).ok();
    upsert(
        "m3",
        json!({ "name": "Bia S.", "phone": "+5511961234567", "email": null, "opted_out": true }),
    )
    .ok();
    upsert(
        "m4",
        json!({ "name": "Bia S.", "phone": "+5511961234567", "opted_out": false }),
    )
    .ok();
    let contacts = list_contacts();
    assert_eq!(contacts.len(), 1, "{contacts:?}");
    let contact = &contacts[0];
    assert_eq!(
        (
            &contact["name"],
            &contact["phone"],
            &contact["wa_user_id"],
            &contact["email"]
        ),
        (
            &json!("Bia S."),
            &json!("+5511961234567"),
            &json!("BR.1a"),
            &json!("bia@loja.example")
        )
    );
    assert_eq!(contact["attributes"], json!({ "city": "SP", "size": 3 }));
    let tags = contact["tags"].as_array().unwrap().iter().map(|tag| text(&tag["name"]));
    assert_eq!(tags.collect::<Vec<_>>(), ["new", "vip"]);
    assert!(
        contact["opted_out_at"].is_string(),
        "an inbound call cannot end an opt-out"
    );
}

#[test]
fn inbound_contact_errors_name_their_field() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let hook = Hook::new(&ana);
    let foreign = bia.tag("theirs");
    let upsert = |message_id: &str, data: Value| {
        let body = json!({ "type": "contact.upserted", "data": data });
        hook.call(&server, message_id, &body)
    };
    upsert("m1", json!({ "name": "Bia", "wa_user_id": "BR.1a" })).ok();
    let wrong = |data: Value| {
        let error = upsert("m5", data).refused(422, "VALIDATION_ERROR");
        let fields = error["details"]["fields"].as_object().unwrap();
        fields.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(wrong(json!({ "name": "X" })), ["data.phone"]);
    assert_eq!(
        wrong(json!({ "name": "X", "phone": "11961234568", "tag_ids": [foreign] })),
        ["data.tag_ids"]
    );
    assert_eq!(
        wrong(json!({ "name": "X", "phone": "11961234568", "tag_ids": ["x"] })),
        ["data.tag_ids"]
    );
    // The phone number of one contact with the wa_user_id of another one.
    upsert("m6", json!({ "name": "Caio", "phone": "11961234569" })).ok();
    assert_eq!(
        wrong(json!({ "name": "X", "phone": "11961234569", "wa_user_id": "BR.1a" })),
        ["data.wa_user_id"]
    );
    assert_eq!(server.db.count("FROM contacts"), 2);
}

#[test]
fn inbound_call_of_unknown_type_is_logged_with_any_data() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let calls = [
        json!({ "type": "shop.ping" }),
        json!({ "type": "shop.list", "data": [1] }),
        json!({ "type": "shop.text", "data": "x" }),
    ];
    for (number, call) in calls.iter().enumerate() {
        hook.call(&server, &format!("m{number}"), call).ok();
    }
    let bare = json!({ "type": "order.recorded", "data": [] });
    hook.call(&server, "bare", &bare).refused(422, "VALIDATION_ERROR");
    let logs = list_inbound_logs(&ana);
    let payloads: Vec<&Value> = logs.iter().rev().map(|log| &log["payload"]).collect();
    assert_eq!(payloads, calls.iter().chain([&bare]).collect::<Vec<_>>());
    assert_eq!(
        (&logs[0]["event_type"], &logs[0]["response_status"]),
        (&json!("order.recorded"), &json!(422))
    );
}

#[test]
fn inbound_call_without_valid_signature_leaves_no_trace() {
    let server = Server::new();
    let ana = server.owner();
    let (hook, second_hook) = (Hook::new(&ana), Hook::new(&ana));
    let forged = Hook {
        id: hook.id.clone(),
        signer: second_hook.signer,
    };
    forged
        .call(&server, "m1", &order_call("paid"))
        .refused(401, "AUTH_ERROR");
    for at in [now() - 310, now() + 310] {
        hook.call_at(&server, "m1", at, &order_call("paid").to_string())
            .refused(401, "AUTH_ERROR");
    }
    let path = format!("/api/hooks/{}", hook.id);
    server
        .post(&path)
        .json(&order_call("paid"))
        .send()
        .refused(401, "AUTH_ERROR");
    assert_eq!(server.db.text("SELECT count(*) FROM orders"), "0");
    assert_eq!(list_inbound_logs(&ana), Vec::<Value>::new());
    // A replaced secret stays valid for a day.
    let rotated = ana
        .post(&format!("/api/webhooks/{}/rotate-secret", hook.id), json!({}))
        .ok();
    hook.call(&server, "m1", &order_call("paid")).ok();
    Hook::from_response(&rotated)
        .call(&server, "m2", &order_call("paid"))
        .ok();
    server.db.run(
        "UPDATE webhook_endpoints SET previous_secret_until = now() - interval '1 second'
                   WHERE previous_secret IS NOT NULL",
    );
    hook.call(&server, "m3", &order_call("paid")).refused(401, "AUTH_ERROR");
}

#[test]
fn inbound_call_to_unavailable_endpoint_is_not_found() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let outbound = json!({ "name": "CI", "url": "https://e.example", "events": ["*"] });
    let outbound = Hook::from_response(&ana.post("/api/webhooks", outbound).created());
    outbound
        .call(&server, "m1", &order_call("paid"))
        .refused(404, "NOT_FOUND");
    let unknown = Hook {
        id: uuid::Uuid::now_v7().to_string(),
        signer: Webhook::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap(),
    };
    unknown
        .call(&server, "m1", &order_call("paid"))
        .refused(404, "NOT_FOUND");
    ana.put(&format!("/api/webhooks/{}", hook.id), json!({ "is_active": false }))
        .ok();
    hook.call(&server, "m1", &order_call("paid")).refused(404, "NOT_FOUND");
    ana.put(&format!("/api/webhooks/{}", hook.id), json!({ "is_active": true }))
        .ok();
    server.db.run("UPDATE accounts SET status = 'suspended'");
    hook.call(&server, "m1", &order_call("paid")).refused(404, "NOT_FOUND");
    server.db.run("UPDATE accounts SET status = 'active'");
    hook.call(&server, "m1", &order_call("paid")).ok();
}

#[test]
fn inbound_call_with_errors_names_fields_and_can_be_retried() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let bad = json!({ "type": "order.recorded", "data": { "external_id": "1", "platform": "loja" } });
    let error = hook.call(&server, "m1", &bad).refused(422, "VALIDATION_ERROR");
    let fields = error["details"]["fields"].as_object().unwrap();
    assert!(
        fields.contains_key("data.status") && fields.contains_key("data.total"),
        "{fields:?}"
    );
    hook.call_at(&server, "m2", now(), "no json")
        .refused(422, "VALIDATION_ERROR");
    let logs = list_inbound_logs(&ana);
    assert_eq!((logs.len(), &logs[1]["response_status"]), (2, &json!(422)));
    assert!(text(&logs[1]["error"]).contains("data.total"), "{logs:?}");
    assert_eq!(
        ana.get("/api/webhooks/logs?status=failed")
            .ok()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // The corrected call under the same message id is accepted.
    hook.call(&server, "m1", &order_call("paid")).ok();
    assert_eq!(server.db.text("SELECT count(*) FROM orders"), "1");
}

#[test]
fn inbound_records_are_published_as_webhook_events() {
    let server = Server::start(Options::default());
    let ana = server.owner();
    let feed = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    ana.post("/api/webhooks", feed).created();
    let hook = Hook::new(&ana);
    hook.call(&server, "m1", &order_call("paid")).ok();
    hook.call(&server, "m2", &order_call("paid")).ok();
    let metric = json!({ "type": "metric.recorded", "data": { "metric_name": "visit", "source": "site",
        "contact_phone": "+5511961234567", "value": 1.5, "currency": "BRL" } });
    hook.call(&server, "m3", &metric).ok();
    let events = crate::harness::eventually("both are in the feed", || {
        let events = ana.get("/api/webhooks/events").ok()["data"].take();
        (events.as_array().unwrap().len() == 2).then_some(events)
    });
    assert_eq!(events[0]["type"], "order.recorded");
    let order = &events[0]["data"];
    assert_eq!(
        (
            &order["external_id"],
            &order["status"],
            &order["total"],
            &order["placed_at"]
        ),
        (
            &json!("1001"),
            &json!("paid"),
            &json!(149.9),
            &json!("2026-03-01T12:00:00.000Z")
        )
    );
    let event = &events[1]["data"];
    assert_eq!(
        (
            &event["metric_name"],
            &event["value"],
            &event["currency"],
            &event["contact_id"]
        ),
        (&json!("visit"), &json!(1.5), &json!("BRL"), &Value::Null)
    );
}
