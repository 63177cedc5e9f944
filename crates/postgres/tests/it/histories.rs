//! Runs the random histories of the model tests, and plants the bugs that they must find.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use uuid::Uuid;

/// The default seed. It is fixed, so that a new failure comes from a code change and not from another seed.
pub(crate) const SEED: u64 = 1;

/// The default number of histories.
const CASES: u32 = 40;

/// The number of histories within which any seed must find a planted bug.
const MAX_CASES_TO_FIND: u32 = 1000;

/// Reads a setting of the randomized tests from the environment.
pub(crate) fn env_value<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seed and the number of histories that the environment sets, or the defaults.
pub(crate) fn seed_and_cases() -> (u64, u32) {
    let seed = env_value("RECADO_SEED").unwrap_or(SEED);
    (seed, env_value("RECADO_RUNS").unwrap_or(CASES))
}

/// The id of the row with this index. It is short, so that failures are readable.
pub(crate) fn number(at: usize) -> Uuid {
    Uuid::from_u128(u128::try_from(at).unwrap() + 1)
}

/// The index of the row with this id.
pub(crate) fn index(id: Uuid) -> usize {
    usize::try_from(id.as_u128()).unwrap() - 1
}

type StateOf<T> = <<T as StateMachineTest>::Reference as ReferenceStateMachine>::State;

fn config((seed, cases): (u64, u32), shrinks: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: shrinks,
        ..Config::default()
    }
}

/// Runs `cases` histories of so many steps. The error describes the shortest failing history, with lines of `describe`
/// about its first state.
pub(crate) fn play<T: StateMachineTest>(
    (seed, cases): (u64, u32),
    steps: Range<usize>,
    describe: impl Fn(&StateOf<T>) -> String,
) -> Result<(), String>
where
    StateOf<T>: Clone + Debug + 'static,
    <T::Reference as ReferenceStateMachine>::Transition: 'static,
{
    let config = config((seed, cases), 500);
    let mut runner = TestRunner::new(config.clone());
    let strategy = T::Reference::sequential_strategy(steps);
    let played = runner.run(&strategy, |(state, steps, seen)| {
        T::test_sequential(config.clone(), state, steps, seen);
        Ok(())
    });
    played.map_err(|error| match error {
        TestError::Fail(reason, (state, steps, _)) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            let (start, steps) = (describe(&state), steps.join("\n"));
            format!("RECADO_SEED={seed} RECADO_RUNS={cases}: {reason}\n{start}{steps}")
        }
        TestError::Abort(reason) => format!("RECADO_SEED={seed} RECADO_RUNS={cases}: {reason}"),
    })
}

/// Asserts that a history finds the planted bug. The first history of `quick_seed` is known to find it within a few
/// steps. If the steps have changed since, or `RECADO_SEED` is set, random histories must find it.
#[track_caller]
pub(crate) fn assert_found<T: StateMachineTest>(bug: &str, quick_seed: u64, steps: Range<usize>)
where
    StateOf<T>: Clone + Debug + 'static,
    <T::Reference as ReferenceStateMachine>::Transition: 'static,
{
    let seeds = match env_value("RECADO_SEED") {
        Some(seed) => vec![(seed, MAX_CASES_TO_FIND)],
        None => vec![(quick_seed, 1), (SEED, MAX_CASES_TO_FIND)],
    };
    let failure = seeds
        .into_iter()
        .find_map(|(seed, cases)| first_failure::<T>(bug, (seed, cases), steps.clone()));
    let Some(failure) = failure else {
        panic!("{bug}: not found by {MAX_CASES_TO_FIND} histories")
    };
    // An invalid statement would fail for the wrong reason.
    let sql_errors = ["syntax error", "does not exist", "SqlState(E42"];
    assert!(
        !sql_errors.iter().any(|text| failure.contains(text)),
        "{bug}: {failure}"
    );
}

/// The reason of the first failing history. It is not shrunk: the failure is expected.
#[expect(clippy::print_stdout, reason = "a new quick seed is chosen by this line")]
fn first_failure<T: StateMachineTest>(bug: &str, (seed, cases): (u64, u32), steps: Range<usize>) -> Option<String>
where
    StateOf<T>: Clone + Debug + 'static,
    <T::Reference as ReferenceStateMachine>::Transition: 'static,
{
    let config = config((seed, cases), 0);
    let mut runner = TestRunner::new(config.clone());
    let strategy = T::Reference::sequential_strategy(steps);
    for history in 1..=cases {
        let (state, steps, _) = strategy.new_tree(&mut runner).unwrap().current();
        let played = Arc::new(AtomicUsize::new(0));
        let test = || T::test_sequential(config.clone(), state, steps, Some(played.clone()));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(test)) {
            let played = played.load(Ordering::Relaxed);
            println!("{bug}: found by history {history} of seed {seed} in {played} steps");
            return Some(*panic.downcast::<String>().unwrap_or_default());
        }
    }
    None
}

/// A trigger that changes rows before they are written.
pub(crate) fn falsify(table: &str, operation: &str, change: &str) -> String {
    format!(
        "CREATE FUNCTION falsify() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {change} RETURN NEW; END $$;
         CREATE TRIGGER falsify BEFORE {operation} ON {table} FOR EACH ROW EXECUTE FUNCTION falsify()"
    )
}
