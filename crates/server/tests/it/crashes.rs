//! Runs whose server crashes, stops, loses its lease or has no workers: every contact gets one message at most.

use serde_json::json;

use crate::harness::runs::{assert_stats_add_up, calls, expire_leases, final_status, wait_for_stat, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, until};

const CONTACTS: usize = 60;

fn with_delay(delay_ms: u32) -> Options {
    let options = Options::with_whatsapp(|whatsapp| whatsapp.latency_ms = 15);
    options.with("CAMPAIGN_MESSAGE_DELAY_MS", delay_ms.to_string())
}

/// Starts a run and returns as soon as some messages were sent.
fn start_run(ana: &User<'_>) -> String {
    ana.profile();
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    // The request fails when the server is killed.
    std::thread::spawn(move || request.try_send().is_ok());
    until("some were sent", || ana.server.whatsapp.counters().accepted >= 10);
    id
}

#[test]
fn run_of_killed_server_resumes_without_duplicates() {
    let server = Server::start(with_delay(70).with("SEND_UNKNOWN_TTL", "2s"));
    let ana = server.owner();
    let id = start_run(&ana);
    server.kill();
    let before = server.whatsapp.counters().accepted;
    assert!(before < 60, "the kill came too late: {before}");
    server.run(&["serve"]);
    expire_leases(&server);
    let status = final_status(&ana, &id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    let calls = calls(&server);
    assert!(
        calls.values().all(|calls| *calls == 1),
        "a contact was called twice: {calls:?}"
    );
    // Sends in flight are resolved by WhatsApp's status updates or by `SEND_UNKNOWN_TTL`.
    let stats = wait_for_stat(&ana, &id, "pending", 0);
    assert_stats_add_up(&stats);
    let read = wait_for_stat(&ana, &id, "read", i64::try_from(calls.len()).unwrap());
    assert_eq!(read["read"].as_i64().unwrap() + read["failed"].as_i64().unwrap(), 60);
    let usage = server.db.text("SELECT sent || ' ' || reserved FROM message_usage");
    assert_eq!(usage, format!("{} 0", calls.len()));
}

#[test]
fn run_survives_repeated_crashes_without_duplicates() {
    let server = Server::start(with_delay(5).with("SEND_UNKNOWN_TTL", "1s"));
    let ana = server.owner();
    let id = start_run(&ana);
    for round in 2..=4 {
        server.kill();
        server.run(&["serve"]);
        expire_leases(&server);
        until("the run continues", || {
            server.whatsapp.counters().accepted >= round * 12 || ana.status(&id) != "sending"
        });
    }
    final_status(&ana, &id);
    assert!(calls(&server).values().all(|calls| *calls == 1));
    let stats = wait_for_stat(&ana, &id, "pending", 0);
    assert_stats_add_up(&stats);
    assert_eq!(stats["total"], 60);
}

/// A server that stalls past its lease claims its own run again under a new worker id.
#[test]
fn run_reclaimed_by_its_own_server_sends_each_message_once() {
    let slow = Options::with_whatsapp(|whatsapp| {
        whatsapp.latency_ms = 1000;
        (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (None, None, None);
    });
    let server = Server::start(slow.with("CAMPAIGN_MESSAGE_DELAY_MS", "0"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(240);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("some were sent", || server.whatsapp.counters().accepted >= 25);
    expire_leases(&server);
    let count_in_flight = || {
        server
            .db
            .count("FROM campaign_sends WHERE status = 'pending' AND started_at IS NOT NULL AND unknown_at IS NULL")
    };
    let mut max_in_flight = 0;
    until("the run ends", || {
        max_in_flight = max_in_flight.max(count_in_flight());
        ana.status(&id) != "sending"
    });
    assert!(max_in_flight <= 50, "{max_in_flight} were in flight");
    assert_eq!(final_status(&ana, &id), "completed");
    assert!(calls(&server).values().all(|calls| *calls == 1));
}

/// The run materializes most of its sends in recipient batches after its start.
#[test]
fn large_audience_survives_a_crash_completely() {
    let options = without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "0");
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "1s"));
    let ana = server.owner();
    ana.profile();
    server.db.run("UPDATE accounts SET plan = 'growth'");
    let recipients = 14_000;
    let rows: String = (0..recipients).map(|n| format!("Ana,{}\n", phone(n))).collect();
    ana.import(format!("name,phone\n{rows}")).ok();
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    std::thread::spawn(move || request.try_send().is_ok());
    until("some were sent", || server.whatsapp.counters().accepted >= 100);
    server.kill();
    assert_eq!(server.db.text("SELECT total FROM campaign_counters"), "14000");
    assert!(
        server.db.text("SELECT count(*) FROM campaign_recipient_batches") != "0",
        "the kill came too late"
    );
    server.run(&["serve"]);
    expire_leases(&server);
    let status = final_status(&ana, &id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    let stats = wait_for_stat(&ana, &id, "pending", 0);
    assert_eq!(stats["total"], recipients);
    assert_eq!(
        ana.get(&format!("/api/campaigns/{id}/sends")).expect(200)["total"],
        recipients
    );
    let calls = calls(&server);
    assert!(calls.values().all(|calls| *calls == 1));
    // Only the sends that were in flight have an unknown outcome.
    let failed = stats["failed"].as_u64().unwrap();
    let called = u64::try_from(calls.len()).unwrap();
    assert!(failed <= 50 && called + failed >= 14_000, "{stats} {called}");
}

#[test]
fn stopping_server_releases_its_run_to_another_server() {
    let server = Server::start(with_delay(30));
    let ana = server.owner();
    let sibling = server.sibling();
    let id = start_run(&ana);
    let began = std::time::Instant::now();
    assert_eq!(server.stop(), Some(0));
    assert!(began.elapsed() < crate::harness::DEADLINE, "{:?}", began.elapsed());
    let status = crate::harness::eventually("the other server ends the run", || {
        let campaign = sibling
            .request("GET", &format!("/api/campaigns/{id}"))
            .bearer(&ana.token)
            .send()
            .ok();
        (campaign["status"] != "sending").then(|| campaign["status"].clone())
    });
    assert_eq!(status, "completed", "a released run has no unknown outcomes");
    let calls = calls(&server);
    assert_eq!((calls.len(), calls.values().max()), (60, Some(&1)));
}

#[test]
fn execute_on_stopping_server_returns_503() {
    let server = Server::start(with_delay(200));
    let ana = server.owner();
    ana.profile();
    ana.contacts(40);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("some were sent", || server.whatsapp.counters().accepted >= 2);
    server.terminate();
    let reply = run.join().unwrap();
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.refused(503, "UNAVAILABLE");
}

#[test]
fn routes_and_workers_can_be_two_processes() {
    let server = Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..without_statuses()
    });
    let ana = server.owner();
    ana.profile();
    ana.contacts(15);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("the run waits for a worker", || ana.status(&id) == "sending");
    assert!(server.whatsapp.sends().is_empty());
    server.run(&["worker"]);
    let report = run.join().unwrap().ok();
    assert_eq!(
        report,
        json!({ "total": 15, "sent": 15, "failed": 0, "simulated": false, "status": "completed" })
    );
    assert!(calls(&server).values().all(|calls| *calls == 1));
}

