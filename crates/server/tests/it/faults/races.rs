//! People who want different things of one campaign at the same time: exactly one of them gets it, and what follows
//! follows from that one alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::rng::TestRng;
use crate::harness::runs::{adds_up, calls, ended, silent, status, statuses, usage};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, WHATSAPP_APP_SECRET, until};

/// Sends all at once; the statuses, in order.
fn at_once(requests: Vec<Request>) -> Vec<u16> {
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = requests
            .into_iter()
            .map(|request| {
                scope.spawn(move || {
                    let reply = request.send();
                    match reply.status {
                        400 => drop(reply.clone().refused(400, "VALIDATION_ERROR")),
                        429 => drop(reply.clone().refused(429, "RATE_LIMIT")),
                        _ => {}
                    }
                    reply.status
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    statuses
}

fn count(statuses: &[u16], wanted: u16) -> usize {
    statuses.iter().filter(|status| **status == wanted).count()
}

/// F11.
#[test]
fn of_twenty_at_once_on_two_servers_one_begins_and_each_recipient_is_called_once() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "10"));
    let other = server.sibling();
    for actions in [["execute", "execute"], ["send", "send"], ["execute", "send"]] {
        let ana = server.owner();
        ana.profile();
        ana.contacts(12);
        let id = ana.plain_campaign();
        server.whatsapp.reset();
        let requests = (0..40 / actions.len() / 2).flat_map(|_| {
            actions.map(|action| {
                let path = format!("/api/campaigns/{id}/{action}");
                [
                    ana.request("POST", &path),
                    other.request("POST", &path).bearer(&ana.token),
                ]
            })
        });
        let statuses = at_once(requests.flatten().collect());
        assert_eq!(statuses.len(), 40);
        // Each server counts for itself here: five requests a minute of each are let in.
        let counts = [200, 400, 429].map(|status| count(&statuses, status));
        assert_eq!(counts, [1, 9, 30], "{actions:?}: {statuses:?}");
        assert_eq!(ended(&ana, &id), "completed");
        let calls = calls(&server);
        assert!(
            calls.len() == 12 && calls.values().all(|calls| *calls == 1),
            "{calls:?}"
        );
        assert_eq!(usage(&server, &ana.account), "12 0");
        let rows = format!("FROM campaign_sends WHERE campaign_id = '{id}'");
        assert_eq!(server.db.count(&rows), 12);
    }
}

/// A campaign that is cancelled, twice at once, some time after its first messages or right at its last one; how many
/// messages left in all.
fn cancelled_at(server: &Server, contacts: usize, rng: &mut TestRng) -> Option<usize> {
    let ana = server.owner();
    ana.profile();
    ana.contacts(contacts);
    let id = ana.plain_campaign();
    server.whatsapp.reset();
    ana.send(&id);
    let mark = rng.below(u64::try_from(contacts + 1).unwrap());
    until("so many left", || server.whatsapp.counters().accepted >= mark);
    std::thread::sleep(rng.moment(8000));
    let cancel = ana.command(&id, "cancel");
    let statuses = at_once(vec![cancel.clone(), cancel]);
    let at_cancel = server.whatsapp.sends().len();
    let cancelled = count(&statuses, 200) == 1;
    assert_eq!(count(&statuses, 400), if cancelled { 1 } else { 2 }, "{statuses:?}");
    until("what was in flight is settled, and the rest is given back", || {
        usage(server, &ana.account) == format!("{} 0", server.whatsapp.counters().accepted)
    });
    let sent = server.whatsapp.sends().len();
    assert!(sent - at_cancel <= 50, "{} left after the cancel", sent - at_cancel);
    let stats = ana.stats(&id);
    adds_up(&stats);
    assert_eq!(stats["sent"], sent, "{stats}");
    let wanted = if cancelled { "cancelled" } else { "completed" };
    assert_eq!(ana.status(&id), wanted);
    assert!(calls(server).values().all(|calls| *calls == 1));
    let audited = format!("FROM audit_logs WHERE entity_id = '{id}' AND changes ->> 'previousStatus' = 'sending'");
    until("the cancel is audited once", || {
        server.db.count(&audited) == i64::from(cancelled)
    });
    cancelled.then_some(sent)
}

/// F12.
#[test]
fn a_cancel_at_any_moment_counts_once_stays_and_gives_back_exactly_what_did_not_leave() {
    let options = Options::platform(|platform| {
        (platform.sent_ms, platform.delivered_ms, platform.read_ms) = (None, None, None);
        platform.latency_ms = 3;
    });
    let server = Server::start(options.with("CAMPAIGN_MESSAGE_DELAY_MS", "2"));
    let mut rng = TestRng::of(12, 1);
    let early = (0..6).filter_map(|_| cancelled_at(&server, 80, &mut rng)).count();
    assert!(early > 0, "every campaign was over before its cancel");
    // Few enough that the cancel and the last message meet.
    for _ in 0..10 {
        cancelled_at(&server, 4, &mut rng);
    }
    // Whoever cancels and whoever records queue up for the campaign.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(server.db.text(deadlocks), "0");
}

/// Whoever waits for somebody else's change of the same sends loses none of its own.
#[test]
fn news_that_waits_for_another_change_of_its_sends_is_applied_to_all_of_them() {
    const CONTACTS: usize = 40;
    let server = Server::start(silent());
    let ana = server.owner();
    let number = "106500000041";
    ana.profile_at(number);
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let told = |send: &Value| {
        status(
            send["wa_message_id"].as_str().unwrap(),
            "delivered",
            send["id"].as_str(),
        )
    };
    let news: Vec<Value> = ana.sends(&id).iter().map(told).collect();
    server.db.run("BEGIN; UPDATE campaign_sends SET attempts = attempts");
    std::thread::scope(|scope| {
        let body = statuses(number, &news).to_string();
        let signature = recado_simulators::whatsapp::signature(WHATSAPP_APP_SECRET, body.as_bytes());
        let callback = server
            .post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signature);
        let callback = callback.body("application/json", body);
        let told = scope.spawn(move || callback.send().status);
        until("the news waits for us", || {
            server
                .db
                .count("FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
                > 0
        });
        server.db.run("COMMIT");
        assert_eq!(told.join().unwrap(), 200);
    });
    assert_eq!(ana.stats(&id)["delivered"], CONTACTS);
}

/// A campaign that is removed and begun at the same moment: its id, and what either was told.
fn removed_and_begun(ana: &User<'_>, template: &str, action: &str, rng: &mut TestRng) -> (String, [u16; 2]) {
    let id = ana.campaign(json!({ "name": "C", "template_id": template }));
    let path = format!("/api/campaigns/{id}");
    let (removal, start) = (
        ana.request("DELETE", &path),
        ana.request("POST", &format!("{path}/{action}")),
    );
    let (first, second) = (rng.moment(3000), rng.moment(3000));
    let later = |moment, request: Request| {
        move || -> Reply {
            std::thread::sleep(moment);
            request.send()
        }
    };
    let (removed, begun) = std::thread::scope(|scope| {
        let (removal, start) = (scope.spawn(later(first, removal)), scope.spawn(later(second, start)));
        (removal.join().unwrap().status, start.join().unwrap().status)
    });
    if removed == 204 {
        ana.get(&path).refused(404, "NOT_FOUND");
    }
    (id, [removed, begun])
}

/// F13.
#[test]
fn a_campaign_is_never_removed_while_it_is_sent_nor_sent_while_it_is_removed() {
    const ROUNDS: usize = 100;
    let server = Server::start(silent());
    // Whoever tried would be told of a fault of ours.
    server
        .db
        .run("ALTER TABLE campaigns ADD CONSTRAINT never CHECK (deleted_at IS NULL OR status <> 'sending')");
    let mut rng = TestRng::of(13, 1);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS / 5 {
        let ana = server.owner();
        ana.contact("C", &phone(1));
        let template = ana.approved("Oi", &[]);
        for round in 0..5 {
            let action = ["send", "execute"][round % 2];
            rounds.push(removed_and_begun(&ana, &template, action, &mut rng));
        }
    }
    until("no run is left", || server.db.count("FROM campaign_queue") == 0);
    for (id, told) in &rounds {
        let sent = server
            .db
            .count(&format!("FROM campaign_sends WHERE campaign_id = '{id}'"));
        match told {
            // Begun, and perhaps removed after its run was over.
            [400 | 204, 200] => assert_eq!(sent, 1, "{id}"),
            [204, 400 | 404] => assert_eq!(sent, 0, "{id}"),
            other => panic!("{other:?}"),
        }
    }
    let outcomes: BTreeSet<&[u16; 2]> = rounds.iter().map(|(_, told)| told).collect();
    assert!(outcomes.len() > 1, "the two never met: {outcomes:?}");
    assert_eq!(server.db.count("FROM campaigns WHERE status = 'sending'"), 0);
}

/// The value that every message of the last run carried.
fn told(server: &Server) -> BTreeSet<Vec<String>> {
    server
        .whatsapp
        .sends()
        .into_iter()
        .map(|send| send.parameters)
        .collect()
}

/// F13: whoever changes the campaign is heard before its run begins, or not at all.
#[test]
fn a_change_is_in_every_message_or_in_none() {
    let server = Server::start(silent());
    let mut rng = TestRng::of(13, 2);
    let mut heard = BTreeSet::new();
    for round in 0..24 {
        let ana = server.owner();
        ana.profile();
        ana.contacts(25);
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        let with = |value: &str| json!({ "1": value });
        let body = json!({ "name": "C", "template_id": template, "variables": with("antes") });
        let path = format!("/api/campaigns/{}", ana.campaign(body));
        server.whatsapp.reset();
        let change = ana.request("PUT", &path).json(&json!({ "variables": with("depois") }));
        let action = ["send", "execute"][round % 2];
        let start = ana.request("POST", &format!("{path}/{action}"));
        let moment = rng.moment(4000);
        let changing = std::thread::spawn(move || {
            std::thread::sleep(moment);
            change.send().status
        });
        let started = start.send();
        let changed = changing.join().unwrap();
        if started.status == 400 {
            // Somebody changed it all the time, it was told: nothing happened.
            assert_eq!((changed, ana.get(&path).ok()["status"].clone()), (200, json!("draft")));
            continue;
        }
        started.ok();
        until("the run is over", || ana.get(&path).ok()["status"] != "sending");
        assert!([200, 400].contains(&changed), "{changed}");
        let wanted = if changed == 200 { "depois" } else { "antes" };
        assert_eq!(told(&server), BTreeSet::from([vec![wanted.to_owned()]]), "{changed}");
        assert_eq!(ana.get(&path).ok()["variables"], with(wanted));
        heard.insert(changed);
    }
    assert_eq!(heard.len(), 2, "the two never met: {heard:?}");
}

/// F13.
#[test]
fn what_is_being_sent_is_not_changed() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "50"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(60);
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let body = json!({ "name": "C", "template_id": template, "variables": { "1": "antes" } });
    let id = ana.campaign(body);
    let path = format!("/api/campaigns/{id}");
    ana.request("POST", &format!("{path}/send")).send().ok();
    let before = ana.get(&path).ok();
    for n in 1..8_usize {
        until("some more were sent", || server.whatsapp.sends().len() > n * 4);
        for change in [
            json!({ "variables": { "1": "depois" } }),
            json!({ "name": "D", "template_id": null }),
        ] {
            ana.put(&path, change).refused(400, "VALIDATION_ERROR");
        }
        ana.delete(&path).refused(400, "VALIDATION_ERROR");
    }
    assert_eq!(ended(&ana, &id), "completed");
    assert_eq!(told(&server), BTreeSet::from([vec!["antes".to_owned()]]));
    let after = ana.get(&path).ok();
    for field in ["name", "template_id", "variables", "segment_id"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    let sends: Vec<Value> = ana.sends(&id);
    assert_eq!(sends.len(), 60);
}
