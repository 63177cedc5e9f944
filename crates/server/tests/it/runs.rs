//! Runs against a failing WhatsApp simulator: rejections, throttling, unknown outcomes, an expired token. Also cancel,
//! send rate, opt-out and suspended accounts.

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::runs::{
    assert_stats_add_up, calls, final_status, status, statuses, wait_for_stat, without_statuses,
};
use crate::harness::users::phone;
use crate::harness::{Options, Server, text, until};

fn error(code: u32, details: &str) -> WhatsappFaultKind {
    WhatsappFaultKind::error(code, details)
}

#[test]
fn permanent_error_fails_one_send() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(12);
    server.whatsapp.script(vec![WhatsappFault::send_to(
        &phone(3),
        error(131_026, "Message undeliverable."),
    )]);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        report,
        json!({ "total": 12, "sent": 11, "failed": 1, "simulated": false, "status": "partial" })
    );
    let sends = ana.sends(&id);
    let failed: Vec<&Value> = sends.iter().filter(|send| send["status"] == "failed").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (&failed[0]["error_code"], &failed[0]["contacts"]["phone"]),
        (&json!(131_026), &json!(phone(3)))
    );
    assert!(
        text(&failed[0]["error_message"]).contains("undeliverable"),
        "{failed:?}"
    );
    assert_eq!(failed[0]["wa_message_id"], json!(null));
    assert_eq!(calls(&server)[&phone(3)], 1);
    assert_stats_add_up(&wait_for_stat(&ana, &id, "read", 11));
}

#[test]
fn ambiguous_send_is_never_repeated_and_status_resolves_it() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let number = "106500000009";
    ana.profile_at(number);
    ana.contacts(8);
    let faults = [
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AnswerWithoutId,
    ];
    let faults = faults
        .into_iter()
        .enumerate()
        .map(|(n, kind)| WhatsappFault::send_to(&phone(n), kind));
    server.whatsapp.script(faults.collect());
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        report,
        json!({ "total": 8, "sent": 4, "failed": 4, "simulated": false, "status": "partial" })
    );
    let stats = ana.stats(&id);
    assert_eq!(
        (&stats["pending"], &stats["sent"], &stats["failed"]),
        (&json!(4), &json!(4), &json!(0))
    );
    assert!(calls(&server).values().all(|calls| *calls == 1));

    let sends = ana.sends(&id);
    let pending: Vec<&Value> = sends.iter().filter(|send| send["status"] == "pending").collect();
    let updates: Vec<Value> = pending
        .iter()
        .enumerate()
        .map(|(n, send)| {
            status(
                &format!("wamid.{n}"),
                ["sent", "delivered", "read", "failed"][n],
                Some(&text(&send["id"])),
            )
        })
        .collect();
    server.callback(&statuses(number, &updates));
    let stats = ana.stats(&id);
    let expected = json!({ "total": 8, "pending": 0, "sent": 5, "delivered": 1, "read": 1, "failed": 1 });
    assert_eq!(stats, expected);
    assert!(calls(&server).values().all(|calls| *calls == 1));
}

#[test]
fn unknown_send_fails_after_its_ttl_with_a_message() {
    let server = Server::start(without_statuses().with("SEND_UNKNOWN_TTL", "1s"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    server.whatsapp.script(vec![WhatsappFault::send_to(
        &phone(1),
        WhatsappFaultKind::AcceptThenReset,
    )]);
    let id = ana.plain_campaign();
    assert_eq!(ana.execute(&id).ok()["status"], "partial");
    assert_eq!(ana.stats(&id)["pending"], 1);
    wait_for_stat(&ana, &id, "failed", 1);
    let sends = ana.sends(&id);
    let failed = sends.iter().find(|send| send["status"] == "failed").unwrap();
    let message = text(&failed["error_message"]).to_lowercase();
    assert!(
        message.contains("unknown") || message.contains("not known"),
        "{message}"
    );
    assert_eq!(calls(&server)[&phone(1)], 1);
    assert_eq!(
        server.db.text("SELECT sent || ' ' || reserved FROM message_usage"),
        "2 0"
    );
}

#[test]
fn throttled_send_is_sent_later() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(6);
    server.whatsapp.script(vec![
        WhatsappFault::send_to(&phone(0), WhatsappFaultKind::Throttle),
        WhatsappFault::send_to(&phone(1), WhatsappFaultKind::RateLimited { retry_after_s: 1 }),
        WhatsappFault::send_to(&phone(2), error(131_056, "Pair rate limit hit")),
    ]);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!((&report["status"], &report["sent"]), (&json!("completed"), &json!(6)));
    let calls = calls(&server);
    assert_eq!((0..6).map(|n| calls[&phone(n)]).collect::<Vec<_>>(), [2, 2, 2, 1, 1, 1]);
    assert_eq!(server.whatsapp.counters().per_recipient_max, 1);
}

#[test]
fn always_throttled_send_fails_after_five_retries() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(1);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(error(80_007, "limit")); 20]);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    // The test shortens the retry delays.
    until("the run ends", || {
        server
            .db
            .run("UPDATE campaign_sends SET retry_at = now() WHERE retry_at > now() + interval '100 ms'");
        run.is_finished()
    });
    let report = run.join().unwrap().ok();
    assert_eq!((&report["status"], &report["failed"]), (&json!("partial"), &json!(1)));
    assert_eq!(server.whatsapp.sends().len(), 6, "one call and five retries");
    assert_eq!(ana.sends(&id)[0]["status"], "failed");
}

