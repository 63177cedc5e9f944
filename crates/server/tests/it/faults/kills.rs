//! Servers that are killed at random times of a campaign: no recipient gets a message twice, no send and no
//! acknowledged write is lost.
//!
//! `RECADO_RUNS` sets the number of campaigns (500 for a release), `RECADO_SEED` the seed, which a failure prints.

use std::collections::BTreeSet;

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{
    assert_stats_add_up, calls, expire_leases, final_status, status, statuses, usage, wait_for_stat, without_statuses,
};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, eventually, text, until};

const CONTACTS: usize = 500;

/// Campaigns by default.
const CAMPAIGNS: u64 = 2;

/// Kills per campaign.
const KILLS: u64 = 4;

/// Limit of concurrent sends of a number, and so of the unknown outcomes after one kill.
const MAX_IN_FLIGHT: i64 = 50;

/// Writes tags until the server is killed. The thread returns the names of the acknowledged ones.
fn spawn_writer(create: Request, prefix: String) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut acknowledged = Vec::new();
        for number in 0.. {
            let name = format!("{prefix}-{number}");
            match create.clone().json(&json!({ "name": name })).try_send() {
                Ok(reply) if reply.status == 201 => acknowledged.push(name),
                // On a busy machine the server gets no database connection in time.
                Ok(reply) => drop(reply.refused(503, "UNAVAILABLE")),
                Err(_) => break,
            }
        }
        acknowledged
    })
}

/// The number of sends that a kill left started without a result. Waits until the killed server's connections are gone.
fn count_started_without_result(server: &Server, campaign: &str) -> i64 {
    until("the killed server's connections are closed", || {
        server
            .db
            .count("FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'recado %'")
            == 0
    });
    server.db.count(&format!(
        "FROM campaign_sends WHERE campaign_id = '{campaign}' AND status = 'pending' AND started_at IS NOT NULL
           AND unknown_at IS NULL"
    ))
}

/// Asserts that every acknowledged tag is stored.
fn assert_stored(server: &Server, names: &[String]) {
    let rows = server.db.rows("SELECT name FROM tags");
    let stored: BTreeSet<String> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
    let lost: Vec<&String> = names.iter().filter(|name| !stored.contains(*name)).collect();
    assert!(lost.is_empty(), "acknowledged writes were lost: {lost:?}");
}

/// Runs a campaign through `KILLS` kills. Returns an upper bound of the sends with unknown outcome.
fn run_with_kills(ana: &User<'_>, id: &str, rng: &mut TestRng) -> i64 {
    let server = ana.server;
    let mut second = None;
    let (mut unknown, mut mark) = (0, 0);
    for kill in 0..KILLS {
        mark += 1 + rng.below(u64::try_from(CONTACTS).unwrap() / (KILLS + 1));
        until("the run makes progress", || {
            server.whatsapp.counters().accepted >= mark || ana.status(id) != "sending"
        });
        let writes = spawn_writer(ana.request("POST", "/api/tags"), format!("{id}-{kill}"));
        std::thread::sleep(rng.duration_below(30_000));
        server.kill();
        drop(second.take());
        assert_stored(server, &writes.join().unwrap());
        let left = count_started_without_result(server, id);
        assert!(left <= MAX_IN_FLIGHT, "{left} are unknown");
        unknown += left;
        server.run(&["serve"]);
        second = (rng.below(2) == 1).then(|| server.sibling());
        expire_leases(server);
    }
    let status = final_status(ana, id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    unknown
}

/// Asserts one row and at most one call per recipient, and stats and quota that match the sends.
fn assert_no_loss_and_no_duplicate(ana: &User<'_>, id: &str, unknown: i64) {
    let server = ana.server;
    let stats = wait_for_stat(ana, id, "pending", 0);
    assert_stats_add_up(&stats);
    let calls = calls(server);
    let twice: Vec<_> = calls.iter().filter(|(_, calls)| **calls != 1).collect();
    assert!(twice.is_empty(), "called twice: {twice:?}");
    let rows = server.db.rows(&format!(
        "SELECT c.phone, s.status, s.error_message, s.wa_message_id FROM campaign_sends s
         JOIN contacts c ON c.account_id = s.account_id AND c.id = s.contact_id WHERE s.campaign_id = '{id}'"
    ));
    let phones: BTreeSet<&str> = rows.iter().filter_map(|row| row[0].as_deref()).collect();
    assert_eq!((rows.len(), phones.len()), (CONTACTS, CONTACTS), "one row each");
    let mut failed = 0;
    for row in &rows {
        let (phone, status) = (row[0].as_deref().unwrap(), row[1].as_deref().unwrap());
        if status == "failed" {
            failed += 1;
            assert!(row[2].as_deref().is_some_and(|why| why.contains("unknown")), "{row:?}");
        } else {
            assert!(
                calls.contains_key(phone) && row[3].is_some(),
                "{row:?} was never called"
            );
        }
    }
    assert!(failed <= unknown, "{failed} failed and {unknown} were unknown");
    let sent = i64::try_from(CONTACTS).unwrap() - failed;
    assert_eq!(usage(server, &ana.account), format!("{sent} 0"));
}

/// F01, R1, R2.
#[test]
fn campaign_survives_server_kills_without_loss_or_duplicates() {
    let (runs, seed) = (runs(CAMPAIGNS), seed(20_261_121));
    let options = Options::with_whatsapp(|whatsapp| whatsapp.latency_ms = 10);
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "1s"));
    for run in 0..runs {
        println!("campaign {run} of seed {seed}");
        let mut rng = TestRng::of(seed, run);
        let ana = server.owner();
        server.db.run("UPDATE accounts SET plan = 'scale'");
        let profile = ana.profile();
        if run % 2 == 1 {
            let send_rate = json!({ "messages_per_second": 1000 });
            ana.put(&format!("/api/whatsapp/profiles/{profile}"), send_rate).ok();
        }
        ana.contacts(CONTACTS);
        let id = ana.plain_campaign();
        server.whatsapp.reset();
        // Every other campaign gets no status updates, so that only `SEND_UNKNOWN_TTL` resolves unknown outcomes.
        server.whatsapp.set_options(|whatsapp| {
            let after = (run % 2 == 0).then_some(20);
            (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (after, None, None);
        });
        ana.send(&id);
        let unknown = run_with_kills(&ana, &id, &mut rng);
        assert_no_loss_and_no_duplicate(&ana, &id, unknown);
    }
}

