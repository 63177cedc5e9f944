//! Runs the tests of a suite with a number of iterations and a seed.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};

use anyhow::{Result, bail};
use recado_testkit::{paths, signals, skip};

use super::suites::{Iterations, StressSuite, SuiteKind, Tests};
use crate::outcome::{self, Skipped};
use crate::shipped;
use crate::test::counts::{self, Counts};
use crate::test::services::TestServices;

/// The module whose tests run the program of the previous version.
const PREVIOUS_VERSION_TESTS: &str = "faults::versions::";

/// A random seed, small enough to type.
pub(super) fn random_seed() -> u64 {
    // Every `RandomState` has keys of its own, which come from the operating system.
    1 + RandomState::new().hash_one(0) % 1_000_000
}

/// What the tests of the suites use: services, and the program of the previous version.
pub(super) struct Environment(TestServices);

impl Environment {
    /// Starts the services. If a test of the suites runs the previous version, builds it; without its history, that test
    /// records that it is skipped.
    pub(super) fn prepare(suites: &[&StressSuite]) -> Result<Self> {
        if suites.iter().any(|suite| runs_previous_version(suite)) {
            outcome::finish(shipped::build_previous())?;
        }
        TestServices::start().map(Self)
    }
}

fn runs_previous_version(suite: &StressSuite) -> bool {
    match suite.kind {
        SuiteKind::Tests { tests, .. } => tests
            .iter()
            .flat_map(|tests| tests.names)
            .any(|name| name.starts_with(PREVIOUS_VERSION_TESTS)),
        _ => false,
    }
}

/// Iterations of a suite from a seed.
pub(super) struct SuiteRun {
    pub(super) suite: &'static StressSuite,
    pub(super) iterations: &'static Iterations,
    pub(super) tests: &'static [Tests],
    pub(super) runs: u64,
    pub(super) seed: u64,
    /// Leaves out the tests whose seeds are fixed.
    pub(super) seeded_only: bool,
}

/// How a run ended whose tests were built and started.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RunResult {
    pub(super) passed: usize,
    pub(super) skipped: Vec<Skipped>,
    /// Set if a test failed. The rest of the run was left out.
    pub(super) failure: Option<String>,
}

impl SuiteRun {
    /// None: the suite has no tests to iterate.
    pub(super) fn new(suite: &'static StressSuite, runs: Option<u64>, seed: u64) -> Option<Self> {
        match suite.kind {
            SuiteKind::Tests { iterations, tests } => Some(Self {
                suite,
                iterations,
                tests,
                runs: runs.unwrap_or(iterations.by_default),
                seed,
                seeded_only: false,
            }),
            _ => None,
        }
    }

    /// The command that repeats the run.
    pub(super) fn command(&self) -> String {
        let Self { suite, runs, seed, .. } = self;
        format!("cargo xtask stress {} --runs {runs} --seed {seed}", suite.name)
    }

    /// Iterates the tests until one fails. The error is a run that says nothing about its seed: the build failed, a
    /// listed test does not exist, or a signal arrived.
    pub(super) fn execute(&self, environment: &Environment) -> Result<RunResult> {
        let mut result = RunResult::default();
        let rounds = if self.iterations.tests_iterate { 1 } else { self.runs };
        for round in 0..rounds {
            // Tests that do not iterate themselves get a new seed in every round.
            let (test_runs, seed) = match self.iterations.tests_iterate {
                true => (self.runs, self.seed),
                false => (1, self.seed + round),
            };
            for tests in self.tests {
                self.run_tests(environment, tests, test_runs, seed, &mut result)?;
                if result.failure.is_some() {
                    return Ok(result);
                }
            }
        }
        Ok(result)
    }

    fn run_tests(
        &self,
        Environment(services): &Environment,
        tests: &Tests,
        runs: u64,
        seed: u64,
        result: &mut RunResult,
    ) -> Result<()> {
        let mut command = paths::cargo();
        command.args(["test", "--package", tests.package]);
        command.args(tests.target);
        command.arg("--").args(tests.names).arg("--nocapture");
        if tests.includes_ignored {
            command.arg("--include-ignored");
        }
        if self.seeded_only {
            command.args(tests.fixed_seeds.iter().flat_map(|name| ["--skip", name]));
        }
        command.envs(services.environment().iter().map(|(name, value)| (name, value)));
        command.env("RECADO_RUNS", runs.to_string());
        command.env("RECADO_SEED", seed.to_string());
        let list = services.dir().join("skipped-tests");
        fs::write(&list, "")?;
        // Also with `CI=true` a test records that it cannot run. It must not fail: this command does, in the end.
        command.env(skip::LIST_VARIABLE, &list).env_remove("CI");
        let mut counts = Counts::default();
        let finished = counts::counted(&mut command, &mut counts);
        if signals::received() {
            bail!("interrupted");
        }
        result.add(tests, finished, counts, &fs::read_to_string(&list)?)
    }
}

