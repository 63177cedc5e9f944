//! `cargo xtask stress`: repeats the tests of the product's reliability and security.
//!
//! A stress suite is a selection of the ordinary tests that runs more often and from another seed. The tests read
//! `RECADO_RUNS` and `RECADO_SEED`. `docs/faults.md` says which test covers which fault.

mod explore;
mod regressions;
mod runner;
mod suites;
mod tools;

use std::time::Instant;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use recado_testkit::signals;

use crate::test::services::TestServices;
use runner::{iterate, random_seed, repeat};
use suites::{Iterations, SUITES, StressSuite, SuiteKind, Tests};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The suite to run.
    #[arg(value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name)))]
    name: Option<String>,
    /// SuiteKind often the suite iterates.
    #[arg(long, requires = "name", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// The first seed (random).
    #[arg(long, requires = "name", value_parser = clap::value_parser!(u64).range(1..))]
    seed: Option<u64>,
    /// Explore for this long with random seeds: the named suite, else all suites that have seeds,
    /// a batch of one after a batch of the other.
    #[arg(long, conflicts_with_all = ["runs", "seed"], value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
    /// Repeat the runs that failed once (xtask/src/stress/regressions.txt).
    #[arg(long, conflicts_with_all = ["name", "minutes"])]
    regressions: bool,
}

/// `cargo xtask stress`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    if options.regressions {
        return regressions::check();
    }
    if let Some(minutes) = options.minutes {
        return explore::run(options.name.as_deref(), minutes);
    }
    let mut suites = SUITES.iter();
    let Some(suite) = suites.find(|suite| options.name.as_deref() == Some(suite.name)) else {
        print!("{}", list());
        return Ok(());
    };
    match suite.kind {
        SuiteKind::Tests { iterations, tests } => run_suite(suite, iterations, tests, options),
        SuiteKind::Tool(tool) => tool(),
    }
}

fn list() -> String {
    let mut list = String::new();
    for StressSuite { name, property, kind } in SUITES {
        let runs = match kind {
            SuiteKind::Tests { iterations, .. } => {
                format!(
                    "{} {}, {} for a release",
                    iterations.by_default, iterations.unit, iterations.for_release
                )
            }
            SuiteKind::Tool(_) => "once".to_owned(),
        };
        list.push_str(&format!("  {name:<14}{property} ({runs})\n"));
    }
    list
}

fn run_suite(suite: &StressSuite, iterations: &Iterations, tests: &[Tests], options: &Options) -> Result<()> {
    let (runs, seed) = (
        options.runs.unwrap_or(iterations.by_default),
        options.seed.unwrap_or_else(random_seed),
    );
    println!("{}: {runs} {}, seed {seed}", suite.name, iterations.unit);
    let services = TestServices::start()?;
    let began = Instant::now();
    let repeat = repeat(suite.name, runs, seed);
    match iterate(&services, iterations, tests, runs, seed) {
        Ok(passed) => {
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "passed: {}, {runs} {}, {passed} tests, seed {seed}, {seconds:.1} s\nrepeat with: {repeat}",
                suite.name, iterations.unit
            );
            Ok(())
        }
        Err(failure) => {
            println!("failed; repeat with: {repeat}");
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stress_suite_names_are_one_word_and_unique() {
        for (at, suite) in SUITES.iter().enumerate() {
            assert!(suite.name.chars().all(|c| c.is_ascii_lowercase()), "{}", suite.name);
            assert!(SUITES.iter().skip(at + 1).all(|next| next.name != suite.name));
            assert!(list().contains(suite.property));
        }
    }
}