#[test]
fn expired_token_pauses_the_run() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(10);
    server.expire_token("EAAG-token");
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        (&report["status"], &report["paused"], &report["sent"]),
        (&json!("sending"), &json!(true), &json!(0))
    );
    let campaign = ana.get(&format!("/api/campaigns/{id}")).ok();
    assert!(
        campaign["paused_at"].is_string() && campaign["pause_reason"].is_string(),
        "{campaign}"
    );
    assert_eq!(ana.stats(&id)["pending"], 10);
    until("a notification is stored", || {
        server
            .db
            .count("FROM notifications WHERE title LIKE 'Campaign paused%'")
            == 1
    });
    let tried = server.whatsapp.sends().len();
    assert!((1..=10).contains(&tried), "{tried} calls");
    // A paused run can be cancelled.
    assert_eq!(ana.cancel(&id).ok()["status"], "cancelled");
}

#[test]
fn paused_template_pauses_the_run() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "50"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(100);
    server.whatsapp.script(vec![WhatsappFault::send_to(
        &phone(7),
        error(132_015, "Template is paused"),
    )]);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        (&report["status"], &report["paused"]),
        (&json!("sending"), &json!(true))
    );
    let stats = ana.stats(&id);
    assert_stats_add_up(&stats);
    assert_eq!(
        stats["failed"], 0,
        "an error that concerns the whole run fails no send: {stats}"
    );
    assert_eq!(
        stats["pending"].as_i64().unwrap() + report["sent"].as_i64().unwrap(),
        100
    );
}

#[test]
fn cancel_stops_the_run() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "100"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(200);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("some were sent", || server.whatsapp.counters().accepted >= 5);
    assert_eq!(ana.cancel(&id).ok(), json!({ "status": "cancelled" }));
    let report = run.join().unwrap().ok();
    assert_eq!(report["status"], "cancelled");
    let accepted = server.whatsapp.counters().accepted;
    // A run checks for a cancel at least every 50 sends.
    assert!(accepted < 60, "{accepted} were sent");
    // Messages of the cancelled run would precede those of a later run from the same number.
    let tag = ana.tag("later");
    let later = json!({ "name": "Depois", "phone": "+5511969999999", "tag_ids": [tag] });
    ana.post("/api/contacts", later).created();
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let audience = json!({ "tag_ids": [tag] });
    let next = ana.campaign(json!({ "name": "Depois", "template_id": template, "segment_config": audience }));
    ana.execute(&next).ok();
    assert_eq!(server.whatsapp.counters().accepted, accepted + 1);
    let stats = ana.stats(&id);
    assert_stats_add_up(&stats);
    assert_eq!(
        stats["pending"].as_i64().unwrap(),
        200 - i64::try_from(accepted).unwrap()
    );
    assert_eq!(ana.status(&id), "cancelled");
    ana.cancel(&id).refused(400, "VALIDATION_ERROR");
}

#[test]
fn client_disconnect_does_not_stop_the_run() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "20"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(30);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let stream = request.write_chunked(&[]);
    until("the run has begun", || server.whatsapp.counters().accepted >= 3);
    drop(stream);
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(server.whatsapp.counters().accepted, 30);
}

#[test]
fn run_keeps_the_default_message_delay() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", ""));
    let ana = server.owner();
    ana.profile();
    ana.contacts(6);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let times: Vec<u64> = server.whatsapp.sends().iter().map(|send| send.request.at_ms).collect();
    let elapsed = times.last().unwrap() - times.first().unwrap();
    assert!(elapsed >= 5 * 200 - 100, "{times:?}");
}

#[test]
fn number_send_rate_overrides_the_message_delay() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "0"));
    let ana = server.owner();
    let profile = ana.profile();
    ana.put(
        &format!("/api/whatsapp/profiles/{profile}"),
        json!({ "messages_per_second": 10 }),
    )
    .ok();
    ana.contacts(11);
    ana.execute(&ana.plain_campaign()).ok();
    let times: Vec<u64> = server.whatsapp.sends().iter().map(|send| send.request.at_ms).collect();
    let elapsed = times.last().unwrap() - times.first().unwrap();
    assert!(elapsed >= 900, "{times:?}");
}

