//! What a run sends is frozen when it starts, whatever becomes of its template; and what a paused run is refused for.

use recado_simulators::whatsapp::{ReceivedRequest, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::runs::{calls, ended, silent};
use crate::harness::users::{User, phone};
use crate::harness::{Server, text, until};

const PEOPLE: usize = 200;

/// The positions of people whose first message WhatsApp refuses: the first ones and the last one.
const REFUSED: [usize; 3] = [0, 1, PEOPLE - 1];

fn act(user: &User<'_>, campaign: &str, action: &str) -> Reply {
    user.command(campaign, action).send()
}

/// A template with a header file, two placeholders and a button with a value; approved.
fn approved(ana: &User<'_>) -> String {
    let body = json!({ "name": "oferta", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
        "header_type": "image", "header_media_url": "https://cdn.example/antes.png",
        "body_text": "Oi {{1}}, use {{2}} hoje.", "example_values": ["Ana", "X5"],
        "buttons": [{ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["antes"] }] });
    let id = text(&ana.post("/api/templates", body).created()["id"]);
    approve(ana, &id);
    id
}

fn approve(ana: &User<'_>, template: &str) {
    set(ana, template, "meta_status = 'approved'");
}

fn set(ana: &User<'_>, template: &str, change: &str) {
    let db = &ana.server.db;
    db.run(&format!(
        "UPDATE message_templates SET {change} WHERE id = '{template}'"
    ));
}

/// A run with a mapping, so slow that it can be paused in its middle, and a few refusals.
fn server() -> Server {
    Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "30"))
}

fn campaign(ana: &User<'_>, template: &str) -> String {
    ana.profile();
    ana.contacts(PEOPLE);
    let refusals = REFUSED.map(|at| {
        let (code, http_status) = (131_026, 400);
        let details = "undeliverable".to_owned();
        WhatsappFault::send_to(
            &phone(at),
            WhatsappFaultKind::Error {
                code,
                http_status,
                details,
            },
        )
    });
    ana.server.whatsapp.script(refusals.into());
    ana.campaign(json!({ "name": "Oferta", "template_id": template, "variables": { "2": "VOLTA" } }))
}

/// Starts the run, and pauses it in its middle.
fn paused(ana: &User<'_>, id: &str) {
    let server = ana.server;
    act(ana, id, "send").ok();
    until("some were sent", || server.whatsapp.sends().len() > 10);
    act(ana, id, "pause").ok();
    until("the worker let go", || {
        server.db.count("FROM campaign_queue WHERE worker IS NOT NULL") == 0
    });
    let sent = server.whatsapp.sends().len();
    assert!(sent < PEOPLE, "the run is over");
}

/// Every message has the content of the start.
#[track_caller]
fn as_at_the_start(sent: &ReceivedRequest) {
    let components = &sent.request.body["template"]["components"];
    let name = components[1]["parameters"][0]["text"].clone();
    assert!(text(&name).starts_with("Contato"), "{components}");
    assert_eq!(
        (sent.template.as_deref(), sent.language.as_deref()),
        (Some("oferta"), Some("pt_BR"))
    );
    assert_eq!(
        *components,
        json!([
            { "type": "header", "parameters": [
                { "type": "image", "image": { "link": "https://cdn.example/antes.png" } }] },
            { "type": "body", "parameters": [
                { "type": "text", "text": name }, { "type": "text", "text": "VOLTA" }] },
            { "type": "button", "sub_type": "url", "index": 0, "parameters": [
                { "type": "text", "text": "antes" }] },
        ])
    );
}

/// The run goes on to its end, and its failed sends are tried again: all as at the start.
fn goes_on_unchanged(ana: &User<'_>, id: &str, change: impl Fn()) {
    let server = ana.server;
    act(ana, id, "resume").ok();
    assert_eq!(ended(ana, id), "partial");
    assert_eq!(ana.stats(id)["failed"], REFUSED.len());
    server.whatsapp.sends().iter().for_each(as_at_the_start);
    change();
    act(ana, id, "retry-failed").ok();
    assert_eq!(ended(ana, id), "completed");
    let sends = server.whatsapp.sends();
    assert_eq!(sends.len(), PEOPLE + REFUSED.len());
    assert_eq!(calls(server).len(), PEOPLE);
    sends.iter().for_each(as_at_the_start);
}

