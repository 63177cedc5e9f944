//! Concurrent commands on one campaign: exactly one of them succeeds, and all effects follow from it alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::rng::TestRng;
use crate::harness::runs::{assert_stats_add_up, calls, final_status, status, statuses, usage, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, Sibling, WHATSAPP_APP_SECRET, until};

/// Sends all requests concurrently and returns the sorted statuses.
fn send_concurrently(requests: Vec<Request>) -> Vec<u16> {
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

fn count(statuses: &[u16], expected: u16) -> usize {
    statuses.iter().filter(|status| **status == expected).count()
}

/// Requests that start one campaign at the same time: half of them at each of two servers.
const CONTENDERS: usize = 40;

/// Of these, how many must wait for the campaign's row while the first one starts it.
const WAITING: i64 = 20;

/// Makes a start wait, inside its transaction, until enough others wait for the campaign. It stores how many did. Their
/// lock timeout is longer than this wait.
fn gather_contenders(server: &Server) {
    server.db.run(&format!(
        "CREATE TABLE races (waiting bigint);
         CREATE FUNCTION gather() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
         DECLARE waiting bigint;
         BEGIN
           FOR i IN 1..80 LOOP
             SELECT count(*) INTO waiting FROM pg_locks l JOIN pg_database d ON d.oid = l.database OR l.database IS NULL
               WHERE d.datname = current_database() AND NOT l.granted;
             EXIT WHEN waiting >= {WAITING};
             PERFORM pg_sleep(0.01);
           END LOOP;
           INSERT INTO races VALUES (waiting);
           RETURN NULL;
         END $$;
         CREATE TRIGGER gather AFTER UPDATE ON campaigns FOR EACH ROW
           WHEN (OLD.status <> 'sending' AND NEW.status = 'sending') EXECUTE FUNCTION gather()"
    ));
}

/// Starts one campaign from all contenders, by these actions in turn. Exactly one succeeds. Returns how many waited for it.
fn race(server: &Server, other_server: &Sibling, actions: [&str; 2]) -> i64 {
    let ana = server.owner();
    ana.profile();
    ana.contacts(12);
    let id = ana.plain_campaign();
    server.whatsapp.reset();
    server.db.run("DELETE FROM races");
    let requests = (0..CONTENDERS).map(|number| {
        let request = ana.command(&id, actions[number / 2 % 2]);
        if number % 2 == 0 {
            request
        } else {
            request.at(other_server.port())
        }
    });
    let statuses = send_concurrently(requests.collect());
    let counts = [200, 400].map(|status| count(&statuses, status));
    assert_eq!(counts, [1, CONTENDERS - 1], "{actions:?}: {statuses:?}");
    assert_eq!(final_status(&ana, &id), "completed");
    let calls = calls(server);
    assert!(
        calls.len() == 12 && calls.values().all(|calls| *calls == 1),
        "{calls:?}"
    );
    assert_eq!(usage(server, &ana.account), "12 0");
    let rows = format!("FROM campaign_sends WHERE campaign_id = '{id}'");
    assert_eq!(server.db.count(&rows), 12);
    server.db.text("SELECT waiting FROM races").parse().unwrap()
}

/// F11.
#[test]
fn concurrent_starts_on_two_servers_begin_one_run() {
    // Without a reachable Redis the rate limiter admits every request, so that all of them reach the campaign.
    let options = without_statuses().with("REDIS_URL", "redis://127.0.0.1:1");
    let options = options
        .with("CAMPAIGN_MESSAGE_DELAY_MS", "10")
        .with("DATABASE_POOL_SIZE", "20");
    let server = Server::start(options);
    let other_server = server.sibling();
    gather_contenders(&server);
    for actions in [["execute", "execute"], ["send", "send"], ["execute", "send"]] {
        until("enough contenders wait for the first", || {
            race(&server, &other_server, actions) >= WAITING
        });
    }
}

/// Cancels a campaign twice at the same time, after a random number of messages. Returns the number of sent messages if
/// a cancel succeeded.
fn cancel_at_random_time(server: &Server, contacts: usize, rng: &mut TestRng) -> Option<usize> {
    let ana = server.owner();
    ana.profile();
    ana.contacts(contacts);
    let id = ana.plain_campaign();
    server.whatsapp.reset();
    ana.send(&id);
    let mark = rng.below(u64::try_from(contacts + 1).unwrap());
    until("enough messages left", || server.whatsapp.counters().accepted >= mark);
    std::thread::sleep(rng.duration_below(8000));
    let cancel = ana.command(&id, "cancel");
    let statuses = send_concurrently(vec![cancel.clone(), cancel]);
    let at_cancel = server.whatsapp.sends().len();
    let cancelled = count(&statuses, 200) == 1;
    // On a busy machine the second cancel may give up waiting for the first one's lock. It changes nothing, either.
    let refused = count(&statuses, 400) + count(&statuses, 503);
    assert_eq!(refused, if cancelled { 1 } else { 2 }, "{statuses:?}");
    until("sends in flight are resolved and the rest is released", || {
        usage(server, &ana.account) == format!("{} 0", server.whatsapp.counters().accepted)
    });
    let sent = server.whatsapp.sends().len();
    assert!(sent - at_cancel <= 50, "{} left after the cancel", sent - at_cancel);
    let stats = ana.stats(&id);
    assert_stats_add_up(&stats);
    assert_eq!(stats["sent"], sent, "{stats}");
    let expected = if cancelled { "cancelled" } else { "completed" };
    assert_eq!(ana.status(&id), expected);
    assert!(calls(server).values().all(|calls| *calls == 1));
    let audited = format!("FROM audit_logs WHERE entity_id = '{id}' AND changes ->> 'previousStatus' = 'sending'");
    until("the cancel is audited once", || {
        server.db.count(&audited) == i64::from(cancelled)
    });
    cancelled.then_some(sent)
}

/// F12.
#[test]
fn cancel_at_any_time_counts_once_and_releases_the_rest() {
    let options = Options::with_whatsapp(|whatsapp| {
        (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (None, None, None);
        whatsapp.latency_ms = 3;
    });
    let server = Server::start(options.with("CAMPAIGN_MESSAGE_DELAY_MS", "2"));
    let mut rng = TestRng::of(12, 1);
    let early = (0..6)
        .filter_map(|_| cancel_at_random_time(&server, 80, &mut rng))
        .count();
    assert!(early > 0, "every campaign was over before its cancel");
    // A campaign so small that the cancel and the last message coincide.
    for _ in 0..10 {
        cancel_at_random_time(&server, 4, &mut rng);
    }
    // A cancel and the recording of results wait for the same campaign lock, so they never deadlock.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(server.db.text(deadlocks), "0");
}

/// Status updates wait for a concurrent transaction that locked the same sends.
#[test]
fn status_updates_behind_a_row_lock_apply_to_every_send() {
    const CONTACTS: usize = 40;
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let number = "106500000041";
    ana.profile_at(number);
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let delivered = |send: &Value| {
        status(
            send["wa_message_id"].as_str().unwrap(),
            "delivered",
            send["id"].as_str(),
        )
    };
    let updates: Vec<Value> = ana.sends(&id).iter().map(delivered).collect();
    server.db.run("BEGIN; UPDATE campaign_sends SET attempts = attempts");
    std::thread::scope(|scope| {
        let body = statuses(number, &updates).to_string();
        let signature = recado_simulators::whatsapp::signature(WHATSAPP_APP_SECRET, body.as_bytes());
        let callback = server
            .post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signature);
        let callback = callback.body("application/json", body);
        let response = scope.spawn(move || callback.send().status);
        until("the callback waits for the row locks", || {
            server
                .db
                .count("FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
                > 0
        });
        server.db.run("COMMIT");
        assert_eq!(response.join().unwrap(), 200);
    });
    assert_eq!(ana.stats(&id)["delivered"], CONTACTS);
}

/// Deletes and starts a campaign at the same time. Returns its id and the status of both responses.
fn delete_and_start(ana: &User<'_>, template: &str, action: &str, rng: &mut TestRng) -> (String, [u16; 2]) {
    let id = ana.campaign(json!({ "name": "C", "template_id": template }));
    let path = format!("/api/campaigns/{id}");
    let (delete, start) = (
        ana.request("DELETE", &path),
        ana.request("POST", &format!("{path}/{action}")),
    );
    let (first, second) = (rng.duration_below(3000), rng.duration_below(3000));
    let send_after = |delay, request: Request| {
        move || -> Reply {
            std::thread::sleep(delay);
            request.send()
        }
    };
    let (deleted, started) = std::thread::scope(|scope| {
        let (delete, start) = (
            scope.spawn(send_after(first, delete)),
            scope.spawn(send_after(second, start)),
        );
        (delete.join().unwrap().status, start.join().unwrap().status)
    });
    if deleted == 204 {
        ana.get(&path).refused(404, "NOT_FOUND");
    }
    (id, [deleted, started])
}

/// F13.
#[test]
fn campaign_is_never_both_deleted_and_sending() {
    const ROUNDS: usize = 100;
    let server = Server::start(without_statuses());
    // A violation of this constraint makes the request fail with a server error.
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
            rounds.push(delete_and_start(&ana, &template, action, &mut rng));
        }
    }
    until("no run is left", || server.db.count("FROM campaign_queue") == 0);
    for (id, replies) in &rounds {
        let sent = server
            .db
            .count(&format!("FROM campaign_sends WHERE campaign_id = '{id}'"));
        match replies {
            // Started, and perhaps deleted after its run was over.
            [400 | 204, 200] => assert_eq!(sent, 1, "{id}"),
            [204, 400 | 404] => assert_eq!(sent, 0, "{id}"),
            other => panic!("{other:?}"),
        }
    }
    let outcomes: BTreeSet<&[u16; 2]> = rounds.iter().map(|(_, replies)| replies).collect();
    assert!(outcomes.len() > 1, "the delete and the start never raced: {outcomes:?}");
    assert_eq!(server.db.count("FROM campaigns WHERE status = 'sending'"), 0);
}

