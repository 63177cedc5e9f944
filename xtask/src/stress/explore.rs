//! `cargo xtask stress --minutes N`: runs batches of every suite that has seeds, one suite
//! after the other, each batch from another random seed.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use recado_testkit::signals;

use super::regressions;
use super::runner::{iterate, random_seed, repeat};
use super::suites::{Iterations, SUITES, StressSuite, SuiteKind, Tests};
use crate::test::services::TestServices;

/// What was explored of a suite.
struct Exploration {
    suite: &'static StressSuite,
    iterations: &'static Iterations,
    tests: &'static [Tests],
    batches: u64,
    duration: Duration,
    /// The commands that repeat the failures.
    failures: Vec<String>,
}

/// Explores one suite, or all, until the time is over. A batch that has begun is finished.
pub(super) fn run(name: Option<&str>, minutes: u64) -> Result<()> {
    let mut explorations = explorations(name)?;
    let services = TestServices::start()?;
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    'time: loop {
        for exploration in &mut explorations {
            if Instant::now() >= end || signals::received() {
                break 'time;
            }
            exploration.run_batch(&services)?;
        }
    }
    println!("\n== explored in {minutes} minutes");
    for exploration in &explorations {
        println!("{exploration}");
    }
    let failures: Vec<&str> = explorations
        .iter()
        .flat_map(|e| &e.failures)
        .map(String::as_str)
        .collect();
    match failures.is_empty() {
        true => Ok(()),
        false => bail!(
            "{} failures; repeat them with:\n{}",
            failures.len(),
            failures.join("\n")
        ),
    }
}

/// The suites that have seeds.
fn explorations(name: Option<&str>) -> Result<Vec<Exploration>> {
    let named = SUITES.iter().filter(|suite| name.is_none_or(|name| name == suite.name));
    let explorations: Vec<Exploration> = named.filter_map(exploration).collect();
    match explorations.is_empty() {
        true => bail!(
            "{} has no seeds to explore; run it without --minutes",
            name.unwrap_or("none")
        ),
        false => Ok(explorations),
    }
}

fn exploration(suite: &'static StressSuite) -> Option<Exploration> {
    match suite.kind {
        SuiteKind::Tests { iterations, tests } if iterations.per_batch > 0 => Some(Exploration {
            suite,
            iterations,
            tests,
            batches: 0,
            duration: Duration::ZERO,
            failures: Vec::new(),
        }),
        _ => None,
    }
}

impl Exploration {
    fn run_batch(&mut self, services: &TestServices) -> Result<()> {
        let (name, runs, seed) = (self.suite.name, self.iterations.per_batch, random_seed());
        println!("\n== {name}: {runs} {}, seed {seed}", self.iterations.unit);
        let began = Instant::now();
        let outcome = iterate(services, self.iterations, self.tests, runs, seed);
        self.duration += began.elapsed();
        self.batches += 1;
        match outcome {
            Err(failure) if !signals::received() => {
                println!("{failure:#}");
                self.failures.push(repeat(name, runs, seed));
                regressions::keep(name, runs, seed)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batches, runs, unit) = (
            self.batches,
            self.batches * self.iterations.per_batch,
            self.iterations.unit,
        );
        let (name, failures, seconds) = (self.suite.name, self.failures.len(), self.duration.as_secs());
        write!(
            f,
            "{name:<14}{batches} seeds, {runs} {unit}, {failures} failures, {seconds} s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_suites_with_seeds_are_explored() {
        let names = |name| {
            let explorations = explorations(name).unwrap();
            explorations.iter().map(|e| e.suite.name).collect::<Vec<_>>()
        };
        for name in ["kills", "acknowledged", "quota", "bytes", "model", "simulation"] {
            assert!(names(None).contains(&name), "{name}");
            assert_eq!(names(Some(name)), [name]);
        }
        assert!(!names(None).contains(&"timing"));
        assert!(explorations(Some("egress")).is_err());
    }
}