#[test]
fn edited_template_changes_no_message_of_a_started_run() {
    let server = server();
    let ana = server.owner();
    let template = approved(&ana);
    let id = campaign(&ana, &template);
    paused(&ana, &id);
    let path = format!("/api/templates/{template}");
    let edit = |name: &str, body: &str| {
        let change = json!({ "name": name, "header_media_url": "https://cdn.example/depois.png", "body_text": body,
            "example_values": ["Y7", "Bia"], "buttons": [], "footer_text": "Loja", "category": "UTILITY" });
        assert_eq!(ana.put(&path, change).ok()["meta_status"], "draft");
    };
    edit("novidade", "{{1}} para {{2}}, só hoje.");
    goes_on_unchanged(&ana, &id, || {
        // Approved anew, and edited again.
        approve(&ana, &template);
        edit("oferta", "Use {{2}} hoje, {{1}}, e ganhe.");
    });
    // A campaign that starts later sends what is approved then.
    approve(&ana, &template);
    ana.tagged("depois", PEOPLE..PEOPLE + 1);
    let later = json!({ "name": "Depois", "template_id": template,
        "segment_config": { "tag_ids": [text(&ana.get("/api/tags").ok()["data"][0]["id"])] } });
    let later = ana.campaign(later);
    assert_eq!(ana.execute(&later).ok()["sent"], 1);
    let sends = server.whatsapp.sends();
    let last = &sends[sends.len() - 1];
    assert_eq!(last.parameters, ["https://cdn.example/depois.png", "C", "Bia"]);
}

#[test]
fn deleted_template_changes_no_message_of_a_started_run() {
    let server = server();
    let ana = server.owner();
    let template = approved(&ana);
    let id = campaign(&ana, &template);
    paused(&ana, &id);
    ana.delete(&format!("/api/templates/{template}")).gone();
    goes_on_unchanged(&ana, &id, || {
        // Another one of the same name has nothing to do with it.
        ana.template("oferta", "Tchau", &[]);
    });
}

#[test]
fn resume_refuses_what_execute_refuses() {
    let server = server();
    let (ana, db) = (server.owner(), &server.db);
    let template = approved(&ana);
    let id = campaign(&ana, &template);
    paused(&ana, &id);
    let before = server.whatsapp.sends().len();
    let refused = |reason: &str| {
        let error = act(&ana, &id, "resume").refused(400, "VALIDATION_ERROR");
        assert_eq!(error["details"]["reason"], reason, "{error}");
        let stored = ana.get(&format!("/api/campaigns/{id}")).ok();
        assert_eq!(stored["status"], "sending");
        assert!(stored["paused_at"].is_string(), "{stored}");
        error
    };
    for status in ["pending", "rejected", "paused", "disabled"] {
        set(&ana, &template, &format!("meta_status = '{status}'"));
        refused("template_not_approved");
    }
    set(
        &ana,
        &template,
        "meta_status = 'approved', unsupported = '[\"unsupported_button:flow\"]'",
    );
    let error = refused("template_not_sendable");
    assert_eq!(error["details"]["reasons"], json!(["unsupported_button:flow"]));
    set(&ana, &template, "unsupported = '[]'");

    let account = &ana.account;
    db.run(&format!(
        "UPDATE accounts SET plan = 'starter' WHERE id = '{account}';
         INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, current_period_end, lapsed_at)
           VALUES ('{account}', '{}', 'starter', 'MONTHLY', 'inactive', 'PIX', 9700, now() + interval '1 day', now())",
        Uuid::now_v7()
    ));
    refused("no_active_plan");
    db.run(&format!(
        "DELETE FROM subscriptions; UPDATE accounts SET plan = 'free' WHERE id = '{account}'"
    ));

    // The run's own messages are in the month already: 250 fit, and so they do not any more.
    let used = |more: i64| {
        db.run(&format!(
            "UPDATE message_usage_slots SET test_sends = {more} WHERE slot = 0"
        ));
    };
    used(60);
    let error = refused("quota_exceeded");
    assert!(text(&error["message"]).contains("250"), "{error}");
    used(0);

    let run_number = |profile: &str| {
        db.run(&format!(
            "UPDATE campaigns SET profile_id = {profile} WHERE id = '{id}'"
        ))
    };
    run_number("NULL");
    refused("number_not_connected");
    run_number("(SELECT id FROM whatsapp_profiles)");

    assert_eq!(server.whatsapp.sends().len(), before);
    let resumed = act(&ana, &id, "resume").ok();
    assert_eq!(
        (&resumed["paused_at"], &resumed["pause_reason"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(ended(&ana, &id), "partial");
    assert_eq!(calls(&server).len(), PEOPLE);
}

#[test]
fn run_started_before_the_freeze_existed_goes_on_and_is_frozen_then() {
    let server = server();
    let ana = server.owner();
    let template = approved(&ana);
    let id = campaign(&ana, &template);
    paused(&ana, &id);
    // As an older version left it.
    server.db.run("DELETE FROM campaign_run_contents");
    set(&ana, &template, "meta_status = 'draft'");
    let error = act(&ana, &id, "resume").refused(400, "VALIDATION_ERROR");
    assert_eq!(error["details"]["reason"], "template_not_approved");
    approve(&ana, &template);
    goes_on_unchanged(&ana, &id, || {
        ana.delete(&format!("/api/templates/{template}")).gone();
    });
}
