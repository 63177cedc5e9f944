//! Runs whose server dies, stops, or never had workers of its own.

use serde_json::json;

use crate::harness::runs::{adds_up, calls, counted, ended, lease_ends, silent};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, until};

const CONTACTS: usize = 60;

fn paced(delay_ms: u32) -> Options {
    let options = Options::platform(|platform| platform.latency_ms = 15);
    options.with("CAMPAIGN_MESSAGE_DELAY_MS", delay_ms.to_string())
}

/// Begins a run and returns as soon as some messages left.
fn begin(ana: &User<'_>) -> String {
    ana.profile();
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    // Whoever waits for the run is cut off with the server.
    std::thread::spawn(move || request.try_send().is_ok());
    until("some were sent", || ana.server.whatsapp.counters().accepted >= 10);
    id
}

#[test]
fn a_killed_server_is_followed_by_another_and_nobody_gets_it_twice() {
    let server = Server::start(paced(70).with("SEND_UNKNOWN_TTL", "2s"));
    let ana = server.owner();
    let id = begin(&ana);
    server.kill();
    let before = server.whatsapp.counters().accepted;
    assert!(before < 60, "the kill came too late: {before}");
    server.run(&["serve"]);
    lease_ends(&server);
    let status = ended(&ana, &id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    let calls = calls(&server);
    assert!(
        calls.values().all(|calls| *calls == 1),
        "somebody was called twice: {calls:?}"
    );
    // What was in flight is settled by the platform's own news, or given up.
    let stats = counted(&ana, &id, "pending", 0);
    adds_up(&stats);
    let read = counted(&ana, &id, "read", i64::try_from(calls.len()).unwrap());
    assert_eq!(read["read"].as_i64().unwrap() + read["failed"].as_i64().unwrap(), 60);
    let usage = server.db.text("SELECT sent || ' ' || reserved FROM message_usage");
    assert_eq!(usage, format!("{} 0", calls.len()));
}

#[test]
fn crash_after_crash_nobody_gets_it_twice() {
    let server = Server::start(paced(5).with("SEND_UNKNOWN_TTL", "1s"));
    let ana = server.owner();
    let id = begin(&ana);
    for part in 2..=4 {
        server.kill();
        server.run(&["serve"]);
        lease_ends(&server);
        until("the run moves on", || {
            server.whatsapp.counters().accepted >= part * 12 || ana.status(&id) != "sending"
        });
    }
    ended(&ana, &id);
    assert!(calls(&server).values().all(|calls| *calls == 1));
    let stats = counted(&ana, &id, "pending", 0);
    adds_up(&stats);
    assert_eq!(stats["total"], 60);
}

/// A server that stood still for longer than its lease finds its own run free, and takes it like anybody's.
#[test]
fn a_run_that_its_own_server_takes_again_is_carried_out_once() {
    let slow = Options::platform(|platform| {
        platform.latency_ms = 1000;
        (platform.sent_ms, platform.delivered_ms, platform.read_ms) = (None, None, None);
    });
    let server = Server::start(slow.with("CAMPAIGN_MESSAGE_DELAY_MS", "0"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(240);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("some were sent", || server.whatsapp.counters().accepted >= 25);
    lease_ends(&server);
    let open = || {
        server
            .db
            .count("FROM campaign_sends WHERE status = 'pending' AND started_at IS NOT NULL AND unknown_at IS NULL")
    };
    let mut most = 0;
    until("it is over", || {
        most = most.max(open());
        ana.status(&id) != "sending"
    });
    assert!(most <= 50, "{most} were in flight");
    assert_eq!(ended(&ana, &id), "completed");
    assert!(calls(&server).values().all(|calls| *calls == 1));
}

/// Most of its sends are made while it goes on.
#[test]
fn a_large_audience_survives_a_crash_whole() {
    let options = silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "0");
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "1s"));
    let ana = server.owner();
    ana.profile();
    server.db.run("UPDATE accounts SET plan = 'growth'");
    let people = 14_000;
    let rows: String = (0..people).map(|n| format!("Ana,{}\n", phone(n))).collect();
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
    lease_ends(&server);
    let status = ended(&ana, &id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    let stats = counted(&ana, &id, "pending", 0);
    assert_eq!(stats["total"], people);
    assert_eq!(
        ana.get(&format!("/api/campaigns/{id}/sends")).expect(200)["total"],
        people
    );
    let calls = calls(&server);
    assert!(calls.values().all(|calls| *calls == 1));
    // What was in flight is in doubt, nobody else.
    let failed = stats["failed"].as_u64().unwrap();
    let called = u64::try_from(calls.len()).unwrap();
    assert!(failed <= 50 && called + failed >= 14_000, "{stats} {called}");
}

#[test]
fn a_stopping_server_hands_its_run_over() {
    let server = Server::start(paced(30));
    let ana = server.owner();
    let other = server.sibling();
    let id = begin(&ana);
    let began = std::time::Instant::now();
    assert_eq!(server.stop(), Some(0));
    assert!(began.elapsed() < crate::harness::DEADLINE, "{:?}", began.elapsed());
    let status = crate::harness::eventually("the other server ends the run", || {
        let campaign = other
            .request("GET", &format!("/api/campaigns/{id}"))
            .bearer(&ana.token)
            .send()
            .ok();
        (campaign["status"] != "sending").then(|| campaign["status"].clone())
    });
    assert_eq!(status, "completed", "a hand-over leaves nothing in doubt");
    let calls = calls(&server);
    assert_eq!((calls.len(), calls.values().max()), (60, Some(&1)));
}

#[test]
fn whoever_waits_at_a_stopping_server_is_told() {
    let server = Server::start(paced(200));
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
fn routes_and_workers_may_be_two_processes() {
    let server = Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..silent()
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
fn two_servers_share_the_work_of_many_runs() {
    let server = Server::start(silent());
    let other = server.sibling();
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
                other.request("POST", &path).bearer(&ana.token)
            };
            scope.spawn(move || assert_eq!(request.send().ok()["sent"], 25));
        }
    });
    assert_eq!(server.whatsapp.counters().accepted, 100);
}

#[test]
fn a_database_that_goes_away_for_a_moment_is_survived() {
    let server = Server::start(paced(20));
    let ana = server.owner();
    let id = begin(&ana);
    // Every connection but this test's breaks at once.
    server.db.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    lease_ends(&server);
    until("the run ends", || {
        let reply = ana.get(&format!("/api/campaigns/{id}"));
        if reply.status != 200 {
            // A connection that broke is one refused request, and never more than that.
            assert!(reply.header("retry-after").is_some());
            reply.refused(503, "UNAVAILABLE");
            return false;
        }
        reply.ok()["status"] != "sending"
    });
    assert!(calls(&server).values().all(|calls| *calls == 1));
    until("every connection is a new one", || {
        (0..20).all(|_| ana.get("/api/contacts").status == 200)
    });
}
