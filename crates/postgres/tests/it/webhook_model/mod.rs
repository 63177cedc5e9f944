//! Contract test of the ports of webhooks. The stores on a real database and the in-memory store execute the same random
//! steps through the same ports. After each step their outcomes and rows must be equal, with the outbox events that they
//! appended. Where a port leaves a choice open, PostgreSQL chooses, and the in-memory store checks that the choice is
//! allowed and makes the same one. Times are compared in whole hours from now; the order of a queue is exact.
//!
//! Not covered: concurrent writes, and the positions in the queues that a process keeps between its claims.
//!
//! Every failure is reproducible: `RECADO_SEED=7 RECADO_RUNS=40 cargo test -p recado-postgres --test it webhook_model`.
//! Other seeds and more runs cover more histories.

mod callers;
mod choice;
mod state;
mod steps;
mod system;

use self::state::State;
use self::system::{ModelFixture, System};
use crate::histories::{self, falsify, seed_and_cases};

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 10..60;

#[test]
fn webhook_stores_match_the_model() {
    let play = || histories::play::<System>(seed_and_cases(), STEPS, |_: &State| String::new());
    if let Err(failure) = ModelFixture::new("").play(play) {
        panic!("{failure}");
    }
}

#[track_caller]
fn assert_found(bug: &str, quick_seed: u64, planted: &str) {
    ModelFixture::new(planted).play(|| histories::assert_found::<System>(bug, quick_seed, STEPS));
}

#[test]
fn falsified_deliveries_are_found() {
    for (quick_seed, change) in [
        // A claim has the number of the previous one.
        (15, "NEW.claim := OLD.claim;"),
        // A result does not end the lease.
        (50, "NEW.leased := OLD.leased OR NEW.leased;"),
        // Released deliveries wait until their lease would have expired.
        (
            4,
            "IF OLD.leased AND NOT NEW.leased AND NEW.attempt = OLD.attempt AND NEW.state = 'waiting' THEN
           NEW.next_attempt_at := OLD.next_attempt_at; END IF;",
        ),
        // A retry follows at once.
        (1, "IF NOT NEW.leased THEN NEW.next_attempt_at := now(); END IF;"),
        // Deliveries to an endpoint that becomes inactive keep waiting.
        (21, "IF NEW.state = 'dropped' THEN RETURN NULL; END IF;"),
        // Recovery does not find dropped deliveries.
        (
            21,
            "IF NEW.state = 'dropped' THEN NEW.failed_at := OLD.failed_at; END IF;",
        ),
        // Recovery does not find failed deliveries.
        (
            2,
            "IF NEW.state = 'failed' THEN NEW.failed_at := OLD.failed_at; END IF;",
        ),
        // A delivery that is enqueued again continues with its next attempt.
        (27, "IF NEW.attempt = 0 THEN NEW.attempt := OLD.attempt; END IF;"),
    ] {
        assert_found(change, quick_seed, &falsify("webhook_deliveries", "UPDATE", change));
    }
}

#[test]
fn falsified_endpoints_are_found() {
    for (quick_seed, change) in [
        // Two members overwrite each other's changes.
        (1, "NEW.version := OLD.version;"),
        // An endpoint that becomes active keeps its failures.
        (
            141,
            "NEW.failing_since := coalesce(NEW.failing_since, OLD.failing_since);
         NEW.last_failed_at := coalesce(NEW.last_failed_at, OLD.last_failed_at);",
        ),
        // Only the first failure is recorded.
        (
            2,
            "IF NEW.failing_since = OLD.failing_since THEN NEW.last_failed_at := OLD.last_failed_at; END IF;",
        ),
        // A failing endpoint is never disabled.
        (76, "IF NEW.disabled_reason = 'failing' THEN RETURN NULL; END IF;"),
    ] {
        assert_found(change, quick_seed, &falsify("webhook_endpoints", "UPDATE", change));
    }
}

#[test]
fn falsified_inserts_are_found() {
    for (quick_seed, table, change) in [
        // The notification about a disabled endpoint is lost.
        (
            21,
            "outbox_events",
            "IF NEW.payload ->> 'kind' = 'notification' THEN RETURN NULL; END IF;",
        ),
        // An event is delivered to one endpoint only.
        (
            4,
            "webhook_deliveries",
            "IF EXISTS (SELECT FROM webhook_deliveries d WHERE d.event_id = NEW.event_id) THEN RETURN NULL; END IF;",
        ),
        // The claims of an event that is delivered again are counted from one, like those of its first delivery.
        (97, "webhook_deliveries", "NEW.claim := 0;"),
        // An attempt without a response has no log.
        (
            1,
            "webhook_logs",
            "IF NEW.error = 'timed_out' THEN RETURN NULL; END IF;",
        ),
        // A ping appears in the feed.
        (2, "webhook_events", "NEW.seq := coalesce(NEW.seq, 0);"),
    ] {
        assert_found(change, quick_seed, &falsify(table, "INSERT", change));
    }
}

#[test]
fn ignored_conditions_are_found() {
    // Deliveries of suspended accounts are claimed.
    let never_suspended = falsify("accounts", "UPDATE", "NEW.status := 'active';");
    assert_found("suspended accounts", 63, &never_suspended);
    // Events are stored without a subscriber.
    let all_subscribed = "CREATE OR REPLACE FUNCTION has_subscribers(account uuid, kind text) RETURNS boolean
         LANGUAGE sql STABLE AS 'SELECT true'";
    assert_found("events without a subscriber", 10, all_subscribed);
}
