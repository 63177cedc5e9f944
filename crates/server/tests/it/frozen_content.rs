//! Run content: a run copies template and mapping when it starts, so later template changes do not affect it.
//! Also: the preconditions of resuming a paused run.

use recado_simulators::whatsapp::{ReceivedRequest, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::runs::{calls, final_status, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, text, until};

const RECIPIENTS: usize = 1_000;

/// The positions of the contacts whose first message WhatsApp refuses.
const REFUSED: [usize; 3] = [0, 1, RECIPIENTS - 1];

fn run_command(user: &User<'_>, campaign: &str, action: &str) -> Reply {
    user.command(campaign, action).send()
}

/// Creates an approved template with a header file, two placeholders and a button with a placeholder.
fn approved_template(ana: &User<'_>) -> String {
    let body = json!({ "name": "oferta", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
        "header_type": "image", "header_media_url": "https://cdn.example/antes.png",
        "body_text": "Oi {{1}}, use {{2}} hoje.", "example_values": ["Ana", "X5"],
        "buttons": [{ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["antes"] }] });
    let id = text(&ana.post("/api/templates", body).created()["id"]);
    approve(ana, &id);
    id
}

fn approve(ana: &User<'_>, template: &str) {
    update_template(ana, template, "meta_status = 'approved'");
}

fn update_template(ana: &User<'_>, template: &str, change: &str) {
    let db = &ana.server.db;
    db.run(&format!(
        "UPDATE message_templates SET {change} WHERE id = '{template}'"
    ));
}

/// A server that sends so slowly that a run can be paused halfway.
fn slow_server() -> Server {
    Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "6"))
}

