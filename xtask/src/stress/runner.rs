//! Runs the tests of a suite with a number of iterations and a seed.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use anyhow::{Result, bail};
use recado_testkit::paths;

use super::suites::{Iterations, Tests};
use crate::test::counts::{self, Counts};
use crate::test::services::TestServices;

/// A random seed, small enough to type.
pub(super) fn random_seed() -> u64 {
    // Every `RandomState` has keys of its own, which come from the operating system.
    1 + RandomState::new().hash_one(0) % 1_000_000
}

/// The command that repeats a run.
pub(super) fn repeat(name: &str, runs: u64, seed: u64) -> String {
    format!("cargo xtask stress {name} --runs {runs} --seed {seed}")
}

/// Iterates a suite from a seed and returns the number of passed tests.
pub(super) fn iterate(
    services: &TestServices,
    iterations: &Iterations,
    tests: &[Tests],
    runs: u64,
    seed: u64,
) -> Result<usize> {
    let mut counts = Counts::default();
    let rounds = if iterations.tests_iterate { 1 } else { runs };
    for round in 0..rounds {
        // Tests that do not iterate themselves get a new seed in every round.
        let (test_runs, seed) = if iterations.tests_iterate {
            (runs, seed)
        } else {
            (1, seed + round)
        };
        for selection in tests {
            run_tests(services, selection, test_runs, seed, &mut counts)?;
        }
    }
    Ok(counts.passed)
}

/// Runs the selected tests once. Fails if a listed module or test has no test that passed.
fn run_tests(services: &TestServices, tests: &Tests, runs: u64, seed: u64, counts: &mut Counts) -> Result<()> {
    let mut command = paths::cargo();
    command.args(["test", "--package", tests.package]);
    command.args(tests.target);
    command.arg("--").args(tests.names).arg("--nocapture");
    if tests.includes_ignored {
        command.arg("--include-ignored");
    }
    for (name, value) in services.environment() {
        command.env(name, value);
    }
    command.env("RECADO_RUNS", runs.to_string());
    command.env("RECADO_SEED", seed.to_string());
    let mut results = Counts::default();
    counts::counted(&mut command, &mut results)?;
    counts.passed += results.passed;
    let missing = without_passed_test(tests.names, &results.passed_tests);
    match missing.is_empty() {
        true => Ok(()),
        false => bail!(
            "no test of {} passed that is named {}",
            tests.package,
            missing.join(", ")
        ),
    }
}

/// The names without a passed test: of a module (`a::b::`) one test below it, of a test the test itself.
fn without_passed_test<'a>(names: &[&'a str], passed: &BTreeSet<String>) -> Vec<&'a str> {
    let has_passed = |name: &str| match name.ends_with("::") {
        true => passed.iter().any(|test| test.starts_with(name)),
        false => passed.contains(name),
    };
    names.iter().copied().filter(|name| !has_passed(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_needs_a_passed_test() {
        let passed = ["faults::kills::a", "faults::kills_too::b", "process::c"];
        let passed = passed.iter().map(|test| (*test).to_owned()).collect();
        let missing = |names: &[&'static str]| without_passed_test(names, &passed);
        assert!(missing(&["faults::kills::", "process::c"]).is_empty());
        // Renamed tests, parts of names, and modules that only end alike.
        assert_eq!(missing(&["faults::kills::", "process::d"]), ["process::d"]);
        assert_eq!(missing(&["process", "kills::"]), ["process", "kills::"]);
    }
}
