//! `cargo xtask stress`: repeats the tests of the product's reliability and security.
//!
//! A stress suite is a selection of the ordinary tests that runs more often and from another seed. The tests read
//! `RECADO_RUNS` and `RECADO_SEED`. `docs/faults.md` says which test covers which fault.

mod suites;
mod tools;

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use recado_testkit::{paths, signals};

use crate::test;
use crate::test::counts::Counts;
use crate::test::services::TestServices;
use suites::{How, Iterations, SUITES, StressSuite, Tests};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The suite to run.
    #[arg(value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name)))]
    name: Option<String>,
    /// How often the suite iterates.
    #[arg(long, requires = "name", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// The first seed (from the clock).
    #[arg(long, requires = "name", value_parser = clap::value_parser!(u64).range(1..))]
    seed: Option<u64>,
}

/// `cargo xtask stress`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut suites = SUITES.iter();
    let Some(suite) = suites.find(|suite| options.name.as_deref() == Some(suite.name)) else {
        print!("{}", list());
        return Ok(());
    };
    signals::install()?;
    match suite.how {
        How::Tests { times, tests } => run_suite(suite, times, tests, options),
        How::Tool(tool) => tool(),
    }
}

fn list() -> String {
    let mut list = String::new();
    for StressSuite { name, about, how } in SUITES {
        let runs = match how {
            How::Tests { times, .. } => {
                format!("{} {}, {} for a release", times.few, times.of, times.release)
            }
            How::Tool(_) => "once".to_owned(),
        };
        list.push_str(&format!("  {name:<14}{about} ({runs})\n"));
    }
    list
}

/// A seed from the clock, small enough to type.
fn default_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    1 + now.as_secs() % 1_000_000
}

fn run_suite(suite: &StressSuite, times: &Iterations, tests: &[Tests], options: &Options) -> Result<()> {
    let (runs, seed) = (
        options.runs.unwrap_or(times.few),
        options.seed.unwrap_or_else(default_seed),
    );
    let repeat = format!("cargo xtask stress {} --runs {runs} --seed {seed}", suite.name);
    println!("{}: {runs} {}, seed {seed}", suite.name, times.of);
    let services = TestServices::start()?;
    let began = Instant::now();
    let mut counts = Counts::default();
    let rounds = if times.inside { 1 } else { runs };
    for round in 0..rounds {
        // Tests that do not iterate themselves get a new seed in every round.
        let (inner, seed) = if times.inside { (runs, seed) } else { (1, seed + round) };
        for selection in tests {
            if let Err(failure) = run_tests(&services, selection, inner, seed, &mut counts) {
                println!("failed; repeat with: {repeat}");
                return Err(failure);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "passed: {}, {runs} {}, {} tests, seed {seed}, {seconds:.1} s\nrepeat with: {repeat}",
        suite.name, times.of, counts.passed
    );
    Ok(())
}

/// Runs the selected tests once. Fails if a listed module or test has no test that passed.
fn run_tests(services: &TestServices, tests: &Tests, runs: u64, seed: u64, counts: &mut Counts) -> Result<()> {
    let mut command = paths::cargo();
    command.args(["test", "--package", tests.package]);
    command.args(tests.target);
    command.arg("--").args(tests.names).arg("--nocapture");
    if tests.measured {
        command.arg("--include-ignored");
    }
    for (name, value) in services.environment() {
        command.env(name, value);
    }
    command.env("RECADO_RUNS", runs.to_string());
    command.env("RECADO_SEED", seed.to_string());
    let mut results = Counts::default();
    test::counts::counted(&mut command, &mut results)?;
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

    #[test]
    fn stress_suite_names_are_one_word_and_unique() {
        for (at, suite) in SUITES.iter().enumerate() {
            assert!(suite.name.chars().all(|c| c.is_ascii_lowercase()), "{}", suite.name);
            assert!(SUITES.iter().skip(at + 1).all(|next| next.name != suite.name));
            assert!(list().contains(suite.about));
        }
    }
}
