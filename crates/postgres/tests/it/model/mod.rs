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
use crate::histories::{self, SEED, falsify, seed_and_cases};

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 10..60;

/// Runs histories on this model. The error describes the shortest failing one.
fn play(model: ModelFixture, seed_and_cases: (u64, u32)) -> Result<(), String> {
    let describe = |state: &State| format!("a limit of {}, simulated: {}\n", state.limits[0], state.simulates);
    model.play(|| histories::play::<System>(seed_and_cases, STEPS, describe))
}

#[test]
fn stores_match_the_model() {
    if let Err(failure) = play(ModelFixture::new(None, ""), seed_and_cases()) {
        panic!("{failure}");
    }
}

/// The unmodified statement, executed as the mutated ones are, equals the model: only a mutation is found.
#[test]
fn unmodified_record_and_start_passes_the_model() {
    if let Err(failure) = play(ModelFixture::new(Some(RECORD_AND_START.to_owned()), ""), (SEED, 8)) {
        panic!("{failure}");
    }
}

#[track_caller]
fn assert_found(bug: &str, quick_seed: u64, model: ModelFixture) {
    model.play(|| histories::assert_found::<System>(bug, quick_seed, STEPS));
}

#[test]
fn record_and_start_without_a_guard_is_found() {
    let started = "AND s.started_at IS NULL\n    AND (n.free_at <= now()) IS NOT FALSE";
    let recorded = "s.status = 'pending'\n    AND s.started_at IS NOT NULL";
    for (quick_seed, guard, without) in [
        (2, started, "AND (n.free_at <= now()) IS NOT FALSE"),
        (15, started, "AND s.started_at IS NULL"),
        (4, " AND q.worker = $3", ""),
        (10, " AND c.paused_at IS NULL", ""),
        (58, " AND a.status = 'active'", ""),
        (135, "s.campaign_id IS NOT DISTINCT FROM $2 AND EXISTS", "EXISTS"),
        (14, recorded, "s.status = 'pending'"),
        (18, recorded, "s.started_at IS NOT NULL"),
        (57, ", unknown_at = NULL", ""),
        (16, ", reserved = u.reserved + excluded.reserved", ""),
    ] {
        assert_found(
            guard,
            quick_seed,
            ModelFixture::new(Some(replace_once(guard, without)), ""),
        );
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
    assert_found("reservations released twice", 3, ModelFixture::new(None, bug));
}

#[test]
fn falsified_writes_are_found() {
    let sends = "campaign_sends";
    for (quick_seed, table, change) in [
        // A send with an unknown outcome is sent again.
        (
            9,
            sends,
            "IF NEW.unknown_at IS NOT NULL THEN NEW.unknown_at := NULL; NEW.started_at := NULL; END IF;",
        ),
        // A send that was never confirmed is retried.
        (49, sends, "NEW.never_confirmed := false;"),
        // A late status update of an earlier attempt is applied to this one.
        (50, sends, "NEW.superseded_wa_message_id := NULL;"),
        // A deferred send loses its attempt count.
        (6, sends, "NEW.attempts := 0;"),
        // The outcome of a send that its worker left is not marked as unknown.
        (9, sends, "NEW.unknown_at := OLD.unknown_at;"),
        (16, "campaign_counter_slots", "NEW.read := OLD.read;"),
        // A run that ends keeps its reservations.
        (
            5,
            "message_usage_slots",
            "IF NEW.sent = OLD.sent THEN NEW.reserved := greatest(OLD.reserved, NEW.reserved); END IF;",
        ),
        (9, "message_usage_slots", "NEW.test_sends := OLD.test_sends;"),
        // A released run keeps its position in the queue.
        (113, "campaign_queue", "NEW.waiting_since := OLD.waiting_since;"),
        // A run stays with its previous worker.
        (19, "campaign_queue", "NEW.worker := coalesce(OLD.worker, NEW.worker);"),
        (
            51,
            "campaigns",
            "IF NEW.status = 'cancelled' THEN NEW.status := OLD.status; END IF;",
        ),
    ] {
        assert_found(
            change,
            quick_seed,
            ModelFixture::new(None, &falsify(table, "UPDATE", change)),
        );
    }
}
