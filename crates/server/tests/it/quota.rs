//! The monthly message quota of a plan.

use crate::conversations::{open_conversation, reply};
use crate::harness::runs::without_statuses;
use crate::harness::{Server, text};

#[test]
fn run_beyond_the_quota_is_refused_before_any_send() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let first = ana.campaign_to("a", 0..200);
    let second = ana.campaign_to("b", 200..300);
    let third = ana.campaign_to("c", 300..350);
    assert_eq!(ana.execute(&first).ok()["sent"], 200);
    let error = ana.execute(&second).refused(400, "VALIDATION_ERROR");
    assert!(text(&error["message"]).contains("250"), "{error}");
    assert_eq!(
        (ana.status(&second).as_str(), server.whatsapp.counters().accepted),
        ("draft", 200)
    );
    assert_eq!(ana.stats(&second)["total"], 0);
    assert_eq!(ana.execute(&third).ok()["sent"], 50);
    assert_eq!(
        server.db.text("SELECT sent || ' ' || reserved FROM message_usage"),
        "250 0"
    );
    // The quota of the new month is unused.
    server
        .db
        .run("UPDATE message_usage_slots SET month = month - interval '1 month'");
    assert_eq!(ana.execute(&second).ok()["sent"], 100);
}

#[test]
fn concurrent_runs_stay_within_the_quota() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let campaigns = [ana.campaign_to("a", 0..150), ana.campaign_to("b", 200..350)];
    let requests = campaigns.map(|id| ana.command(&id, "execute"));
    let mut statuses = std::thread::scope(|scope| {
        let threads = requests.map(|request| scope.spawn(move || request.send().status));
        threads.map(|thread| thread.join().unwrap())
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
    assert_eq!(server.whatsapp.counters().accepted, 150);
}

#[test]
fn failed_and_cancelled_sends_release_their_reservation() {
    use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "50"));
    let ana = server.owner();
    ana.profile();
    let id = ana.campaign_to("a", 0..200);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::error(131_026, ""))]);
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    crate::harness::until("some were sent", || server.whatsapp.counters().accepted >= 5);
    ana.cancel(&id).ok();
    assert_eq!(run.join().unwrap().ok()["status"], "cancelled");
    let accepted = server.whatsapp.counters().accepted;
    crate::harness::until("the reservation is released", || {
        server.db.text("SELECT sent || ' ' || reserved FROM message_usage") == format!("{accepted} 0")
    });
}

#[test]
fn accepted_replies_count_and_are_never_over_quota() {
    use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let used_messages = || ana.get("/api/billing/subscription").ok()["usage"]["messages"].clone();
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::Throttle)]);
    reply(&ana, &conversation, "oi").refused(502, "WHATSAPP_ERROR");
    assert_eq!(used_messages(), 0);
    reply(&ana, &conversation, "oi").created();
    assert_eq!(used_messages(), 1);
    let id = ana.campaign_to("a", 0..250);
    let error = ana.execute(&id).refused(400, "VALIDATION_ERROR");
    assert!(text(&error["message"]).contains("249 of this month's 250"), "{error}");
    server.db.run("UPDATE message_rollups SET sent = 250 WHERE sent > 0");
    reply(&ana, &conversation, "oi").created();
    assert_eq!(used_messages(), 251);
}
