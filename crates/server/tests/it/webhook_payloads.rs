//! Emission of webhook events: each change appears in the event feed.

use std::collections::BTreeMap;

use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::billing::{card_order, subscribe};
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text};

const NUMBER: &str = "106500000001";
const SENDER: &str = "+5531988887777";

/// Creates an inactive endpoint that subscribes to all events. The feed holds them, but none is delivered.
fn subscribe_to_all(ana: &User<'_>) {
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    ana.post("/api/webhooks", body).created();
}

fn feed(ana: &User<'_>) -> Vec<Value> {
    let events = ana.get("/api/webhooks/events?limit=100").ok();
    events["data"].as_array().unwrap().clone()
}

/// Waits for an event of this type with this value in `field`, and returns its data.
#[track_caller]
fn wait_for_event(ana: &User<'_>, kind: &str, field: &str, expected: &Value) -> Value {
    eventually(&format!("{kind} with {field} {expected}"), || {
        let events = feed(ana);
        let found = events
            .iter()
            .find(|event| event["type"] == kind && event["data"][field] == *expected);
        found.map(|event| event["data"].clone())
    })
}

#[test]
fn campaign_run_emits_campaign_and_message_events() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all(&ana);
    ana.profile();
    ana.contacts(3);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let id = json!(campaign);
    assert_eq!(wait_for_event(&ana, "campaign.started", "id", &id)["recipients"], 3);
    assert_eq!(wait_for_event(&ana, "campaign.finished", "id", &id)["sent"], 3);
    for send in ana.sends(&campaign) {
        for status in ["sent", "read"] {
            let data = wait_for_event(&ana, &format!("message.{status}"), "id", &send["id"]);
            assert_eq!((&data["campaign_id"], &data["contact_id"]), (&id, &send["contact_id"]));
            assert_eq!(
                (&data["status"], &data["wa_message_id"]),
                (&json!(status), &send["wa_message_id"])
            );
        }
    }
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for event in feed(&ana) {
        *counts
            .entry((text(&event["type"]), event["data"]["id"].to_string()))
            .or_default() += 1;
    }
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    let later = ana.plain_campaign();
    let at = "2099-01-01T00:00:00Z";
    ana.post(
        &format!("/api/campaigns/{later}/schedule"),
        json!({ "scheduled_at": at }),
    )
    .ok();
    ana.cancel(&later).ok();
    assert_eq!(
        wait_for_event(&ana, "campaign.cancelled", "id", &json!(later))["previous_status"],
        "scheduled"
    );
}

#[test]
fn inbound_message_and_opt_out_emit_events() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all(&ana);
    ana.profile_at(NUMBER);
    server.whatsapp.inbound(&Inbound::text(NUMBER, SENDER, "oi"));
    let message = wait_for_event(&ana, "message.received", "text", &json!("oi"));
    let contact = wait_for_event(&ana, "contact.created", "phone", &json!(SENDER));
    assert_eq!(message["contact_id"], contact["id"]);
    let conversation = ana.get("/api/conversations").ok()["data"][0].take();
    assert_eq!(message["conversation_id"], conversation["id"]);
    server.whatsapp.inbound(&Inbound::text(NUMBER, SENDER, "SAIR"));
    wait_for_event(&ana, "message.received", "text", &json!("SAIR"));
    let opt_out = eventually("the opt-out is in the feed", || {
        let updated = feed(&ana)
            .into_iter()
            .filter(|event| event["type"] == "contact.updated");
        updated
            .map(|event| event["data"].clone())
            .find(|data| !data["opted_out_at"].is_null())
    });
    assert_eq!(opt_out["id"], contact["id"]);
    let reply = ana.post(
        &format!("/api/conversations/{}/messages", text(&conversation["id"])),
        json!({ "text": "certo" }),
    );
    let reply = reply.created();
    let sent = wait_for_event(&ana, "message.sent", "id", &reply["id"]);
    assert_eq!(
        (&sent["conversation_id"], &sent["campaign_id"]),
        (&conversation["id"], &Value::Null)
    );
}

#[test]
fn template_and_subscription_changes_emit_events() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all(&ana);
    ana.profile();
    let template = ana.template("oferta", "Oi {{1}}, tudo bem?", &["Ana"]);
    ana.post(&format!("/api/templates/{template}/submit"), json!({})).ok();
    let pending = wait_for_event(&ana, "template.status_changed", "status", &json!("pending"));
    assert_eq!(
        (&pending["id"], &pending["previous_status"]),
        (&json!(template), &json!("draft"))
    );
    let approved = wait_for_event(&ana, "template.status_changed", "status", &json!("approved"));
    assert_eq!(
        (&approved["id"], &approved["previous_status"]),
        (&json!(template), &json!("pending"))
    );
    let made = subscribe(&ana, card_order("4000000000001234", "987")).created();
    let active = wait_for_event(&ana, "subscription.changed", "status", &json!("active"));
    assert_eq!(active["id"], made["subscription"]["id"]);
    assert_eq!(
        (&active["plan"], &active["previous_status"]),
        (&json!("starter"), &Value::Null)
    );
    ana.post("/api/billing/cancel", json!({})).ok();
    let cancelled = wait_for_event(&ana, "subscription.changed", "status", &json!("cancelled"));
    assert_eq!(
        (&cancelled["id"], &cancelled["previous_status"]),
        (&active["id"], &json!("active"))
    );
}

#[test]
fn import_emits_an_event_for_each_contact() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all(&ana);
    let rows: String = (0..30).map(|n| format!("Ana,{}\n", phone(n))).collect();
    ana.import(format!("name,phone\n{rows}")).ok();
    for n in [0, 29] {
        wait_for_event(&ana, "contact.created", "phone", &json!(phone(n)));
    }
    assert_eq!(feed(&ana).len(), 30);
    ana.import(format!("name,phone\nBia,{}\n", phone(3))).ok();
    assert_eq!(
        wait_for_event(&ana, "contact.updated", "phone", &json!(phone(3)))["name"],
        "Bia"
    );
}