impl RunResult {
    /// Adds the outcome of `cargo test`. Fails if it says nothing about the seed. `skipped`: a line for each test that
    /// could not run here.
    fn add(&mut self, tests: &Tests, finished: Result<()>, counts: Counts, skipped: &str) -> Result<()> {
        match finished {
            Err(failure) if counts.has_run => {
                self.failure = Some(format!("{failure:#}"));
                return Ok(());
            }
            // The tests were not built.
            Err(failure) => return Err(failure),
            Ok(()) => {}
        }
        let skipped_tests = skipped.lines().filter_map(|line| line.split_once(": "));
        let skipped_tests: BTreeSet<String> = skipped_tests.map(|(test, _)| test.to_owned()).collect();
        self.passed += counts.passed.saturating_sub(skipped_tests.len());
        let new = skipped.lines().map(|line| Skipped(line.to_owned()));
        let new: Vec<Skipped> = new.filter(|skipped| !self.skipped.contains(skipped)).collect();
        self.skipped.extend(new);
        // Rust's test harness knows no skip: a skipped test is among those that passed.
        match without_test(tests.names, &counts.passed_tests) {
            missing if missing.is_empty() => Ok(()),
            missing => bail!(
                "no test of {} passed that is named {}",
                tests.package,
                missing.join(", ")
            ),
        }
    }
}

/// The names without a test of the list: of a module (`a::b::`) one test below it, of a test the test itself.
fn without_test<'a>(names: &[&'a str], list: &BTreeSet<String>) -> Vec<&'a str> {
    let has_test = |name: &str| match name.ends_with("::") {
        true => list.iter().any(|test| test.starts_with(name)),
        false => list.contains(name),
    };
    names.iter().copied().filter(|name| !has_test(name)).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::super::suites::SUITES;
    use super::*;

    fn output(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.add(line));
        counts
    }

    fn add(finished: Result<()>, lines: &[&str], skipped: &str) -> Result<RunResult> {
        let suite = SUITES.iter().find(|suite| suite.name == "kills").unwrap();
        let run = SuiteRun::new(suite, None, 1).unwrap();
        let mut result = RunResult::default();
        result
            .add(&run.tests[0], finished, output(lines), skipped)
            .map(|()| result)
    }

    #[test]
    fn every_listed_name_needs_a_passed_test() {
        let passed = ["faults::kills::a", "faults::kills_too::b", "process::c"];
        let passed = passed.iter().map(|test| (*test).to_owned()).collect();
        let missing = |names: &[&'static str]| without_test(names, &passed);
        assert!(missing(&["faults::kills::", "process::c"]).is_empty());
        // Renamed tests, parts of names, and modules that only end alike.
        assert_eq!(missing(&["faults::kills::", "process::d"]), ["process::d"]);
        assert_eq!(missing(&["process", "kills::"]), ["process", "kills::"]);
    }

    #[test]
    fn failed_test_is_a_failure_of_the_seed() {
        let failed = ["running 1 test", "test faults::kills::a ... FAILED"];
        let crashed = ["running 1 test"];
        for lines in [&failed[..], &crashed[..]] {
            let result = add(Err(anyhow!("cargo test failed")), lines, "").unwrap();
            assert_eq!(result.failure.as_deref(), Some("cargo test failed"));
        }
    }

    #[test]
    fn run_without_tests_is_no_failure_of_the_seed() {
        let build = add(Err(anyhow!("cargo test failed")), &["error[E0432]"], "").unwrap_err();
        assert_eq!(build.to_string(), "cargo test failed");
        let renamed = add(Ok(()), &["running 0 tests"], "").unwrap_err().to_string();
        assert!(renamed.ends_with("passed that is named faults::kills::"), "{renamed}");
    }

    #[test]
    fn skipped_test_is_neither_passed_nor_a_failure() {
        let lines = [
            "running 2 tests",
            "test faults::kills::a ... ok",
            "test faults::kills::b ... ok",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ];
        let result = add(Ok(()), &lines, "faults::kills::b: no history\n").unwrap();
        let skipped = vec![Skipped("faults::kills::b: no history".to_owned())];
        let expected = RunResult {
            passed: 1,
            skipped,
            failure: None,
        };
        assert_eq!(result, expected);
    }

    #[test]
    fn only_the_rollout_suite_runs_the_previous_version() {
        let suites = SUITES.iter().filter(|suite| runs_previous_version(suite));
        assert_eq!(suites.map(|suite| suite.name).collect::<Vec<_>>(), ["rollout"]);
    }
}
