//! Template synchronisation: imports every template from WhatsApp and overwrites no draft.

use recado_simulators::whatsapp::{On, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::users::phone;
use crate::harness::{Options, Server, text, until};

fn sync(user: &User<'_>) -> Value {
    user.request("POST", "/api/templates/sync").send().ok()
}

fn report(created: u32, updated: u32, unchanged: u32) -> Value {
    json!({ "created": created, "updated": updated, "unchanged": unchanged })
}

fn add_remote_template(server: &Server, number: usize) -> String {
    server.whatsapp.add_template(
        &json!({ "name": format!("r{number:03}"), "language": "pt_BR", "category": "UTILITY",
        "components": [
            { "type": "HEADER", "format": "TEXT", "text": "Pedido {{1}}", "example": { "header_text": ["77"] } },
            { "type": "BODY", "text": "Oi {{1}}, chegou.", "example": { "body_text": [["Ana"]] } },
            { "type": "FOOTER", "text": "Loja" } ] }),
    )
}

#[test]
fn sync_imports_three_pages_and_preserves_drafts() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(
        ana.request("POST", "/api/templates/sync").send().invalid(),
        ["profile_id"]
    );
    let profile = ana.profile();
    let calls = server.whatsapp.ledger().len();
    let ids: Vec<String> = (0..205).map(|number| add_remote_template(&server, number)).collect();
    let draft = ana.template("r007", "Escrito aqui {{1}}!", &["Ana"]);
    assert_eq!(sync(&ana), report(204, 1, 0));
    let pages = server.whatsapp.ledger().len() - calls;
    assert_eq!(pages, 3);
    let found = ana.get("/api/templates?search=r008").ok()["data"][0].take();
    assert_eq!(
        (&found["meta_status"], &found["category"]),
        (&json!("approved"), &json!("UTILITY"))
    );
    assert_eq!(
        (&found["header_text"], &found["body_text"]),
        (&json!("Pedido {{1}}"), &json!("Oi {{2}}, chegou."))
    );
    assert_eq!(
        (&found["variables"], &found["footer_text"]),
        (&json!(["77", "Ana"]), &json!("Loja"))
    );
    assert_eq!(
        (&found["meta_template_id"], &found["profile_id"]),
        (&json!(ids[8]), &json!(profile))
    );
    let stored_draft = ana.get(&format!("/api/templates/{draft}")).ok();
    assert_eq!(
        (&stored_draft["meta_status"], &stored_draft["body_text"]),
        (&json!("draft"), &json!("Escrito aqui {{1}}!"))
    );
    assert_eq!(stored_draft["meta_template_id"], json!(ids[7]));
    assert_eq!(sync(&ana), report(0, 0, 205));
    // The draft now has the id of WhatsApp's template, so a submission edits that template.
    server.whatsapp.set_template_status(&ids[7], "REJECTED", None);
    assert!(server.whatsapp.wait_idle(crate::harness::DEADLINE));
    let submitted = ana
        .request("POST", &format!("/api/templates/{draft}/submit"))
        .send()
        .ok();
    assert_eq!(text(&submitted["meta_template_id"]), ids[7]);
}

#[test]
fn failed_sync_stores_no_template() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    for number in 0..105 {
        add_remote_template(&server, number);
    }
    for kind in [
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::Throttle,
    ] {
        server.whatsapp.script(vec![WhatsappFault::of(On::List, kind)]);
        let refused = ana.request("POST", "/api/templates/sync").send();
        refused.refused(502, "WHATSAPP_ERROR");
        assert_eq!(server.db.count("FROM message_templates"), 0);
    }
    assert_eq!(sync(&ana), report(105, 0, 0));
}

#[test]
fn sync_of_unknown_number_is_refused() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    add_remote_template(&server, 1);
    let (own, foreign) = (ana.profile(), bia.profile());
    let body = |profile: &str| json!({ "profile_id": profile });
    assert_eq!(
        ana.post("/api/templates/sync", body(&foreign)).invalid(),
        ["profile_id"]
    );
    assert_eq!(ana.post("/api/templates/sync", body("7")).invalid(), ["profile_id"]);
    assert_eq!(ana.post("/api/templates/sync", body(&own)).ok(), report(1, 0, 0));
    assert_eq!(bia.get("/api/templates").ok()["total"], 0);
}