/// The campaign's send to this contact.
fn send_to(ana: &User<'_>, id: &str, number: usize) -> Value {
    let sends = ana.sends(id);
    let found = sends.iter().find(|send| send["contacts"]["phone"] == phone(number));
    found.unwrap().clone()
}

/// F02.
#[test]
fn started_send_of_killed_server_is_resolved_and_not_resent() {
    let server = Server::start(without_statuses().with("SEND_UNKNOWN_TTL", "3s"));
    let ana = server.owner();
    let number = "106500000021";
    ana.profile_at(number);
    ana.contacts(3);
    let hang = |n| WhatsappFault::send_to(&phone(n), WhatsappFaultKind::Hang { ms: 300_000 });
    server.whatsapp.script((0..3).map(hang).collect());
    let id = ana.plain_campaign();
    ana.send(&id);
    until("WhatsApp has every message", || server.whatsapp.sends().len() == 3);
    server.kill();
    server.run(&["serve"]);
    expire_leases(&server);
    until("every outcome is unknown", || {
        server.db.count("FROM campaign_sends WHERE unknown_at IS NOT NULL") == 3
    });
    let send_ids = [0, 1].map(|n| text(&send_to(&ana, &id, n)["id"]));
    let updates = [
        status("wamid.first", "sent", Some(&send_ids[0])),
        status("wamid.second", "delivered", Some(&send_ids[1])),
    ];
    server.callback(&statuses(number, &updates)).expect(200);
    for (n, expected, wamid) in [(0, "sent", "wamid.first"), (1, "delivered", "wamid.second")] {
        let send = send_to(&ana, &id, n);
        assert_eq!(
            (&send["status"], &send["wa_message_id"]),
            (&json!(expected), &json!(wamid))
        );
    }
    assert_eq!(final_status(&ana, &id), "partial");
    let failed = eventually("the third send fails after `SEND_UNKNOWN_TTL`", || {
        Some(send_to(&ana, &id, 2)).filter(|send| send["status"] == "failed")
    });
    assert!(text(&failed["error_message"]).contains("unknown"), "{failed}");
    assert_eq!(failed["wa_message_id"], json!(null));
    assert_eq!(server.whatsapp.sends().len(), 3, "a recipient was called again");
    assert_eq!(usage(&server, &ana.account), "2 0");
    assert_eq!(failed["failure_class"], "again");
}

/// Runs that wait for held sends are woken by a change of the settings, and the server is killed around that time.
#[test]
fn server_killed_at_the_wake_up_of_a_waiting_run_repeats_nothing() {
    const RECIPIENTS: usize = 40;
    let mut rng = TestRng::of(seed(7), 0);
    let options = Options::with_whatsapp(|whatsapp| whatsapp.latency_ms = 10);
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "1s"));
    let ana = server.owner();
    ana.profile_at("106500000001");
    ana.contacts(RECIPIENTS);
    let all_day = json!({ "from": "00:00", "to": "23:59", "zone": "account" });
    let id = ana.plain_campaign();
    for round in 0..3 {
        ana.put("/api/settings", json!({ "quiet_hours": all_day })).ok();
        if round == 0 {
            ana.send(&id);
        }
        // What was called before the kill has ended or is unknown; all the others are held.
        until("the rest of the run waits", || {
            ana.status(&id) != "sending" || server.db.count("FROM campaign_queue WHERE waiting_until IS NOT NULL") == 1
        });
        ana.put("/api/settings", json!({ "quiet_hours": null })).ok();
        std::thread::sleep(rng.duration_below(1_500_000));
        server.kill();
        server.run(&["serve"]);
        expire_leases(&server);
    }
    let status = final_status(&ana, &id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    let stats = wait_for_stat(&ana, &id, "pending", 0);
    assert_stats_add_up(&stats);
    assert_eq!(stats["total"], RECIPIENTS);
    let calls = calls(&server);
    assert!(calls.values().all(|calls| *calls == 1), "{calls:?}");
    let sent = "FROM campaign_sends WHERE status <> 'failed'";
    assert!(server.db.count(sent) <= i64::try_from(calls.len()).unwrap(), "{stats}");
    // Failed is only what a kill left without a result.
    let failed = "FROM campaign_sends WHERE status = 'failed' AND error_message NOT LIKE '%unknown%'";
    assert_eq!(server.db.count(failed), 0);
}
