//! Previews: the recipients, messages and refusals of a run, computed without changing data.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::runs::{final_status, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, text};

fn request_preview(user: &User<'_>, campaign: &str) -> Reply {
    user.request("POST", &format!("/api/campaigns/{campaign}/preview"))
        .send()
}

fn preview(user: &User<'_>, campaign: &str) -> Value {
    request_preview(user, campaign).ok()
}

fn reasons(preview: &Value) -> Vec<String> {
    let refusals = preview["refusals"].as_array().unwrap();
    refusals.iter().map(|refusal| text(&refusal["reason"])).collect()
}

/// All tables but `users`, which every authenticated request may change.
fn dump_tables(server: &Server) -> BTreeMap<String, String> {
    // The notification about a new number is moved later.
    server.db.wait_for_outbox();
    let mut tables = server.db.dump();
    tables.remove("users");
    tables
}

#[test]
fn preview_shows_the_count_and_first_messages_as_sent() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(5);
    let body = json!({ "name": "oferta", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
        "header_type": "text", "header_text": "Olá {{1}}", "body_text": "{{1}}, use {{2}} hoje.",
        "footer_text": "Responda SAIR", "example_values": ["Ana", "PROMO10"],
        "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" },
                    { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["abc"] }] });
    let template = text(&ana.post("/api/templates", body).created()["id"]);
    server.db.run("UPDATE message_templates SET meta_status = 'approved'");
    let variables = json!({ "1": "{name|cliente}", "2": "{attributes.cupom|NATAL}" });
    let id = ana.campaign(json!({ "name": "Oferta", "template_id": template, "variables": variables }));
    let shown = preview(&ana, &id);
    assert_eq!(shown["recipients"], 5);
    assert_eq!(shown["refusals"], json!([]));
    let messages = shown["messages"].as_array().unwrap().clone();
    let first = server
        .db
        .rows("SELECT id, name, phone FROM contacts ORDER BY id LIMIT 3");
    assert_eq!((messages.len(), first.len()), (3, 3));
    for (message, row) in messages.iter().zip(&first) {
        let [id, name, phone] = [0, 1, 2].map(|at| row[at].clone().unwrap());
        let expected = json!({
            "contact": { "id": id, "name": name, "phone": phone },
            "header_type": "text", "header": format!("Olá {name}"), "header_media_url": null,
            "header_location": null, "limited_time_offer": null, "body": format!("{name}, use NATAL hoje."), "footer": "Responda SAIR",
            "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" },
                        { "type": "URL", "text": "Ver", "url": "https://l.example/abc" }],
            "cards": [] });
        assert_eq!(message, &expected);
    }
    // WhatsApp gets the messages of the preview.
    assert_eq!(ana.execute(&id).ok()["total"], 5);
    let sends = server.whatsapp.sends();
    for message in &messages {
        let (name, to) = (text(&message["contact"]["name"]), text(&message["contact"]["phone"]));
        let send = sends
            .iter()
            .find(|send| send.to.as_deref().is_some_and(|sent| to.ends_with(sent)))
            .unwrap();
        assert_eq!(send.parameters, [name.as_str(), name.as_str(), "NATAL", "abc"]);
    }
}

#[test]
fn whitespace_is_collapsed_alike_in_preview_test_and_run() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let (to, address) = (phone(7), "Rua A\nCasa     2\t\u{2028}\u{a0}fundos");
    let body = json!({ "name": "Bia Lima", "phone": to, "attributes": { "address": address } });
    ana.post("/api/contacts", body).created();
    let template = ana.approved("{{1}}, entregamos em {{2}}.", &["Ana", "casa"]);
    let campaign = |mapping: &str| json!({ "name": "Oferta", "template_id": template, "variables": { "2": mapping } });
    let line_break = ana.campaign(campaign("\n"));
    let empty = ana.execute(&line_break).refused(400, "VALIDATION_ERROR");
    assert_eq!(empty["details"]["reason"], "placeholder_empty", "{empty}");
    let id = ana.campaign(campaign("nada"));
    let mapping = json!({ "variables": { "2": "\u{7f}{attributes.address|na\n\tda}\r" } });
    ana.put(&format!("/api/campaigns/{id}"), mapping).ok();
    let shown = preview(&ana, &id);
    let bodies: Vec<String> = shown["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| text(&m["body"]))
        .collect();
    assert!(bodies.iter().all(|body| !body.contains(['\n', '\t'])), "{bodies:?}");
    ana.post(&format!("/api/campaigns/{id}/test"), json!({ "phone": to }))
        .ok();
    assert_eq!(server.whatsapp.sends()[0].parameters, ["Bia", "Rua A Casa 2 fundos"]);
    // The simulator rejects a value with raw whitespace with 132018.
    assert_eq!(ana.execute(&id).ok()["sent"], 4);
    let sends = server.whatsapp.sends();
    let run: Vec<_> = sends[1..].iter().map(|send| send.parameters[1].as_str()).collect();
    assert_eq!(run.iter().filter(|value| **value == "Rua A Casa 2 fundos").count(), 1);
    assert_eq!(run.iter().filter(|value| **value == "na da").count(), 3);
}

