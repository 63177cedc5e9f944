//! The monthly quota with concurrent campaigns, at the end of a month, and at the end of a plan.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::runs::{calls, final_status, usage, without_statuses};
use crate::harness::users::User;
use crate::harness::{Server, text, until};

/// The free plan's messages a month.
const LIMIT: usize = 250;

/// Campaigns that start at once, and messages of each.
const CAMPAIGNS: usize = 10;
const MESSAGES: usize = 5;

/// Campaigns for which the quota is left.
const ADMITTED: usize = 2;

/// Records this many messages of the month as sent.
fn use_up(user: &User<'_>, messages: usize) {
    user.server.db.run(&format!(
        "INSERT INTO message_usage_slots (account_id, month, sent)
           VALUES ('{}', date_trunc('month', now() AT TIME ZONE 'UTC')::date, {messages})",
        user.account
    ));
}

/// Repeats an execute request that got 503 on a busy machine. Each attempt uses a new server, whose rate limiter is
/// empty. Returns `None` if the run had started in spite of the 503 and is completed.
fn retry_execute(server: &Server, user: &User<'_>, campaign: &str, reply: Reply) -> Option<Reply> {
    if reply.status != 503 {
        return Some(reply);
    }
    let mut status = String::new();
    until("a started run is over", || {
        status = user.status(campaign);
        status != "sending"
    });
    if status == "completed" {
        return None;
    }
    let path = format!("/api/campaigns/{campaign}/execute");
    let retried = server.sibling().request("POST", &path).bearer(&user.token).send();
    retry_execute(server, user, campaign, retried)
}

/// F14.
#[test]
fn quota_admits_exactly_two_of_ten_concurrent_campaigns() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "5"));
    let other_server = server.sibling();
    let ana = server.owner();
    ana.profile();
    let campaigns: Vec<String> = (1..=CAMPAIGNS)
        .map(|n| ana.campaign_to(&format!("tag{n}"), 10 * n..10 * n + MESSAGES))
        .collect();
    use_up(&ana, LIMIT - ADMITTED * MESSAGES);
    // Each of the two servers has its own rate limiter, which admits five executions per minute.
    let requests = campaigns.iter().enumerate().map(|(number, id)| {
        let path = format!("/api/campaigns/{id}/execute");
        match number % 2 {
            0 => ana.request("POST", &path),
            _ => other_server.request("POST", &path).bearer(&ana.token),
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
        let Some(reply) = retry_execute(&server, &ana, id, reply) else {
            ran += 1;
            assert_eq!(ana.stats(id)["total"], MESSAGES);
            continue;
        };
        if reply.status == 200 {
            ran += 1;
            assert_eq!(reply.ok()["sent"], MESSAGES);
            continue;
        }
        let error = reply.refused(400, "VALIDATION_ERROR");
        assert!(text(&error["message"]).contains("250"), "{error}");
        assert_eq!((ana.status(id).as_str(), &ana.stats(id)["total"]), ("draft", &json!(0)));
    }
    assert_eq!((ran, server.whatsapp.sends().len()), (ADMITTED, ADMITTED * MESSAGES));
    assert_eq!(usage(&server, &ana.account), format!("{LIMIT} 0"));
}

/// Shifts the database's clock to this many milliseconds before the first of a month.
fn set_time_before_month_end(server: &Server, milliseconds: i64) {
    server.db.run(&format!(
        "DO $$ BEGIN EXECUTE format(
           'CREATE OR REPLACE FUNCTION clock.now() RETURNS timestamptz STABLE LANGUAGE sql AS
              $f$ SELECT pg_catalog.now() + interval %L $f$',
           timestamptz '2031-03-01 00:00:00Z' - interval '{milliseconds} ms' - pg_catalog.clock_timestamp()); END $$"
    ));
}

/// Creates the shifted clock for all new connections.
fn install_clock(server: &Server, milliseconds: i64) {
    server
        .db
        .run("CREATE SCHEMA clock; GRANT USAGE ON SCHEMA clock TO PUBLIC");
    set_time_before_month_end(server, milliseconds);
    server.db.run(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = clock, public, pg_catalog', current_database());
         END $$",
    );
}