#[test]
fn later_sync_refreshes_the_content() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let add = |body: &str, examples: Value, buttons: Value| {
        server
            .whatsapp
            .add_template(&json!({ "name": "oferta", "language": "pt_BR", "category": "MARKETING",
            "components": [{ "type": "BODY", "text": body, "example": { "body_text": [examples] } },
                { "type": "BUTTONS", "buttons": buttons }] }));
    };
    let button = |label: &str| json!([{ "type": "QUICK_REPLY", "text": label }]);
    add("Oi {{1}}!", json!(["Ana"]), button("Sim"));
    assert_eq!(sync(&ana), report(1, 0, 0));
    assert_eq!(sync(&ana), report(0, 0, 1));
    add("Oi {{1}}, use {{2}} hoje.", json!(["Bia", "X5"]), button("Quero"));
    assert_eq!(sync(&ana), report(0, 1, 0));
    let found = ana.get("/api/templates?search=oferta").ok()["data"][0].take();
    assert_eq!(
        (
            &found["body_text"],
            &found["variables"],
            &found["buttons"],
            &found["sendable"]
        ),
        (
            &json!("Oi {{1}}, use {{2}} hoje."),
            &json!(["Bia", "X5"]),
            &button("Quero"),
            &json!(true)
        )
    );
    add(
        "Oi!",
        json!([]),
        json!([{ "type": "FLOW", "text": "Agendar", "flow_id": "7" }]),
    );
    assert_eq!(sync(&ana), report(0, 1, 0));
    let found = ana.get("/api/templates?search=oferta").ok()["data"][0].take();
    assert_eq!(
        (&found["variables"], &found["reasons"]),
        (&json!([]), &json!(["unsupported_button:flow"]))
    );
}

/// The runs wait in the queue: without workers, no call to WhatsApp pauses them first.
#[test]
fn sync_of_a_stopped_template_pauses_its_campaigns() {
    let server = Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..Options::default()
    });
    let ana = server.owner();
    ana.profile();
    ana.contacts(2);
    for (status, reason) in [("PAUSED", "paused"), ("DISABLED", "disabled")] {
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        let name = text(&ana.get(&format!("/api/templates/{template}")).ok()["name"]);
        let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
        let other_campaign = ana.plain_campaign();
        for id in [&campaign, &other_campaign] {
            ana.send(id);
        }
        server.whatsapp.add_template(
            &json!({ "name": name, "language": "pt_BR", "category": "UTILITY", "status": status,
            "components": [{ "type": "BODY", "text": "Oi {{1}}", "example": { "body_text": [["Ana"]] } }] }),
        );
        sync(&ana);
        assert_eq!(
            ana.get(&format!("/api/templates/{template}")).ok()["meta_status"],
            reason
        );
        let paused_campaign = ana.get(&format!("/api/campaigns/{campaign}")).ok();
        assert_eq!(
            (&paused_campaign["status"], &paused_campaign["pause_reason"]),
            (&json!("sending"), &json!(format!("WhatsApp has {reason} the template")))
        );
        assert_eq!(
            ana.get(&format!("/api/campaigns/{other_campaign}")).ok()["paused_at"],
            json!(null)
        );
    }
    let notifications = ana.get("/api/notifications").ok();
    let rows = notifications["data"].as_array().unwrap();
    let paused = rows
        .iter()
        .filter(|row| text(&row["title"]).starts_with("Campaign paused: "));
    assert_eq!(paused.count(), 2, "{rows:?}");
}

#[test]
fn send_rejection_updates_the_template_status() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(1);
    for (code, status) in [(132_015, "paused"), (132_016, "disabled")] {
        let error = WhatsappFaultKind::error(code, "The template is stopped.");
        server.whatsapp.script(vec![WhatsappFault::send_to(&phone(0), error)]);
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        let id = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
        assert_eq!(ana.execute(&id).ok()["paused"], true);
        let stored = ana.get(&format!("/api/templates/{template}")).ok();
        assert_eq!(stored["meta_status"], status);
        until("a notification is stored", || {
            let notifications = format!("FROM notifications WHERE title LIKE 'Template {status}: %'");
            server.db.count(&notifications) == 1
        });
    }
}
