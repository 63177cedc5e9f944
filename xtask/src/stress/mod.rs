//! `cargo xtask stress`: what is said of the product's reliability and security, tried as often as one likes.
//!
//! A proof is some of the ordinary tests, run more often and from another seed: `RECADO_RUNS` and `RECADO_SEED` are what
//! they read. `docs/faults.md` says which fault is proved where.

mod suites;
mod tools;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Result, fail};
use crate::test::counts::Counts;
use crate::test::services::TestServices;
use crate::{paths, signals, test};
use suites::{How, Iterations, SUITES, StressSuite, Tests};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    runs: Option<u64>,
    seed: Option<u64>,
}

/// `cargo xtask stress`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", list());
        return Ok(());
    };
    let order = parse(rest)?;
    let Some(proof) = SUITES.iter().find(|proof| proof.name == name) else {
        return fail(format!("there is no proof {name} (cargo xtask stress lists them)"));
    };
    signals::install()?;
    match proof.how {
        How::Tests { times, tests } => prove(proof, times, tests, &order),
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

fn parse(args: &[String]) -> Result<Order> {
    let mut order = Order { runs: None, seed: None };
    let mut rest = args.iter();
    while let Some(name) = rest.next() {
        let place = match name.as_str() {
            "--runs" => &mut order.runs,
            "--seed" => &mut order.seed,
            other => return fail(format!("unexpected argument {other}")),
        };
        let Some(number) = rest
            .next()
            .and_then(|text| text.parse().ok())
            .filter(|number| *number > 0)
        else {
            return fail(format!("{name} takes a number above 0"));
        };
        *place = Some(number);
    }
    Ok(order)
}

/// A seed that nobody chose, and that is small enough to be read out.
fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    1 + now.as_secs() % 1_000_000
}

fn prove(proof: &StressSuite, times: &Iterations, tests: &[Tests], order: &Order) -> Result<()> {
    let (runs, seed) = (order.runs.unwrap_or(times.few), order.seed.unwrap_or_else(any_seed));
    let again = format!("cargo xtask stress {} --runs {runs} --seed {seed}", proof.name);
    println!("{}: {runs} {}, seed {seed}", proof.name, times.of);
    let services = TestServices::start()?;
    let began = Instant::now();
    let mut counts = Counts::default();
    let rounds = if times.inside { 1 } else { runs };
    for round in 0..rounds {
        // Of what is tried as a whole, every round has a seed of its own.
        let (inner, seed) = if times.inside { (runs, seed) } else { (1, seed + round) };
        for part in tests {
            if let Err(failure) = once(&services, part, inner, seed, &mut counts) {
                println!("not proved; again: {again}");
                return Err(failure);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "proved: {}, {runs} {}, {} tests passed, seed {seed}, {seconds:.1} s\nagain: {again}",
        proof.name, times.of, counts.passed
    );
    Ok(())
}

/// These tests, once; an error also where there are none of these names.
fn once(services: &TestServices, tests: &Tests, runs: u64, seed: u64, counts: &mut Counts) -> Result<()> {
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
        false => fail(format!(
            "{} has no tests named {}",
            tests.package,
            tests.names.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn orders_are_read() {
        let order = |runs, seed| Order { runs, seed };
        assert_eq!(parse(&[]).unwrap(), order(None, None));
        assert_eq!(parse(&words("--seed 7 --runs 20")).unwrap(), order(Some(20), Some(7)));
        for wrong in ["--runs", "--runs x", "--runs 0", "--fast"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_one_word_and_unique() {
        for (at, proof) in SUITES.iter().enumerate() {
            assert!(proof.name.chars().all(|c| c.is_ascii_lowercase()), "{}", proof.name);
            assert!(SUITES.iter().skip(at + 1).all(|other| other.name != proof.name));
            assert!(list().contains(proof.about));
        }
        assert!(run(&words("nothing")).is_err());
    }
}
