//! Campaigns that run in the background: send, schedule, pause, resume, retry.

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::runs::{calls, final_status, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text, until};

fn act(user: &User<'_>, campaign: &str, action: &str) -> Reply {
    user.request("POST", &format!("/api/campaigns/{campaign}/{action}"))
        .send()
}

fn schedule(user: &User<'_>, campaign: &str, body: Value) -> Reply {
    user.post(&format!("/api/campaigns/{campaign}/schedule"), body)
}

/// The time `milliseconds` from now, in the API's format.
fn time_from_now(milliseconds: i64) -> String {
    let at = time::OffsetDateTime::now_utc() + time::Duration::milliseconds(milliseconds);
    at.format(&time::format_description::well_known::Rfc3339).unwrap()
}

fn notified(server: &Server, kind: &str) -> Vec<String> {
    let rows = server
        .db
        .rows(&format!("SELECT message FROM notifications WHERE type = '{kind}'"));
    rows.into_iter()
        .filter_map(|row| row.into_iter().next().flatten())
        .collect()
}

#[test]
fn send_returns_at_once_and_the_run_completes() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(12);
    let id = ana.plain_campaign();
    let sent = act(&ana, &id, "send").ok();
    assert_eq!((&sent["id"], &sent["status"]), (&json!(id), &json!("sending")));
    assert_eq!(final_status(&ana, &id), "completed");
    let calls = calls(&server);
    assert!(
        calls.len() == 12 && calls.values().all(|count| *count == 1),
        "{calls:?}"
    );
    let audit = "FROM audit_logs WHERE action = 'create' AND entity_type = 'campaign_send'";
    until("the audit row", || server.db.count(audit) == 1);
    assert_eq!(server.db.text(&format!("SELECT entity_id {audit}")), id);
    // A number that is verified late on a busy machine is a success, too.
    let about_campaign = |message: &&String| message.contains("messages were sent");
    until("the notification", || {
        notified(&server, "success").iter().filter(about_campaign).count() == 1
    });
    act(&ana, &id, "send").refused(400, "VALIDATION_ERROR");
}

#[test]
fn refused_send_becomes_a_draft_and_notifies_why() {
    let server = Server::new();
    let ana = server.owner();
    let without_template = ana.campaign(json!({ "name": "C" }));
    assert_eq!(act(&ana, &without_template, "send").ok()["status"], "sending");
    until("the campaign is a draft again", || {
        ana.status(&without_template) == "draft"
    });
    until("a notification is stored", || {
        notified(&server, "error")
            .iter()
            .any(|message| message.contains("no template"))
    });
    let without_recipients = ana.plain_campaign();
    act(&ana, &without_recipients, "send").ok();
    until("the campaign is a draft again", || {
        ana.status(&without_recipients) == "draft"
    });
    until("a second notification is stored", || {
        notified(&server, "error").len() == 2
    });
    assert_eq!(server.db.count("FROM campaign_queue"), 0);
    // With a recipient the campaign can be sent.
    ana.contacts(1);
    act(&ana, &without_recipients, "send").ok();
    assert_eq!(final_status(&ana, &without_recipients), "sent");
}

#[test]
fn concurrent_sends_and_executes_start_one_run() {
    let server = Server::start(without_statuses());
    let second_server = server.sibling();
    let ana = server.owner();
    ana.profile();
    ana.contacts(5);
    let id = ana.plain_campaign();
    let attempts = |action: &'static str| {
        let path = format!("/api/campaigns/{id}/{action}");
        let requests = [
            ana.request("POST", &path),
            second_server.request("POST", &path).bearer(&ana.token),
        ];
        std::iter::repeat_n(requests, 2).flatten()
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = attempts("send")
            .chain(attempts("execute"))
            .map(|request| scope.spawn(move || request.send().status))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        1,
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| [200, 400, 429].contains(status)),
        "{statuses:?}"
    );
    final_status(&ana, &id);
    assert!(calls(&server).values().all(|count| *count == 1));
    assert_eq!(server.whatsapp.sends().len(), 5);
}

#[test]
fn scheduled_campaign_starts_when_due() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.contacts(2);
    let id = ana.plain_campaign();
    schedule(&ana, &id, json!({})).refused(400, "VALIDATION_ERROR");
    schedule(&ana, &id, json!({ "scheduled_at": time_from_now(-1000) })).refused(400, "VALIDATION_ERROR");
    assert_eq!(
        schedule(&ana, &id, json!({ "scheduled_at": "soon" })).invalid(),
        ["scheduled_at"]
    );
    let far = schedule(&ana, &id, json!({ "scheduled_at": time_from_now(86_400_000) })).ok();
    assert_eq!(far["status"], "scheduled");
    let near = schedule(&ana, &id, json!({ "scheduled_at": time_from_now(1500) })).ok();
    assert!(text(&near["scheduled_at"]) < text(&far["scheduled_at"]));
    until("the run has begun", || ana.status(&id) != "scheduled");
    assert_eq!(final_status(&ana, &id), "sent");
    until("the audit rows", || {
        server.db.count("FROM audit_logs WHERE entity_type = 'campaign_send'") == 1
            && server
                .db
                .count("FROM audit_logs WHERE action = 'update' AND entity_type = 'campaign'")
                == 2
    });
    schedule(&ana, &id, json!({ "scheduled_at": time_from_now(86_400_000) })).refused(400, "VALIDATION_ERROR");
}