#[test]
fn two_servers_share_concurrent_runs() {
    let server = Server::start(without_statuses());
    let sibling = server.sibling();
    let ana = server.owner();
    ana.profile();
    ana.contacts(25);
    let campaigns: Vec<String> = (0..4).map(|_| ana.plain_campaign()).collect();
    std::thread::scope(|scope| {
        for (number, id) in campaigns.iter().enumerate() {
            let path = format!("/api/campaigns/{id}/execute");
            let request = if number % 2 == 0 {
                ana.request("POST", &path)
            } else {
                sibling.request("POST", &path).bearer(&ana.token)
            };
            scope.spawn(move || assert_eq!(request.send().ok()["sent"], 25));
        }
    });
    assert_eq!(server.whatsapp.counters().accepted, 100);
}

#[test]
fn run_survives_broken_database_connections() {
    let server = Server::start(with_delay(20));
    let ana = server.owner();
    let id = start_run(&ana);
    // Breaks every connection except this test's.
    server.db.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    expire_leases(&server);
    until("the run ends", || {
        let reply = ana.get(&format!("/api/campaigns/{id}"));
        if reply.status != 200 {
            // A broken connection fails at most one request.
            assert!(reply.header("retry-after").is_some());
            reply.refused(503, "UNAVAILABLE");
            return false;
        }
        reply.ok()["status"] != "sending"
    });
    assert!(calls(&server).values().all(|calls| *calls == 1));
    until("every broken connection is replaced", || {
        (0..20).all(|_| ana.get("/api/contacts").status == 200)
    });
}
