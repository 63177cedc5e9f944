//! Contract test of the ports of billing. The stores on a real database and the in-memory store execute the same random
//! steps: the use cases, with the same payment gateway, and calls of the ports that a use case makes only in a race or
//! after a crash. After each step the outcomes, the calls of the gateway, all rows and all appended events must be
//! equal.
//!
//! Time passes only by steps: the database's `now()` is the clock of the in-memory store.

mod callers;
mod state;
mod steps;
mod system;

use self::state::State;
use self::system::{System, with_database};
use crate::histories::{self, falsify, seed_and_cases};

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 20..80;

#[track_caller]
fn assert_found(bug: &str, quick_seed: u64, planted: &str) {
    with_database(planted, || histories::assert_found::<System>(bug, quick_seed, STEPS));
}

#[test]
fn billing_stores_match_the_in_memory_store() {
    let played = with_database("", || {
        histories::play::<System>(seed_and_cases(), STEPS, |_: &State| String::new())
    });
    if let Err(failure) = played {
        panic!("{failure}");
    }
}

#[test]
fn falsified_billing_writes_are_found() {
    for (quick_seed, event, table, change) in [
        // A write does not raise the version, so a stale write succeeds.
        (1, "UPDATE", "subscriptions", "NEW.version := OLD.version;"),
        // A write loses a value that no change contains.
        (1, "UPDATE", "subscriptions", "NEW.billing_email := NULL;"),
        // A claim of an intent takes the lease of the request that calls the gateway.
        (
            1,
            "UPDATE",
            "subscriptions",
            "IF NEW.version = OLD.version THEN NEW.intent_until := NEW.intent_check_at; END IF;",
        ),
        // A completed attempt stays an attempt.
        (
            11,
            "UPDATE",
            "subscriptions",
            "NEW.attempt := OLD.attempt AND NEW.intent IS NOT NULL;",
        ),
        // A lapse is not stored.
        (1, "UPDATE", "subscriptions", "NEW.lapsed_at := OLD.lapsed_at;"),
        // The gateway's subscription has no owner.
        (2, "INSERT", "gateway_subscriptions", "RETURN NULL;"),
        // A second report of a payment replaces its time of creation.
        (11, "UPDATE", "billing_history", "NEW.created_at := now();"),
        // A paid plan removes the granted plan.
        (
            6,
            "UPDATE",
            "accounts",
            "IF current_user = 'recado_tenant' THEN NEW.granted_plan := NULL; END IF;",
        ),
        // A withdrawn grant stays.
        (
            44,
            "UPDATE",
            "accounts",
            "IF current_user = 'recado_tenant' THEN NEW.granted_plan := OLD.granted_plan; END IF;",
        ),
        // A finished event is applied again.
        (
            2,
            "UPDATE",
            "gateway_events",
            "NEW.due_at := coalesce(NEW.due_at, OLD.due_at);",
        ),
        // The recorder of an event has no lease.
        (1, "INSERT", "gateway_events", "NEW.due_at := least(NEW.due_at, now());"),
        // A deferral does not count.
        (1, "UPDATE", "gateway_events", "NEW.attempts := OLD.attempts;"),
        // Deferred events are not made due when their subscription appears.
        (
            28,
            "UPDATE",
            "gateway_events",
            "IF NEW.attempts = OLD.attempts AND NEW.due_at < OLD.due_at THEN NEW.due_at := OLD.due_at; END IF;",
        ),
        // The change of a subscription is not published.
        (
            3,
            "INSERT",
            "outbox_events",
            "IF NEW.payload ->> 'type' = 'subscription.changed' THEN RETURN NULL; END IF;",
        ),
    ] {
        assert_found(change, quick_seed, &falsify(table, event, change));
    }
}

/// The mark is lost, so that an event has its effect twice.
#[test]
fn lost_mark_of_an_applied_event_is_found() {
    let bug = "CREATE FUNCTION delete_mark() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           DELETE FROM applied_gateway_events WHERE event_id = NEW.event_id; RETURN NEW; END $$;
         CREATE TRIGGER delete_mark AFTER INSERT ON applied_gateway_events FOR EACH ROW EXECUTE FUNCTION delete_mark()";
    assert_found("lost mark", 2, bug);
}