#[test]
fn unscheduled_campaign_stays_a_draft() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C", "scheduled_at": time_from_now(86_400_000) }));
    act(&ana, &id, "unschedule").refused(400, "VALIDATION_ERROR");
    // `schedule` without a body uses the stored time.
    assert_eq!(act(&ana, &id, "schedule").ok()["status"], "scheduled");
    let put = |body: Value| ana.put(&format!("/api/campaigns/{id}"), body);
    assert_eq!(put(json!({ "scheduled_at": null })).invalid(), ["scheduled_at"]);
    assert_eq!(
        put(json!({ "scheduled_at": time_from_now(-1000) })).invalid(),
        ["scheduled_at"]
    );
    assert_eq!(
        put(json!({ "name": "D", "scheduled_at": time_from_now(80_000_000) })).ok()["status"],
        "scheduled"
    );
    let draft = act(&ana, &id, "unschedule").ok();
    assert_eq!(draft["status"], "draft");
    server
        .db
        .run("UPDATE campaigns SET scheduled_at = now() - interval '1 second'");
    let audits = "FROM audit_logs WHERE action = 'update' AND entity_type = 'campaign'";
    until("the audit rows", || server.db.count(audits) == 2);
    assert_eq!(ana.status(&id), "draft");
}

#[test]
fn resumed_run_calls_every_recipient_once() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "60"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(60);
    let id = ana.plain_campaign();
    act(&ana, &id, "pause").refused(400, "VALIDATION_ERROR");
    act(&ana, &id, "send").ok();
    until("some were sent", || server.whatsapp.sends().len() > 5);
    let paused = act(&ana, &id, "pause").ok();
    assert_eq!(paused["status"], "sending");
    assert!(
        paused["paused_at"].is_string() && paused["pause_reason"].is_string(),
        "{paused}"
    );
    until("the worker released the run", || {
        server.db.count("FROM campaign_queue WHERE worker IS NOT NULL") == 0
    });
    let before = server.whatsapp.sends().len();
    assert!(before < 60);
    act(&ana, &id, "pause").ok();
    let resumed = act(&ana, &id, "resume").ok();
    assert_eq!(
        (&resumed["paused_at"], &resumed["pause_reason"]),
        (&json!(null), &json!(null))
    );
    act(&ana, &id, "resume").ok();
    assert_eq!(final_status(&ana, &id), "completed");
    let calls = calls(&server);
    assert!(
        calls.len() == 60 && calls.values().all(|count| *count == 1),
        "{calls:?}"
    );
    act(&ana, &id, "resume").refused(400, "VALIDATION_ERROR");
}

#[test]
fn run_of_suspended_account_completes_when_active() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "100"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(40);
    let id = ana.plain_campaign();
    act(&ana, &id, "send").ok();
    until("some were sent", || server.whatsapp.sends().len() > 3);
    server.db.run("UPDATE accounts SET status = 'suspended'");
    until("the worker released the run", || {
        server.db.count("FROM campaign_queue WHERE worker IS NOT NULL") == 0
    });
    assert!(server.whatsapp.sends().len() < 40);
    server.db.run("UPDATE accounts SET status = 'active'");
    eventually("the account is active", || {
        (ana.get("/api/campaigns").status == 200).then_some(())
    });
    assert_eq!(final_status(&ana, &id), "completed");
    assert!(calls(&server).values().all(|count| *count == 1));
    assert_eq!(server.whatsapp.sends().len(), 40);
}

#[test]
fn retry_failed_repeats_only_the_failed_sends() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(6);
    let undeliverable = || WhatsappFaultKind::error(131_026, "");
    let faults = [1, 4].map(|number| WhatsappFault::send_to(&phone(number), undeliverable()));
    server.whatsapp.script(faults.to_vec());
    let id = ana.plain_campaign();
    act(&ana, &id, "retry-failed").refused(400, "VALIDATION_ERROR");
    act(&ana, &id, "send").ok();
    assert_eq!(final_status(&ana, &id), "partial");
    assert_eq!(ana.stats(&id)["failed"], 2);
    let again = act(&ana, &id, "retry-failed").ok();
    assert_eq!(
        (&again["status"], &again["completed_at"]),
        (&json!("sending"), &json!(null))
    );
    assert_eq!(final_status(&ana, &id), "completed");
    let calls = calls(&server);
    assert!(calls.values().all(|count| (1..=2).contains(count)), "{calls:?}");
    assert_eq!(calls.values().sum::<usize>(), 8);
    let stats = ana.stats(&id);
    assert_eq!((&stats["total"], &stats["failed"]), (&json!(6), &json!(0)));
    act(&ana, &id, "retry-failed").refused(400, "VALIDATION_ERROR");
    let usage = server.db.text("SELECT sent || '/' || reserved FROM message_usage");
    assert_eq!(usage, "6/0");
}