/// The distinct parameters of the messages of the last run.
fn message_parameters(server: &Server) -> BTreeSet<Vec<String>> {
    server
        .whatsapp
        .sends()
        .into_iter()
        .map(|send| send.parameters)
        .collect()
}

/// F13: a change of the campaign applies before its run begins, or not at all.
#[test]
fn concurrent_change_is_in_every_message_or_in_none() {
    let server = Server::start(without_statuses());
    let mut rng = TestRng::of(13, 2);
    let mut change_statuses = BTreeSet::new();
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
        let delay = rng.duration_below(4000);
        let changing = std::thread::spawn(move || {
            std::thread::sleep(delay);
            change.send().status
        });
        let started = start.send();
        let changed = changing.join().unwrap();
        if started.status == 400 {
            // The start lost to the concurrent change: nothing happened.
            assert_eq!((changed, ana.get(&path).ok()["status"].clone()), (200, json!("draft")));
            continue;
        }
        started.ok();
        until("the run is over", || ana.get(&path).ok()["status"] != "sending");
        assert!([200, 400].contains(&changed), "{changed}");
        let expected = if changed == 200 { "depois" } else { "antes" };
        assert_eq!(
            message_parameters(&server),
            BTreeSet::from([vec![expected.to_owned()]]),
            "{changed}"
        );
        assert_eq!(ana.get(&path).ok()["variables"], with(expected));
        change_statuses.insert(changed);
    }
    assert_eq!(
        change_statuses.len(),
        2,
        "the change and the start never raced: {change_statuses:?}"
    );
}

/// F13.
#[test]
fn sending_campaign_rejects_changes() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "50"));
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
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(message_parameters(&server), BTreeSet::from([vec!["antes".to_owned()]]));
    let after = ana.get(&path).ok();
    for field in ["name", "template_id", "variables", "segment_id"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    let sends: Vec<Value> = ana.sends(&id);
    assert_eq!(sends.len(), 60);
}
