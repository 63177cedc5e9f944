//! The month's messages, when many want the last of them, when the month ends, and when the plan does.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::runs::{calls, ended, silent, usage};
use crate::harness::users::User;
use crate::harness::{Server, text, until};

/// The free plan's messages a month.
const LIMIT: usize = 250;

/// So many of the month's messages are used.
fn use_up(user: &User<'_>, messages: usize) {
    user.server.db.run(&format!(
        "INSERT INTO message_usage_slots (account_id, month, sent)
           VALUES ('{}', date_trunc('month', now() AT TIME ZONE 'UTC')::date, {messages})",
        user.account
    ));
}

/// The answer to an execution, asked for again where a busy machine gave none (each time by a server that has not counted
/// the account's executions of this minute). None: it had begun all the same, and is over.
fn decided(server: &Server, user: &User<'_>, campaign: &str, reply: Reply) -> Option<Reply> {
    if reply.status != 503 {
        return Some(reply);
    }
    let mut status = String::new();
    until("what had begun is over", || {
        status = user.status(campaign);
        status != "sending"
    });
    if status == "completed" {
        return None;
    }
    let path = format!("/api/campaigns/{campaign}/execute");
    let again = server.sibling().request("POST", &path).bearer(&user.token).send();
    decided(server, user, campaign, again)
}

/// F14.
#[test]
fn of_ten_campaigns_at_once_two_fit_and_the_others_send_nothing() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "5"));
    let other = server.sibling();
    let ana = server.owner();
    ana.profile();
    let campaigns: Vec<String> = (1..=10)
        .map(|n| ana.campaign_to(&format!("tag{n}"), 10 * n..10 * n + 5))
        .collect();
    use_up(&ana, LIMIT - 10);
    // Five executions a minute are let in by each of two servers that count for themselves.
    let requests = campaigns.iter().enumerate().map(|(number, id)| {
        let path = format!("/api/campaigns/{id}/execute");
        match number % 2 {
            0 => ana.request("POST", &path),
            _ => other.request("POST", &path).bearer(&ana.token),
        }
    });
    let requests: Vec<_> = requests.collect();
    let replies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = requests
            .into_iter()
            .map(|request| scope.spawn(move || request.send()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut ran = 0;
    for (id, reply) in campaigns.iter().zip(replies) {
        let Some(reply) = decided(&server, &ana, id, reply) else {
            ran += 1;
            assert_eq!(ana.stats(id)["total"], 5);
            continue;
        };
        if reply.status == 200 {
            ran += 1;
            assert_eq!(reply.ok()["sent"], 5);
            continue;
        }
        let error = reply.refused(400, "VALIDATION_ERROR");
        assert!(text(&error["message"]).contains("250"), "{error}");
        assert_eq!((ana.status(id).as_str(), &ana.stats(id)["total"]), ("draft", &json!(0)));
    }
    assert_eq!((ran, server.whatsapp.counters().accepted), (2, 10));
    assert_eq!(usage(&server, &ana.account), format!("{LIMIT} 0"));
}

/// Lets the database's clock stand so many milliseconds before the first of a month.
fn midnight_in(server: &Server, milliseconds: i64) {
    server.db.run(&format!(
        "DO $$ BEGIN EXECUTE format(
           'CREATE OR REPLACE FUNCTION clock.now() RETURNS timestamptz STABLE LANGUAGE sql AS
              $f$ SELECT pg_catalog.now() + interval %L $f$',
           timestamptz '2031-03-01 00:00:00Z' - interval '{milliseconds} ms' - pg_catalog.clock_timestamp()); END $$"
    ));
}

/// The same, for whoever connects from now on.
fn near_the_end_of_the_month(server: &Server, milliseconds: i64) {
    server
        .db
        .run("CREATE SCHEMA clock; GRANT USAGE ON SCHEMA clock TO PUBLIC");
    midnight_in(server, milliseconds);
    server.db.run(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = clock, public, pg_catalog', current_database());
         END $$",
    );
}

fn months(server: &Server, account: &str) -> BTreeMap<String, String> {
    let rows = server.db.rows(&format!(
        "SELECT month, sent || ' ' || reserved FROM message_usage WHERE account_id = '{account}' AND sent + reserved > 0"
    ));
    rows.into_iter()
        .map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap()))
        .collect()
}

