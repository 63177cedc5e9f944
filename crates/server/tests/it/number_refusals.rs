//! What an account whose numbers are not verified cannot do, and how its running campaigns wait.

use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::runs::without_statuses;
use crate::harness::users::{User, phone};
use crate::harness::{Server, until};

/// Sets the state of the account's numbers, without a call to WhatsApp.
fn set_state(server: &Server, user: &User<'_>, state: &str) {
    server.db.run(&format!(
        "UPDATE whatsapp_profiles SET verification_state = '{state}', next_check_at = NULL,
           pending_since = CASE WHEN '{state}' = 'pending' THEN now() END,
           failed_since = CASE WHEN '{state}' = 'failed' THEN now() END
         WHERE account_id = '{}'",
        user.account
    ));
}

#[track_caller]
fn assert_unverified(reply: Reply) {
    let error = reply.refused(400, "VALIDATION_ERROR");
    assert_eq!(error["details"]["reason"], "number_unverified", "{error}");
}

#[test]
fn account_without_a_verified_number_sends_nothing_and_simulates_nothing() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(2);
    for state in ["failed", "pending"] {
        set_state(&server, &ana, state);
        let id = ana.plain_campaign();
        let command = |name: &str| ana.request("POST", &format!("/api/campaigns/{id}/{name}")).send();
        assert_unverified(command("execute"));
        assert_unverified(command("send"));
        assert_unverified(ana.post(&format!("/api/campaigns/{id}/test"), json!({ "phone": phone(9) })));
        let preview = ana.request("POST", &format!("/api/campaigns/{id}/preview")).send().ok();
        let reasons: Vec<&Value> = preview["refusals"].as_array().unwrap().iter().collect();
        assert!(
            reasons.iter().any(|refusal| refusal["reason"] == "number_unverified"),
            "{preview}"
        );
        let template = ana.template(&format!("oferta_{state}"), "Oi", &[]);
        let submitted = ana.request("POST", &format!("/api/templates/{template}/submit")).send();
        assert_eq!(submitted.invalid(), ["profile_id"]);
        assert_eq!(
            ana.request("POST", "/api/templates/sync").send().invalid(),
            ["profile_id"]
        );
        assert_eq!(ana.status(&id), "draft");
    }
    assert_eq!(server.db.count("FROM campaigns WHERE simulated"), 0);
    assert_eq!(server.db.count("FROM campaign_sends"), 0);
    assert_eq!(
        server.db.count("FROM phone_number_send_slots"),
        0,
        "no place of the pace"
    );
    assert!(server.whatsapp.sends().is_empty());
}

#[test]
fn oldest_verified_number_is_the_default() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let first = ana.profile_without_check();
    let second = ana.profile_without_check();
    server.db.run(&format!(
        "UPDATE whatsapp_profiles SET verification_state = 'failed' WHERE id = '{first}'"
    ));
    ana.contacts(2);
    let id = ana.plain_campaign();
    assert_eq!(ana.execute(&id).ok()["sent"], 2);
    let used = format!("FROM campaigns WHERE id = '{id}' AND profile_id = '{second}'");
    assert_eq!(server.db.count(&used), 1);
}

#[test]
fn running_campaign_waits_for_its_number_and_pauses_when_it_failed() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let profile = ana.profile_without_check();
    let path = format!("/api/whatsapp/profiles/{profile}");
    ana.put(&path, json!({ "messages_per_second": 2 })).ok();
    ana.contacts(12);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("the campaign sends", || !server.whatsapp.sends().is_empty());
    set_state(&server, &ana, "pending");
    until("the run is postponed", || {
        server
            .db
            .count("FROM campaign_queue WHERE retry_at IS NOT NULL AND worker IS NULL")
            == 1
    });
    let sent = server.whatsapp.sends().len();
    assert!(sent < 12, "{sent}");
    assert_eq!(ana.status(&id), "sending");
    set_state(&server, &ana, "verified");
    until("the campaign goes on by itself", || {
        server.whatsapp.sends().len() > sent
    });
    set_state(&server, &ana, "failed");
    let campaign = || ana.get(&format!("/api/campaigns/{id}")).ok();
    until("the campaign is paused", || campaign()["paused_at"].is_string());
    let reason = campaign()["pause_reason"].take();
    assert!(reason.as_str().unwrap().contains("failed its check"), "{reason}");
    let resume = || ana.request("POST", &format!("/api/campaigns/{id}/resume")).send();
    assert_unverified(resume());
    set_state(&server, &ana, "verified");
    resume().ok();
    until("the campaign completes", || ana.status(&id) == "completed");
    assert_eq!(server.whatsapp.sends().len(), 12, "each message was sent once");
}
