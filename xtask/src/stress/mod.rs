//! `cargo xtask stress`: repeats the tests of the product's reliability and security.
//!
//! A stress suite is a selection of the ordinary tests that runs more often and from another seed. The tests read
//! `RECADO_RUNS` and `RECADO_SEED`. `docs/faults.md` says which test covers which fault.

mod suites;
mod tools;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use recado_testkit::{paths, signals};

use crate::test;
use crate::test::counts::Counts;
use crate::test::services::TestServices;
use suites::{How, Iterations, SUITES, StressSuite, Tests};

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
struct StressOptions {
    runs: Option<u64>,
    seed: Option<u64>,
}

/// `cargo xtask stress`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", list());
        return Ok(());
    };
    let options = parse(rest)?;
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else {
        bail!("there is no suite {name} (cargo xtask stress lists them)");
    };
    signals::install()?;
    match suite.how {
        How::Tests { times, tests } => run_suite(suite, times, tests, &options),
        How::Tool(tool) => tool(),
    }
}

fn list() -> String {
    let mut list = "usage: cargo xtask stress <name> [--runs N] [--seed S]\n\n".to_owned();
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

fn parse(args: &[String]) -> Result<StressOptions> {
    let mut options = StressOptions { runs: None, seed: None };
    let mut rest = args.iter();
    while let Some(name) = rest.next() {
        let field = match name.as_str() {
            "--runs" => &mut options.runs,
            "--seed" => &mut options.seed,
            argument => bail!("unexpected argument {argument}"),
        };
        let Some(number) = rest
            .next()
            .and_then(|text| text.parse().ok())
            .filter(|number| *number > 0)
        else {
            bail!("{name} requires a number above 0");
        };
        *field = Some(number);
    }
    Ok(options)
}

/// A seed from the clock, small enough to type.
fn default_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    1 + now.as_secs() % 1_000_000
}

fn run_suite(suite: &StressSuite, times: &Iterations, tests: &[Tests], options: &StressOptions) -> Result<()> {
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

/// Runs the selected tests once. Fails if no test matches.
fn run_tests(services: &TestServices, tests: &Tests, runs: u64, seed: u64, counts: &mut Counts) -> Result<()> {
    let before = counts.passed;
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
    test::counted(&mut command, counts)?;
    match counts.passed > before {
        true => Ok(()),
        false => bail!("{} has no tests named {}", tests.package, tests.names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn stress_options_are_parsed() {
        let expected = |runs, seed| StressOptions { runs, seed };
        assert_eq!(parse(&[]).unwrap(), expected(None, None));
        assert_eq!(
            parse(&words("--seed 7 --runs 20")).unwrap(),
            expected(Some(20), Some(7))
        );
        for args in ["--runs", "--runs x", "--runs 0", "--fast"] {
            assert!(parse(&words(args)).is_err(), "{args}");
        }
    }

    #[test]
    fn stress_suite_names_are_one_word_and_unique() {
        for (at, suite) in SUITES.iter().enumerate() {
            assert!(suite.name.chars().all(|c| c.is_ascii_lowercase()), "{}", suite.name);
            assert!(SUITES.iter().skip(at + 1).all(|next| next.name != suite.name));
            assert!(list().contains(suite.about));
        }
        assert!(run(&words("nothing")).is_err());
    }
}
