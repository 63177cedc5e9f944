//! Servers that are killed in the middle of a campaign, at any moment: nobody gets a message twice, nobody is lost, and
//! what was acknowledged is there.
//!
//! `RECADO_RUNS` (campaigns; 500 of them are a release's proof) and `RECADO_SEED` make the test longer, and another
//! one. A failure tells its seed.

use std::collections::BTreeSet;

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{adds_up, calls, counted, ended, lease_ends, silent, status, statuses, usage};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, eventually, text, until};

const CONTACTS: usize = 500;

/// Each campaign meets so many kills.
const KILLS: u64 = 4;

/// The most sends of a number that are in flight, and so the most that one kill leaves unknown.
const IN_FLIGHT: i64 = 50;

/// Somebody who writes all the time, until the server is gone; what was acknowledged.
fn writer(create: Request, mark: String) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for number in 0.. {
            let name = format!("{mark}-{number}");
            match create.clone().json(&json!({ "name": name })).try_send() {
                Ok(reply) if reply.status == 201 => kept.push(name),
                // A machine that is busy opens no connection in time, and the server says so.
                Ok(reply) => drop(reply.refused(503, "UNAVAILABLE")),
                Err(_) => break,
            }
        }
        kept
    })
}

/// What a kill left started and unrecorded, which nobody has noted yet; once the database has ended what the killed
/// server had asked of it.
fn left_started(server: &Server, campaign: &str) -> i64 {
    until("the database has let go of whom was killed", || {
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

/// Every tag that was acknowledged.
fn are_there(server: &Server, names: &[String]) {
    let rows = server.db.rows("SELECT name FROM tags");
    let there: BTreeSet<String> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
    let lost: Vec<&String> = names.iter().filter(|name| !there.contains(*name)).collect();
    assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
}

/// One campaign through its kills; how many sends they left unknown, at most.
fn kills(ana: &User<'_>, id: &str, rng: &mut TestRng) -> i64 {
    let server = ana.server;
    let mut second = None;
    let (mut unknown, mut mark) = (0, 0);
    for kill in 0..KILLS {
        mark += 1 + rng.below(u64::try_from(CONTACTS).unwrap() / (KILLS + 1));
        until("the run moves on", || {
            server.whatsapp.counters().accepted >= mark || ana.status(id) != "sending"
        });
        let writes = writer(ana.request("POST", "/api/tags"), format!("{id}-{kill}"));
        std::thread::sleep(rng.moment(30_000));
        server.kill();
        drop(second.take());
        are_there(server, &writes.join().unwrap());
        let left = left_started(server, id);
        assert!(left <= IN_FLIGHT, "{left} are unknown");
        unknown += left;
        server.run(&["serve"]);
        second = (rng.below(2) == 1).then(|| server.sibling());
        lease_ends(server);
    }
    let status = ended(ana, id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    unknown
}

/// What must be true of every campaign, however often its servers died.
fn nobody_twice_and_nobody_lost(ana: &User<'_>, id: &str, unknown: i64) {
    let server = ana.server;
    let stats = counted(ana, id, "pending", 0);
    adds_up(&stats);
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
                "{row:?} and never called"
            );
        }
    }
    assert!(failed <= unknown, "{failed} failed and {unknown} were unknown");
    let sent = i64::try_from(CONTACTS).unwrap() - failed;
    assert_eq!(usage(server, &ana.account), format!("{sent} 0"));
}

/// F01, R1, R2.
#[test]
fn servers_killed_at_any_moment_of_a_campaign_write_to_nobody_twice_and_lose_nobody() {
    let (runs, seed) = (runs(2), seed(20_261_121));
    let options = Options::platform(|platform| platform.latency_ms = 10);
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "1s"));
    for run in 0..runs {
        println!("campaign {run} of seed {seed}");
        let mut rng = TestRng::of(seed, run);
        let ana = server.owner();
        server.db.run("UPDATE accounts SET plan = 'scale'");
        let profile = ana.profile();
        if run % 2 == 1 {
            let pace = json!({ "messages_per_second": 1000 });
            ana.put(&format!("/api/whatsapp/profiles/{profile}"), pace).ok();
        }
        ana.contacts(CONTACTS);
        let id = ana.plain_campaign();
        server.whatsapp.reset();
        // Every other campaign hears nothing from the platform, so that only time settles what is unknown.
        server.whatsapp.set_options(|platform| {
            let after = (run % 2 == 0).then_some(20);
            (platform.sent_ms, platform.delivered_ms, platform.read_ms) = (after, None, None);
        });
        ana.send(&id);
        let unknown = kills(&ana, &id, &mut rng);
        nobody_twice_and_nobody_lost(&ana, &id, unknown);
    }
}

/// The send to this contact.
fn send_to(ana: &User<'_>, id: &str, number: usize) -> Value {
    let sends = ana.sends(id);
    let found = sends.iter().find(|send| send["contacts"]["phone"] == phone(number));
    found.unwrap().clone()
}

/// F02.
#[test]
fn what_the_platform_had_when_the_server_died_is_not_sent_again_and_is_settled_by_news_or_by_time() {
    let server = Server::start(silent().with("SEND_UNKNOWN_TTL", "3s"));
    let ana = server.owner();
    let number = "106500000021";
    ana.profile_at(number);
    ana.contacts(3);
    let hang = |n| WhatsappFault::send_to(&phone(n), WhatsappFaultKind::Hang { ms: 300_000 });
    server.whatsapp.script((0..3).map(hang).collect());
    let id = ana.plain_campaign();
    ana.send(&id);
    until("the platform has every message", || server.whatsapp.sends().len() == 3);
    server.kill();
    server.run(&["serve"]);
    lease_ends(&server);
    until("all are unknown", || {
        server.db.count("FROM campaign_sends WHERE unknown_at IS NOT NULL") == 3
    });
    let ours = [0, 1].map(|n| text(&send_to(&ana, &id, n)["id"]));
    let news = [
        status("wamid.first", "sent", Some(&ours[0])),
        status("wamid.second", "delivered", Some(&ours[1])),
    ];
    server.callback(&statuses(number, &news)).expect(200);
    for (n, wanted, wamid) in [(0, "sent", "wamid.first"), (1, "delivered", "wamid.second")] {
        let send = send_to(&ana, &id, n);
        assert_eq!(
            (&send["status"], &send["wa_message_id"]),
            (&json!(wanted), &json!(wamid))
        );
    }
    assert_eq!(ended(&ana, &id), "partial");
    let failed = eventually("time settles the third", || {
        Some(send_to(&ana, &id, 2)).filter(|send| send["status"] == "failed")
    });
    assert!(text(&failed["error_message"]).contains("unknown"), "{failed}");
    assert_eq!(failed["wa_message_id"], json!(null));
    assert_eq!(server.whatsapp.sends().len(), 3, "nobody was called again");
    assert_eq!(usage(&server, &ana.account), "2 0");
    assert_eq!(failed["failure_class"], "again");
}