/// The sent and reserved messages of an account by month.
fn usage_by_month(server: &Server, account: &str) -> BTreeMap<String, String> {
    let rows = server.db.rows(&format!(
        "SELECT month, sent || ' ' || reserved FROM message_usage WHERE account_id = '{account}' AND sent + reserved > 0"
    ));
    rows.into_iter()
        .map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap()))
        .collect()
}

/// F14: one run begins before midnight and ends after it; another account's quota is exhausted until midnight.
#[test]
fn message_counts_in_one_month_and_new_month_resets_quota() {
    let server = Server::prepare(&without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "25"));
    server.run(&["serve"]);
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    let long = ana.campaign_to("long", 0..200);
    let late = bia.campaign_to("late", 2000..2003);
    install_clock(&server, 15_000);
    // A restart opens new connections, which use the shifted clock.
    server.kill();
    server.run(&["serve"]);
    // A worker creates partitions up to that year: first those of a run, the last of them this one.
    until("a run has its partitions of both months", || {
        server
            .db
            .count("FROM pg_class WHERE relname = 'sent_messages_y2031m03'")
            == 1
    });
    set_time_before_month_end(&server, 15_000);
    server.db.run("SET search_path = clock, public, pg_catalog");
    use_up(&bia, LIMIT);
    let month = || server.db.text("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')");
    ana.send(&long);
    until("the run is prepared", || ana.stats(&long)["total"] == 200);
    let refused = bia.execute(&late);
    assert_eq!(month(), "2031-02", "the machine was too slow for this test");
    refused.refused(400, "VALIDATION_ERROR");
    // Skips to the end of the month during the first run. The skipped time is shorter than the run's lease.
    set_time_before_month_end(&server, 500);
    until("a month begins", || month() == "2031-03");
    let before = server.whatsapp.sends().len();
    assert!(before < 200, "the run was over before midnight");
    // A simulated run has no send rate.
    assert_eq!(bia.execute(&late).ok()["sent"], 3);
    assert_eq!(final_status(&ana, &long), "completed");
    let february = |usage: &str| ("2031-02-01".to_owned(), usage.to_owned());
    assert_eq!(
        usage_by_month(&server, &ana.account),
        BTreeMap::from([february("200 0")])
    );
    let march = ("2031-03-01".to_owned(), "3 0".to_owned());
    assert_eq!(
        usage_by_month(&server, &bia.account),
        BTreeMap::from([february("250 0"), march])
    );
}

/// Starts a run of more messages than the free plan includes and waits until some are sent.
fn start_large_run(ana: &User<'_>) -> String {
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
    until("some messages were sent", || ana.server.whatsapp.sends().len() >= 20);
    id
}

/// F15.
#[test]
fn run_whose_plan_ends_sends_only_its_reservation() {
    let ends = [
        "UPDATE accounts SET plan = 'free'; DELETE FROM subscriptions",
        "UPDATE subscriptions SET status = 'cancelled', current_period_end = now() - interval '1 day'",
        "UPDATE subscriptions SET status = 'inactive'; UPDATE accounts SET plan = 'free'",
    ];
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "1"));
    for end in ends {
        let ana = server.owner();
        server.whatsapp.reset();
        let id = start_large_run(&ana);
        let next = ana.campaign_to("next", 9000..9001);
        server.db.run(end);
        assert_eq!(final_status(&ana, &id), "completed");
        let calls = calls(&server);
        assert!(calls.len() == LIMIT + 30 && calls.values().all(|calls| *calls == 1));
        assert_eq!(usage(&server, &ana.account), format!("{} 0", LIMIT + 30), "{end}");
        ana.execute(&next).refused(400, "VALIDATION_ERROR");
        assert_eq!(server.whatsapp.sends().len(), LIMIT + 30);
    }
}

/// F15.
#[test]
fn run_of_suspended_account_stops_and_keeps_its_reservation() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "5"));
    let ana = server.owner();
    let id = start_large_run(&ana);
    server.db.run("UPDATE accounts SET status = 'suspended'");
    let at_suspension = server.whatsapp.sends().len();
    until("the worker released the run", || {
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
    until("the account is active", || ana.get("/api/contacts").status == 200);
    assert_eq!(final_status(&ana, &id), "completed");
    assert!(calls(&server).values().all(|calls| *calls == 1));
    assert_eq!(usage(&server, &ana.account), format!("{} 0", LIMIT + 30));
}