#[test]
fn number_shared_by_two_accounts_keeps_its_send_rate() {
    let server = Server::start(without_statuses());
    let second = server.sibling();
    // Two accounts share the number. Each server sends for one of them.
    let body = json!({ "name": "Loja", "phone_number_id": "1077", "waba_id": "1022", "access_token": "token",
        "messages_per_second": 40 });
    let owners = [server.owner(), server.owner()];
    let requests = owners.each_ref().map(|owner| {
        owner.post("/api/whatsapp/profiles", body.clone()).created();
        owner.contacts(60);
        format!("/api/campaigns/{}/execute", owner.plain_campaign())
    });
    let [ana, bia] = [
        owners[0].request("POST", &requests[0]),
        second.request("POST", &requests[1]).bearer(&owners[1].token),
    ];
    std::thread::scope(|scope| {
        for request in [ana, bia] {
            scope.spawn(move || assert_eq!(request.send().ok()["sent"], 60));
        }
    });
    let mut times: Vec<u64> = server.whatsapp.sends().iter().map(|send| send.request.at_ms).collect();
    times.sort_unstable();
    assert_eq!(times.len(), 120);
    // Delayed messages may be closer together, but the total stays within the rate.
    let elapsed = times.last().unwrap() - times.first().unwrap();
    assert!(elapsed >= 2800, "{elapsed} ms");
}

#[test]
fn long_run_yields_its_permit_to_a_waiting_run() {
    let settings = without_statuses()
        .with("CAMPAIGN_MAX_CONCURRENT_RUNS", "1")
        .with("CAMPAIGN_MESSAGE_DELAY_MS", "100");
    let server = Server::start(settings);
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    ana.contacts(240);
    let large = ana.plain_campaign();
    ana.send(&large);
    until("the large run has begun", || server.whatsapp.counters().accepted >= 5);
    bia.contacts(3);
    let small = bia.plain_campaign();
    bia.send(&small);
    until("the small run is sent", || {
        bia.get(&format!("/api/campaigns/{small}")).ok()["status"] == "sent"
    });
    let before = server.whatsapp.counters().accepted;
    until("the large run continues", || {
        server.whatsapp.counters().accepted > before + 5
    });
    let sends = server.db.count("FROM campaign_sends WHERE status = 'pending'");
    assert!(sends > 30, "the large run is not finished: {sends}");
}

#[test]
fn contact_opted_out_during_a_run_gets_no_message() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "60"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(100);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("the run has begun", || server.whatsapp.counters().accepted >= 2);
    server.db.run(
        "UPDATE contacts SET opted_out_at = now() WHERE id IN (SELECT contact_id FROM campaign_sends
           WHERE started_at IS NULL ORDER BY contact_id DESC LIMIT 5)",
    );
    let report = run.join().unwrap().ok();
    assert_eq!((&report["sent"], &report["failed"]), (&json!(95), &json!(5)));
    let sends = ana.sends(&id);
    let failed = sends.iter().find(|send| send["status"] == "failed").unwrap();
    assert!(text(&failed["error_message"]).contains("opted out"), "{failed}");
    assert_eq!(server.whatsapp.counters().accepted, 95);
}

#[test]
fn executed_run_of_suspended_account_waits_until_active() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "80"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(60);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("some were sent", || server.whatsapp.counters().accepted >= 3);
    server.db.run("UPDATE accounts SET status = 'suspended'");
    until("the worker released the run", || {
        server.db.count("FROM campaign_queue WHERE worker IS NOT NULL") == 0
    });
    let before = server.whatsapp.counters().accepted;
    assert!(before < 60, "{before}");
    // The waiting `execute` request reports that the run is paused.
    let report = run.join().unwrap().ok();
    assert_eq!(
        (&report["status"], &report["paused"]),
        (&json!("sending"), &json!(true))
    );
    assert_eq!(server.db.text("SELECT status FROM campaigns"), "sending");
    assert_eq!(server.whatsapp.counters().accepted, before);
    server.db.run("UPDATE accounts SET status = 'active'");
    until("the account is active", || ana.get("/api/contacts").status == 200);
    assert_eq!(final_status(&ana, &id), "completed");
    assert!(calls(&server).values().all(|calls| *calls == 1));
}

#[test]
fn runs_of_six_accounts_execute_concurrently() {
    let server = Server::start(Options::with_whatsapp(|whatsapp| whatsapp.latency_ms = 5));
    let owners: Vec<_> = (0..6).map(|_| server.owner()).collect();
    let runs: Vec<_> = owners
        .iter()
        .map(|owner| {
            owner.profile();
            owner.contacts(20);
            let id = owner.plain_campaign();
            (id.clone(), owner.command(&id, "execute"))
        })
        .collect();
    std::thread::scope(|scope| {
        for (_, request) in &runs {
            scope.spawn(move || assert_eq!(request.clone().send().ok()["sent"], 20));
        }
    });
    for (owner, (id, _)) in owners.iter().zip(&runs) {
        wait_for_stat(owner, id, "read", 20);
    }
}