/// A campaign with a mapping. WhatsApp refuses the first message of the contacts in `REFUSED`.
fn campaign_with_refusals(ana: &User<'_>, template: &str) -> String {
    ana.server.db.run("UPDATE accounts SET plan = 'growth'");
    ana.profile();
    ana.contacts(RECIPIENTS);
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

/// Starts the run and pauses it halfway.
fn start_and_pause(ana: &User<'_>, id: &str) {
    let server = ana.server;
    run_command(ana, id, "send").ok();
    until("some were sent", || server.whatsapp.sends().len() > 10);
    run_command(ana, id, "pause").ok();
    until("the worker released the run", || {
        server.db.count("FROM campaign_queue WHERE worker IS NOT NULL") == 0
    });
    let sent = server.whatsapp.sends().len();
    assert!(sent < RECIPIENTS, "the run is over");
}

/// Asserts that the message has the content of the run's start.
#[track_caller]
fn assert_content_of_start(sent: &ReceivedRequest) {
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

/// Resumes the run to its end, applies `change` and retries the failed sends. Asserts that every message has the
/// content of the start.
fn assert_run_keeps_content(ana: &User<'_>, id: &str, change: impl Fn()) {
    let server = ana.server;
    run_command(ana, id, "resume").ok();
    assert_eq!(final_status(ana, id), "partial");
    assert_eq!(ana.stats(id)["failed"], REFUSED.len());
    server.whatsapp.sends().iter().for_each(assert_content_of_start);
    change();
    run_command(ana, id, "retry-failed").ok();
    assert_eq!(final_status(ana, id), "completed");
    let sends = server.whatsapp.sends();
    assert_eq!(sends.len(), RECIPIENTS + REFUSED.len());
    assert_eq!(calls(server).len(), RECIPIENTS);
    sends.iter().for_each(assert_content_of_start);
}

#[test]
fn edited_template_changes_no_message_of_a_started_run() {
    let server = slow_server();
    let ana = server.owner();
    let template = approved_template(&ana);
    let id = campaign_with_refusals(&ana, &template);
    start_and_pause(&ana, &id);
    let path = format!("/api/templates/{template}");
    let edit = |name: &str, body: &str| {
        let change = json!({ "name": name, "header_media_url": "https://cdn.example/depois.png", "body_text": body,
            "example_values": ["Y7", "Bia"], "buttons": [], "footer_text": "Loja", "category": "UTILITY" });
        assert_eq!(ana.put(&path, change).ok()["meta_status"], "draft");
    };
    edit("novidade", "{{1}} para {{2}}, só hoje.");
    assert_run_keeps_content(&ana, &id, || {
        // Approves the template again and edits it again.
        approve(&ana, &template);
        edit("oferta", "Use {{2}} hoje, {{1}}, e ganhe.");
    });
    // A campaign that starts later sends the content approved at that time.
    approve(&ana, &template);
    ana.tagged("depois", RECIPIENTS..RECIPIENTS + 1);
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
    let server = slow_server();
    let ana = server.owner();
    let template = approved_template(&ana);
    let id = campaign_with_refusals(&ana, &template);
    start_and_pause(&ana, &id);
    ana.delete(&format!("/api/templates/{template}")).no_content();
    assert_run_keeps_content(&ana, &id, || {
        // A new template of the same name does not affect the run.
        ana.template("oferta", "Tchau", &[]);
    });
}

#[test]
fn resume_refuses_what_execute_refuses() {
    let server = slow_server();
    let (ana, db) = (server.owner(), &server.db);
    let template = approved_template(&ana);
    let id = campaign_with_refusals(&ana, &template);
    start_and_pause(&ana, &id);
    let before = server.whatsapp.sends().len();
    let refused = |reason: &str| {
        let error = run_command(&ana, &id, "resume").refused(400, "VALIDATION_ERROR");
        assert_eq!(error["details"]["reason"], reason, "{error}");
        let stored = ana.get(&format!("/api/campaigns/{id}")).ok();
        assert_eq!(stored["status"], "sending");
        assert!(stored["paused_at"].is_string(), "{stored}");
        error
    };
    for status in ["pending", "rejected", "paused", "disabled"] {
        update_template(&ana, &template, &format!("meta_status = '{status}'"));
        refused("template_not_approved");
    }
    update_template(
        &ana,
        &template,
        "meta_status = 'approved', unsupported = '[\"unsupported_button:flow\"]'",
    );
    let error = refused("template_not_sendable");
    assert_eq!(error["details"]["reasons"], json!(["unsupported_button:flow"]));
    update_template(&ana, &template, "unsupported = '[]'");

    let account = &ana.account;
    db.run(&format!(
        "UPDATE accounts SET plan = 'starter' WHERE id = '{account}';
         INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, current_period_end, lapsed_at)
           VALUES ('{account}', '{}', 'starter', 'MONTHLY', 'inactive', 'PIX', 9700, now() + interval '1 day', now())",
        Uuid::now_v7()
    ));
    refused("no_active_plan");
    db.run(&format!(
        "DELETE FROM subscriptions; UPDATE accounts SET plan = 'growth' WHERE id = '{account}'"
    ));

    // The month already counts the run's own messages. With 60 more, the plan's 30,000 are exceeded.
    let use_quota = |messages: usize| {
        db.run(&format!(
            "UPDATE message_usage_slots SET test_sends = {messages} WHERE slot = 0"
        ));
    };
    let room_for_the_run = 30_000 - RECIPIENTS;
    use_quota(room_for_the_run + 60);
    let error = refused("quota_exceeded");
    assert!(text(&error["message"]).contains("30000"), "{error}");
    use_quota(room_for_the_run);

    let set_profile = |profile: &str| {
        db.run(&format!(
            "UPDATE campaigns SET profile_id = {profile} WHERE id = '{id}'"
        ))
    };
    set_profile("NULL");
    refused("number_not_connected");
    set_profile("(SELECT id FROM whatsapp_profiles)");

    assert_eq!(server.whatsapp.sends().len(), before);
    let resumed = run_command(&ana, &id, "resume").ok();
    assert_eq!(
        (&resumed["paused_at"], &resumed["pause_reason"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(final_status(&ana, &id), "partial");
    assert_eq!(calls(&server).len(), RECIPIENTS);
}

#[test]
fn run_without_stored_content_is_frozen_when_resumed() {
    let server = slow_server();
    let ana = server.owner();
    let template = approved_template(&ana);
    let id = campaign_with_refusals(&ana, &template);
    start_and_pause(&ana, &id);
    // A run that an older version started has no stored content.
    server.db.run("DELETE FROM campaign_run_contents");
    update_template(&ana, &template, "meta_status = 'draft'");
    let error = run_command(&ana, &id, "resume").refused(400, "VALIDATION_ERROR");
    assert_eq!(error["details"]["reason"], "template_not_approved");
    approve(&ana, &template);
    assert_run_keeps_content(&ana, &id, || {
        ana.delete(&format!("/api/templates/{template}")).no_content();
    });
}
