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

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use recado_testkit::signals;

use crate::{fuzz, outcome};
use runner::{Environment, SuiteRun, random_seed};
use suites::{SUITES, StressSuite, SuiteKind};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The suite to run.
    #[arg(value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name)))]
    name: Option<String>,
    /// How often the suite iterates.
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
    if let Some(run) = SuiteRun::new(suite, options.runs, options.seed.unwrap_or_else(random_seed)) {
        return run_suite(&run);
    }
    if options.runs.is_some() || options.seed.is_some() {
        bail!("{} has no seeds; run it without --runs and --seed", suite.name);
    }
    match suite.kind {
        SuiteKind::FuzzTargets => fuzz::run(&fuzz::Options::default()),
        SuiteKind::Tool(tool) => tool(),
        SuiteKind::Tests { .. } => Ok(()),
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
            SuiteKind::FuzzTargets => format!("{} s for each target", fuzz::DEFAULT_SECONDS),
            SuiteKind::Tool(_) => "once".to_owned(),
        };
        list.push_str(&format!("  {name:<14}{property} ({runs})\n"));
    }
    list
}

fn run_suite(run: &SuiteRun) -> Result<()> {
    let SuiteRun { suite, runs, seed, .. } = run;
    let (name, unit, command) = (suite.name, run.iterations.unit, run.command());
    println!("{name}: {runs} {unit}, seed {seed}");
    let environment = Environment::prepare(&[suite])?;
    let began = Instant::now();
    let result = run.execute(&environment)?;
    if let Some(failure) = result.failure {
        bail!("{failure}; repeat with: {command}");
    }
    let (passed, seconds) = (result.passed, began.elapsed().as_secs_f64());
    println!("passed: {name}, {runs} {unit}, {passed} tests, seed {seed}, {seconds:.1} s\nrepeat with: {command}");
    outcome::finish(Ok(result.skipped))
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