#[test]
fn preview_changes_no_data_in_any_status() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let viewer = server.member(&ana.account, "viewer");
    ana.contacts(3);
    let id = ana.plain_campaign();
    preview(&viewer, &id);
    server.db.wait_for_outbox();
    for status in [
        "draft",
        "scheduled",
        "sending",
        "cancelled",
        "completed",
        "partial",
        "sent",
    ] {
        // No worker runs the campaign: it has no queue entry.
        server.db.run(&format!("UPDATE campaigns SET status = '{status}'"));
        let before = dump_tables(&server);
        for user in [&ana, &viewer] {
            let shown = preview(user, &id);
            assert_eq!(
                (&shown["recipients"], shown["messages"].as_array().unwrap().len()),
                (&json!(3), 3)
            );
            let expected: &[&str] = match status {
                "draft" | "scheduled" => &[],
                _ => &["status"],
            };
            assert_eq!(reasons(&shown), expected, "{status}");
        }
        assert_eq!(dump_tables(&server), before, "{status}");
    }
    assert!(server.whatsapp.ledger().is_empty());
}

#[test]
fn preview_lists_every_refusal_of_a_run() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let template = ana.approved("Oi {{1}}, use {{2}} e {{3}}.", &["Ana", "A", "B"]);
    let variables = json!({ "2": "{attributes.cupom}", "3": "{email}" });
    let segment = text(&ana.post("/api/segments", json!({ "name": "Frios" })).created()["id"]);
    let body = json!({ "name": "Oferta", "template_id": template, "variables": variables, "segment_id": segment });
    let id = ana.campaign(body);
    // `execute` reports the first refusal. The test resolves one after the other.
    let assert_refusals = |expected: &[&str]| {
        let shown = preview(&ana, &id);
        assert_eq!(reasons(&shown), expected, "{shown}");
        let refusals = shown["refusals"].as_array().unwrap().clone();
        let error = ana.execute(&id).refused(400, "VALIDATION_ERROR");
        assert_eq!(refusals[0]["message"], error["message"]);
    };
    server.db.run("UPDATE message_templates SET meta_status = 'paused'");
    ana.delete(&format!("/api/segments/{segment}")).no_content();
    assert_refusals(&["template_not_approved", "segment_deleted", "no_recipients"]);
    server.db.run("UPDATE message_templates SET meta_status = 'approved'");
    assert_refusals(&["segment_deleted", "no_recipients"]);
    ana.put(&format!("/api/campaigns/{id}"), json!({ "segment_id": null }))
        .ok();
    assert_refusals(&["no_recipients"]);
    ana.contacts(3);
    server.db.run(
        "INSERT INTO message_usage_slots (account_id, month, sent)
         SELECT id, date_trunc('month', now() AT TIME ZONE 'UTC')::date, 248 FROM accounts",
    );
    assert_refusals(&["placeholder_empty", "placeholder_empty", "quota_exceeded"]);
    let shown = preview(&ana, &id);
    let message = |at: usize| text(&shown["refusals"][at]["message"]);
    assert!(message(0).contains("{{2}}") && message(1).contains("{{3}}"), "{shown}");
    assert!(message(2).contains("2 of this month's 250 are left"), "{shown}");
    server
        .db
        .run("UPDATE contacts SET email = 'x@example.com', attributes = '{\"cupom\":\"A\"}'");
    assert_refusals(&["quota_exceeded"]);
}

#[test]
fn preview_reports_missing_template_plan_and_sent_status() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.contacts(2);
    let without_template = ana.campaign(json!({ "name": "Sem modelo" }));
    let shown = preview(&ana, &without_template);
    assert_eq!((&shown["recipients"], &shown["messages"]), (&json!(2), &json!([])));
    assert_eq!(reasons(&shown), ["no_template"]);
    let id = ana.plain_campaign();
    server.db.run("UPDATE accounts SET plan = 'gone'");
    assert_eq!(reasons(&preview(&ana, &id)), ["no_active_plan"]);
    server.db.run("UPDATE accounts SET plan = 'free'");
    ana.execute(&id).ok();
    assert_eq!(final_status(&ana, &id), "sent");
    let shown = preview(&ana, &id);
    assert_eq!(reasons(&shown), ["status"]);
    assert_eq!(
        shown["refusals"][0]["message"],
        "a campaign in status sent cannot be sent"
    );
    // The preview counts contacts that were created after the run.
    ana.contact("Nova", &phone(77));
    assert_eq!(preview(&ana, &id)["recipients"], 3);
}

#[test]
fn preview_of_another_accounts_campaign_is_not_found() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    bia.contacts(1);
    let id = bia.plain_campaign();
    request_preview(&ana, &id).refused(404, "NOT_FOUND");
    bia.delete(&format!("/api/campaigns/{id}")).no_content();
    request_preview(&bia, &id).refused(404, "NOT_FOUND");
    request_preview(&ana, "7").invalid();
}
