//! Contract test of the ports of runs. The stores on a real database and the in-memory store execute the same random
//! steps through the same ports. After each step their outcomes and states must be equal. Not compared: postponements,
//! the inputs and reports of runs, events, and the texts and times of errors; other tests cover them.
//!
//! The steps are those of workers (including workers that die, stall and lose their lease), of members who pause,
//! cancel and retry, and of status updates in any order. Some steps must be refused by the stores.
//!
//! Every failure is reproducible: `RECADO_SEED=7 RECADO_RUNS=40 cargo test -p recado-postgres --test it model`. Other
//! seeds and more runs cover more histories.

mod callers;
mod mutant;
mod state;
mod steps;
mod system;

use self::mutant::{RECORD_AND_START, replace_once};
use self::state::State;
use self::system::{ModelFixture, System};
use crate::histories::{self, MAX_CASES_TO_FIND, SEED, falsify, seed_and_cases};

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 10..60;

/// Runs histories on this model. The error describes the shortest failing one.
fn play(model: ModelFixture, seed_and_cases: (u64, u32), shrinks: u32) -> Result<(), String> {
    let describe = |state: &State| format!("a limit of {}, simulated: {}\n", state.limits[0], state.simulates);
    model.play(|| histories::play::<System>(seed_and_cases, shrinks, STEPS, describe))
}

#[test]
fn stores_match_the_model() {
    if let Err(failure) = play(ModelFixture::new(None, ""), seed_and_cases(), 500) {
        panic!("{failure}");
    }
}

/// The runs that find the planted bugs find none in the unmodified statement.
#[test]
fn unmodified_record_and_start_passes_the_model() {
    if let Err(failure) = play(ModelFixture::new(Some(RECORD_AND_START.to_owned()), ""), (SEED, 8), 1) {
        panic!("{failure}");
    }
}

#[track_caller]
fn assert_found(bug: &str, model: ModelFixture) {
    histories::assert_found(bug, play(model, (SEED, MAX_CASES_TO_FIND), 1));
}

#[test]
fn record_and_start_without_a_guard_is_found() {
    let started = "AND s.started_at IS NULL\n    AND (n.free_at <= now()) IS NOT FALSE";
    let recorded = "s.status = 'pending'\n    AND s.started_at IS NOT NULL";
    for (guard, without) in [
        (started, "AND (n.free_at <= now()) IS NOT FALSE"),
        (started, "AND s.started_at IS NULL"),
        (" AND q.worker = $3", ""),
        (" AND c.paused_at IS NULL", ""),
        (" AND a.status = 'active'", ""),
        ("s.campaign_id IS NOT DISTINCT FROM $2 AND EXISTS", "EXISTS"),
        (recorded, "s.status = 'pending'"),
        (recorded, "s.started_at IS NOT NULL"),
        (", unknown_at = NULL", ""),
        (", reserved = u.reserved + excluded.reserved", ""),
    ] {
        assert_found(guard, ModelFixture::new(Some(replace_once(guard, without)), ""));
    }
}

#[test]
fn double_release_of_reservations_is_found() {
    let bug = "CREATE FUNCTION give_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           UPDATE message_usage_slots SET reserved = reserved - (SELECT count(*) FROM campaign_sends s
             WHERE s.campaign_id = OLD.campaign_id AND s.status = 'pending' AND s.started_at IS NULL)
           WHERE account_id = OLD.account_id AND slot = 0;
           RETURN OLD; END $$;
         CREATE TRIGGER give_back AFTER DELETE ON campaign_queue FOR EACH ROW EXECUTE FUNCTION give_back()";
    assert_found("reservations released twice", ModelFixture::new(None, bug));
}

#[test]
fn falsified_writes_are_found() {
    let sends = "campaign_sends";
    for (table, change) in [
        // A send with an unknown outcome is sent again.
        (
            sends,
            "IF NEW.unknown_at IS NOT NULL THEN NEW.unknown_at := NULL; NEW.started_at := NULL; END IF;",
        ),
        // A send that was never confirmed is retried.
        (sends, "NEW.never_confirmed := false;"),
        // A late status update of an earlier attempt is applied to this one.
        (sends, "NEW.superseded_wa_message_id := NULL;"),
        // A deferred send loses its attempt count.
        (sends, "NEW.attempts := 0;"),
        // The outcome of a send that its worker left is not marked as unknown.
        (sends, "NEW.unknown_at := OLD.unknown_at;"),
        ("campaign_counter_slots", "NEW.read := OLD.read;"),
        // A run that ends keeps its reservations.
        (
            "message_usage_slots",
            "IF NEW.sent = OLD.sent THEN NEW.reserved := greatest(OLD.reserved, NEW.reserved); END IF;",
        ),
        ("message_usage_slots", "NEW.test_sends := OLD.test_sends;"),
        // A released run keeps its position in the queue.
        ("campaign_queue", "NEW.waiting_since := OLD.waiting_since;"),
        // A run stays with its previous worker.
        ("campaign_queue", "NEW.worker := coalesce(OLD.worker, NEW.worker);"),
        (
            "campaigns",
            "IF NEW.status = 'cancelled' THEN NEW.status := OLD.status; END IF;",
        ),
    ] {
        assert_found(change, ModelFixture::new(None, &falsify(table, "UPDATE", change)));
    }
}
