//! Submission of templates to WhatsApp: the review status arrives by callback, and decides which changes are allowed.

use recado_simulators::whatsapp::{Approval, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};

fn submit(user: &User<'_>, id: &str) -> crate::harness::client::Reply {
    user.request("POST", &format!("/api/templates/{id}/submit")).send()
}

fn get(user: &User<'_>, id: &str) -> Value {
    user.get(&format!("/api/templates/{id}")).ok()
}

fn wait_for_status(user: &User<'_>, id: &str, status: &str) -> Value {
    eventually(&format!("the template is {status}"), || {
        Some(get(user, id)).filter(|template| template["meta_status"] == status)
    })
}

fn manual_review() -> Options {
    Options::with_whatsapp(|whatsapp| whatsapp.template_approval = Approval::Manual)
}

#[test]
fn submit_without_a_number_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    assert_eq!(submit(&ana, &id).invalid(), ["profile_id"]);
    assert_eq!(get(&ana, &id)["meta_status"], "draft");
    assert!(server.whatsapp.ledger().is_empty());
}

#[test]
fn signed_callback_approves_a_submitted_template() {
    let server = Server::new();
    let ana = server.owner();
    let profile = ana.profile();
    let body = json!({ "name": "oferta", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
        "header_type": "text", "header_text": "Oi {{1}}", "body_text": "Olá {{1}}, use {{2}} hoje.",
        "footer_text": "Responda SAIR", "example_values": ["Ana", "PROMO10"],
        "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" }] });
    let id = text(&ana.post("/api/templates", body).created()["id"]);
    let response = submit(&ana, &id).ok();
    assert_eq!(
        (&response["status"], &response["category"]),
        (&json!("PENDING"), &json!("MARKETING"))
    );
    assert_eq!(response.as_object().unwrap().len(), 3);

    let approved = wait_for_status(&ana, &id, "approved");
    assert_eq!(approved["meta_template_id"], response["meta_template_id"]);
    assert_eq!(approved["profile_id"], json!(profile));
    let sent = server
        .whatsapp
        .ledger()
        .into_iter()
        .find(|call| call.request.path.ends_with("/message_templates"));
    let sent = sent.unwrap().request.body;
    let components = sent["components"].as_array().unwrap();
    let kinds: Vec<&str> = components
        .iter()
        .map(|component| component["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["HEADER", "BODY", "FOOTER", "BUTTONS"]);
    assert_eq!(components[1]["example"]["body_text"], json!([["Ana", "PROMO10"]]));
    until("the notification", || {
        server
            .db
            .count("FROM notifications WHERE type = 'info' AND title LIKE 'Template%'")
            == 1
    });
    assert_eq!(submit(&ana, &id).invalid(), ["meta_status"]);
}

#[test]
fn rejected_template_has_a_reason_and_can_be_edited() {
    let server = Server::start(Options::with_whatsapp(|whatsapp| {
        whatsapp.template_approval = Approval::Reject {
            after_ms: 20,
            reason: "INVALID_FORMAT".into(),
        };
    }));
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    submit(&ana, &id).ok();
    assert_eq!(
        wait_for_status(&ana, &id, "rejected")["rejection_reason"],
        "INVALID_FORMAT"
    );
    let edited = ana
        .put(&format!("/api/templates/{id}"), json!({ "body_text": "Olá {{1}}!" }))
        .ok();
    assert_eq!(
        (&edited["meta_status"], &edited["rejection_reason"]),
        (&json!("draft"), &json!(null))
    );
    server
        .whatsapp
        .set_options(|whatsapp| whatsapp.template_approval = Approval::Approve { after_ms: 20 });
    submit(&ana, &id).ok();
    wait_for_status(&ana, &id, "approved");
}

#[test]
fn submit_error_reports_the_whatsapp_code() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    let details = "Message template limit reached.";
    server
        .whatsapp
        .script(vec![WhatsappFault::template(WhatsappFaultKind::error(
            2_388_019, details,
        ))]);
    let error = submit(&ana, &id).refused(502, "WHATSAPP_ERROR");
    assert_eq!(error["details"]["code"], 2_388_019, "{error}");
    assert!(
        error["details"]["message"]
            .as_str()
            .is_some_and(|m| m.contains("limit")),
        "{error}"
    );
    assert_eq!(get(&ana, &id)["meta_status"], "draft");

    for fault in [
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::AcceptThenReset,
    ] {
        let id = ana.template(&format!("t{}", uuid::Uuid::new_v4().simple()), "Oi", &[]);
        server.whatsapp.script(vec![WhatsappFault::template(fault.clone())]);
        let reply = submit(&ana, &id);
        assert_eq!(reply.status, 502, "{fault:?}: {}", reply.text);
        reply.refused(502, "WHATSAPP_ERROR");
        assert_eq!(get(&ana, &id)["meta_status"], "draft");
    }
    submit(&ana, &id).ok();
}

#[test]
fn submit_without_reachable_whatsapp_returns_502() {
    for url in ["http://127.0.0.1:9/v25.0", ""] {
        let server = Server::start(Options::default().with("WHATSAPP_API_URL", url));
        let ana = server.owner();
        ana.profile_without_check();
        let id = ana.template("oferta", "Oi", &[]);
        submit(&ana, &id).refused(502, "WHATSAPP_ERROR");
    }
}

#[test]
fn template_is_locked_in_review_and_an_edit_makes_a_draft() {
    let server = Server::start(manual_review());
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    let meta = text(&submit(&ana, &id).ok()["meta_template_id"]);
    let path = format!("/api/templates/{id}");
    assert_eq!(get(&ana, &id)["meta_status"], "pending");
    assert_eq!(
        ana.put(&path, json!({ "body_text": "Olá {{1}}" })).invalid(),
        ["meta_status"]
    );
    assert_eq!(submit(&ana, &id).invalid(), ["meta_status"]);
    assert!(server.whatsapp.set_template_status(&meta, "APPROVED", None));
    wait_for_status(&ana, &id, "approved");
    for (event, status) in [
        ("PAUSED", "paused"),
        ("REINSTATED", "approved"),
        ("DISABLED", "disabled"),
    ] {
        assert!(server.whatsapp.set_template_status(&meta, event, None));
        wait_for_status(&ana, &id, status);
    }
    assert_eq!(
        ana.put(&path, json!({ "body_text": "Olá {{1}}" })).ok()["meta_status"],
        "draft"
    );
}

#[test]
fn submit_of_invalid_template_makes_no_call() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let calls = server.whatsapp.ledger().len();
    let body = json!({ "name": "sem_corpo", "category": "UTILITY", "language": "pt", "template_type": "standard" });
    let id = text(&ana.post("/api/templates", body).created()["id"]);
    assert_eq!(submit(&ana, &id).invalid(), ["body_text"]);
    assert_eq!(server.whatsapp.ledger().len(), calls);
}

#[test]
fn concurrent_submits_create_one_template() {
    let server = Server::start(manual_review());
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi", &[]);
    let request = ana.request("POST", &format!("/api/templates/{id}/submit"));
    let mut statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| request.clone().send().status)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200, "{statuses:?}");
    assert!([422, 502].contains(&statuses[1]), "{statuses:?}");
    assert_eq!(get(&ana, &id)["meta_status"], "pending");
}
