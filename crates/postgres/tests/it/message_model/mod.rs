//! Contract test of the ports of direct messages. The stores on a real database and the in-memory store execute the same
//! random steps. After each step the outcomes, all rows and all appended events must be equal.
//!
//! The steps are those of clients, of workers that die, stall and lose their lease, and of status updates in any order.
//! Time passes only by steps: the database's `now()` is the clock of the in-memory store. Contacts, templates and plans
//! are those of the caller of the in-memory store.
//!
//! Not covered: reads of single messages and of lists, new contacts, files, and concurrent writes.
//!
//! Every failure is reproducible: `RECADO_SEED=7 RECADO_RUNS=40 cargo test -p recado-postgres --test it message_model`.
//! Other seeds and more runs cover more histories.

mod lines;
mod state;
mod steps;
mod system;

use recado_domain::direct_messages::in_memory::PlantedMessageBug;

use self::state::State;
use self::system::{System, with_bug, with_database};
use crate::histories::{self, falsify, seed_and_cases};

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 10..60;

#[track_caller]
fn assert_found(bug: &str, quick_seed: u64, planted: &str) {
    with_database(planted, || histories::assert_found::<System>(bug, quick_seed, STEPS));
}

#[test]
fn message_stores_match_the_in_memory_store() {
    let played = with_database("", || {
        histories::play::<System>(seed_and_cases(), STEPS, |_: &State| String::new())
    });
    if let Err(failure) = played {
        panic!("{failure}");
    }
}

#[test]
fn falsified_messages_are_found() {
    for (quick_seed, change) in [
        // A started message stays due.
        (
            16,
            "IF NEW.started_at IS NOT NULL AND NEW.status = 'pending' THEN
           NEW.due_at := coalesce(NEW.due_at, OLD.due_at); END IF;",
        ),
        // After a lost lease the outcome of a message stays open.
        (16, "NEW.unknown_at := OLD.unknown_at;"),
        // A message that did not leave counts as started.
        (45, "NEW.started_at := coalesce(NEW.started_at, OLD.started_at);"),
        // An attempt is not counted.
        (45, "NEW.attempts := OLD.attempts;"),
        // A message that is not sent keeps its month.
        (57, "NEW.quota_month := OLD.quota_month;"),
        // A later status is lost.
        (31, "IF OLD.status = 'sent' THEN NEW.status := OLD.status; END IF;"),
        // A message is not shown in the conversation.
        (29, "NEW.conversation_id := NULL;"),
    ] {
        assert_found(change, quick_seed, &falsify("direct_messages", "UPDATE", change));
    }
}

#[test]
fn falsified_queues_are_found() {
    for (quick_seed, event, change) in [
        // A worker takes a queue, and the earlier one keeps it.
        (
            26,
            "UPDATE",
            "IF NEW.worker IS NOT NULL THEN NEW.worker := coalesce(OLD.worker, NEW.worker); END IF;",
        ),
        // A start does not renew the lease.
        (
            16,
            "UPDATE",
            "IF NEW.worker = OLD.worker THEN NEW.leased_until := OLD.leased_until; END IF;",
        ),
        // A new message does not make its queue due.
        (
            15,
            "UPDATE",
            "IF NEW.waiting_since = OLD.waiting_since AND NEW.worker IS NOT DISTINCT FROM OLD.worker THEN
           NEW.due_at := OLD.due_at; END IF;",
        ),
        // A released queue keeps its place before the queues that wait.
        (14, "UPDATE", "NEW.waiting_since := OLD.waiting_since;"),
        // The reason of a hold is lost.
        (60, "UPDATE", "NEW.hold_reason := NULL;"),
        // A queue without messages stays.
        (10, "DELETE", ""),
    ] {
        let bug = format!("{event} {change}");
        assert_found(&bug, quick_seed, &falsify("direct_message_queues", event, change));
    }
}

#[test]
fn falsified_inserts_of_messages_are_found() {
    for (quick_seed, table, event, change) in [
        // A cancel appends no event.
        (
            13,
            "outbox_events",
            "INSERT",
            "IF NEW.payload ->> 'type' = 'message.cancelled' THEN RETURN NULL; END IF;",
        ),
        // A reservation is never released.
        (
            57,
            "message_usage_slots",
            "UPDATE",
            "NEW.reserved := greatest(NEW.reserved, OLD.reserved);",
        ),
        // A new message is due at once.
        (1, "direct_messages", "INSERT", "NEW.due_at := NEW.created_at;"),
    ] {
        assert_found(change, quick_seed, &falsify(table, event, change));
    }
}

#[test]
fn repeated_references_are_found() {
    let bug = "ALTER TABLE direct_messages DROP CONSTRAINT direct_messages_client_reference_unique";
    assert_found("repeated references", 11, bug);
}

/// The bugs that the simulation plants. Many of them are in conditions that no trigger can change.
#[test]
fn bugs_of_the_in_memory_store_are_found() {
    with_database("", || {
        for (quick_seed, bug) in [
            (5, PlantedMessageBug::StartIgnoresHolder),
            (16, PlantedMessageBug::StartedStaysDue),
            (39, PlantedMessageBug::ResendsUnknown),
            (79, PlantedMessageBug::TakeIgnoresLease),
            (21, PlantedMessageBug::CancelIgnoresStart),
            (11, PlantedMessageBug::ReferenceNotUnique),
            (57, PlantedMessageBug::QuotaKept),
            (64, PlantedMessageBug::QuotaNotChecked),
            (29, PlantedMessageBug::ResultReplacesStatus),
            (1, PlantedMessageBug::SendAtIgnored),
            (70, PlantedMessageBug::ExpiryIgnored),
            (29, PlantedMessageBug::QueueNotDue),
            (36, PlantedMessageBug::QueueDeleted),
            (41, PlantedMessageBug::UnknownNeverFails),
            (13, PlantedMessageBug::CancelEventLost),
        ] {
            with_bug(bug, || {
                histories::assert_found::<System>(&format!("{bug:?}"), quick_seed, STEPS);
            });
        }
    });
}