/// F14: one run begins before midnight and ends after it; one account has nothing left until midnight.
#[test]
fn each_message_counts_in_one_month_and_a_new_month_is_a_new_allowance() {
    let server = Server::prepare(&silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "25"));
    server.run(&["serve"]);
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    let long = ana.campaign_to("long", 0..200);
    let late = bia.campaign_to("late", 2000..2003);
    near_the_end_of_the_month(&server, 15_000);
    // Every connection is a new one, and so reads the other clock.
    server.kill();
    server.run(&["serve"]);
    server.db.run("SET search_path = clock, public, pg_catalog");
    use_up(&bia, LIMIT);
    let month = || server.db.text("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')");
    ana.send(&long);
    until("the run is prepared", || ana.stats(&long)["total"] == 200);
    let refused = bia.execute(&late);
    assert_eq!(month(), "2031-02", "the machine was too slow for this test");
    refused.refused(400, "VALIDATION_ERROR");
    // While the first run is under way, however long all this took; the run's lease lasts longer than what is left out.
    midnight_in(&server, 500);
    until("a month begins", || month() == "2031-03");
    let before = server.whatsapp.sends().len();
    assert!(before < 200, "the run was over before midnight");
    // A simulated run waits for nobody's pace.
    assert_eq!(bia.execute(&late).ok()["sent"], 3);
    assert_eq!(ended(&ana, &long), "completed");
    let february = |usage: &str| ("2031-02-01".to_owned(), usage.to_owned());
    assert_eq!(months(&server, &ana.account), BTreeMap::from([february("200 0")]));
    let march = ("2031-03-01".to_owned(), "3 0".to_owned());
    assert_eq!(
        months(&server, &bia.account),
        BTreeMap::from([february("250 0"), march])
    );
}

/// A run under way, of more messages than the free plan has.
fn under_way(ana: &User<'_>) -> String {
    ana.server.db.run(&format!(
        "UPDATE accounts SET plan = 'starter' WHERE id = '{account}';
         INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, current_period_end)
           VALUES ('{account}', '{}', 'starter', 'MONTHLY', 'active', 'PIX', 9700, now() + interval '1 day')",
        Uuid::now_v7(),
        account = ana.account
    ));
    ana.profile();
    let id = ana.campaign_to("all", 0..LIMIT + 30);
    ana.send(&id);
    until("some were sent", || ana.server.whatsapp.sends().len() >= 20);
    id
}

/// F15.
#[test]
fn a_plan_that_ends_during_a_run_lets_it_have_what_it_reserved_and_nothing_more() {
    let ends = [
        "UPDATE accounts SET plan = 'free'; DELETE FROM subscriptions",
        "UPDATE subscriptions SET status = 'cancelled', current_period_end = now() - interval '1 day'",
        "UPDATE subscriptions SET status = 'inactive'; UPDATE accounts SET plan = 'free'",
    ];
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "1"));
    for end in ends {
        let ana = server.owner();
        server.whatsapp.reset();
        let id = under_way(&ana);
        let next = ana.campaign_to("next", 9000..9001);
        server.db.run(end);
        assert_eq!(ended(&ana, &id), "completed");
        let calls = calls(&server);
        assert!(calls.len() == LIMIT + 30 && calls.values().all(|calls| *calls == 1));
        assert_eq!(usage(&server, &ana.account), format!("{} 0", LIMIT + 30), "{end}");
        ana.execute(&next).refused(400, "VALIDATION_ERROR");
        assert_eq!(server.whatsapp.sends().len(), LIMIT + 30);
    }
}

/// F15.
#[test]
fn an_account_that_is_suspended_during_a_run_stops_within_the_check_and_keeps_its_reservation() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "5"));
    let ana = server.owner();
    let id = under_way(&ana);
    server.db.run("UPDATE accounts SET status = 'suspended'");
    let at_suspension = server.whatsapp.sends().len();
    until("the worker let go", || {
        server.db.count("FROM campaign_queue WHERE worker IS NOT NULL") == 0
    });
    let sent = server.whatsapp.sends().len();
    assert!(
        sent - at_suspension <= 50,
        "{} left after the suspension",
        sent - at_suspension
    );
    assert_eq!(usage(&server, &ana.account), format!("{sent} {}", LIMIT + 30 - sent));
    server.db.run("UPDATE accounts SET status = 'active'");
    until("the account is open", || ana.get("/api/contacts").status == 200);
    assert_eq!(ended(&ana, &id), "completed");
    assert!(calls(&server).values().all(|calls| *calls == 1));
    assert_eq!(usage(&server, &ana.account), format!("{} 0", LIMIT + 30));
}
