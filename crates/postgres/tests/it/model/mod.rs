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

use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use self::mutant::{RECORD_AND_START, replace_once};
use self::state::State;
use self::steps::Step;
use self::system::{Model, ModelFixture, System};

/// The default seed. It is fixed, so that a new failure comes from a code change and not from another seed.
const SEED: u64 = 1;

/// The default number of histories.
const CASES: u32 = 40;

/// The number of histories within which a planted bug must be found.
const MAX_CASES_TO_FIND: u32 = 100;

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 10..60;

/// Reads a setting of the randomized tests from the environment.
pub(crate) fn env_value<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `cases` histories on this model. The error describes the shortest failing history.
fn play(model: ModelFixture, seed: u64, cases: u32, shrinks: u32) -> Result<(), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: shrinks,
        ..Config::default()
    };
    let describe = |error| match error {
        TestError::Fail(reason, (state, steps, _)) => {
            let (state, steps): (State, Vec<Step>) = (state, steps);
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            let (limit, simulated, steps) = (state.limits[0], state.simulates, steps.join("\n"));
            format!(
                "RECADO_SEED={seed} RECADO_RUNS={cases}: {reason}\na limit of {limit}, simulated: {simulated}\n{steps}"
            )
        }
        TestError::Abort(reason) => format!("RECADO_SEED={seed} RECADO_RUNS={cases}: {reason}"),
    };
    let mut runner = TestRunner::new(config.clone());
    model.play(|| {
        let strategy = Model::sequential_strategy(STEPS);
        let played = runner.run(&strategy, |(state, steps, seen)| {
            System::test_sequential(config.clone(), state, steps, seen);
            Ok(())
        });
        played.map_err(describe)
    })
}

#[test]
fn stores_match_the_model() {
    let seed = env_value("RECADO_SEED").unwrap_or(SEED);
    let cases = env_value("RECADO_RUNS").unwrap_or(CASES);
    if let Err(failure) = play(ModelFixture::new(None, ""), seed, cases, 500) {
        panic!("{failure}");
    }
}

/// The runs that find the planted bugs find none in the unmodified statement.
#[test]
fn unmodified_record_and_start_passes_the_model() {
    if let Err(failure) = play(ModelFixture::new(Some(RECORD_AND_START.to_owned()), ""), SEED, 8, 1) {
        panic!("{failure}");
    }
}

#[track_caller]
fn assert_found(bug: &str, model: ModelFixture) {
    let Err(found) = play(model, SEED, MAX_CASES_TO_FIND, 1) else {
        panic!("{bug}: not found by {MAX_CASES_TO_FIND} histories")
    };
    // An invalid statement would fail for the wrong reason.
    let sql_errors = ["syntax error", "does not exist", "SqlState(E42"];
    assert!(!sql_errors.iter().any(|text| found.contains(text)), "{bug}: {found}");
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

/// A trigger that changes rows before they are written.
fn falsify(table: &str, change: &str) -> String {
    format!(
        "CREATE FUNCTION falsify() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {change} RETURN NEW; END $$;
         CREATE TRIGGER falsify BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION falsify()"
    )
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
        assert_found(change, ModelFixture::new(None, &falsify(table, change)));
    }
}
