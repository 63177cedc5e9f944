//! `cargo xtask stress --minutes N`: runs batches of every suite that has seeds, one suite after the other, each batch
//! from another random seed.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use recado_testkit::signals;

use super::regressions;
use super::runner::{Environment, SuiteRun, random_seed};
use super::suites::{SUITES, StressSuite, SuiteKind};
use crate::fuzz::{self, FuzzProgram};
use crate::outcome::{self, Skipped};

/// How long a batch searches each fuzz target.
const SECONDS_PER_TARGET: u64 = 10;

/// What was explored of a suite.
struct Exploration {
    suite: &'static StressSuite,
    batches: u64,
    /// Iterations of the tests, or inputs of the fuzz targets.
    tried: u64,
    duration: Duration,
    /// The commands that repeat the failures.
    failures: Vec<String>,
    skipped: Vec<Skipped>,
}

/// Explores one suite, or all, until the time is over. A batch that has begun is finished.
pub(super) fn run(name: Option<&str>, minutes: u64) -> Result<()> {
    let mut explorations = explorations(name)?;
    let suites: Vec<&StressSuite> = explorations.iter().map(|exploration| exploration.suite).collect();
    let fuzzes = suites.iter().any(|suite| matches!(suite.kind, SuiteKind::FuzzTargets));
    let program = fuzzes.then(FuzzProgram::build).transpose()?;
    let environment = Environment::prepare(&suites)?;
    let began = Instant::now();
    let end = began + Duration::from_secs(60 * minutes);
    let explored = explore(&mut explorations, &environment, program.as_ref(), end);
    println!("\n== explored in {} s", began.elapsed().as_secs());
    for exploration in &explorations {
        println!("{exploration}");
    }
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for exploration in explorations {
        failures.extend(exploration.failures);
        skipped.extend(exploration.skipped);
    }
    if !failures.is_empty() {
        println!(
            "{} failures; repeat them with:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
    outcome::finish(explored.map(|()| skipped))?;
    match failures.len() {
        0 => Ok(()),
        count => bail!("{count} failures"),
    }
}

/// Runs a batch of each suite, again and again until `end` or a signal.
fn explore(
    explorations: &mut [Exploration],
    environment: &Environment,
    program: Option<&FuzzProgram>,
    end: Instant,
) -> Result<()> {
    loop {
        for exploration in explorations.iter_mut() {
            if Instant::now() >= end || signals::received() {
                return Ok(());
            }
            exploration.run_batch(environment, program)?;
        }
    }
}

/// The suites that can be explored.
fn explorations(name: Option<&str>) -> Result<Vec<Exploration>> {
    let named = SUITES.iter().filter(|suite| name.is_none_or(|name| name == suite.name));
    let explorations: Vec<Exploration> = named.filter(|suite| can_explore(suite)).map(Exploration::new).collect();
    match explorations.is_empty() {
        true => bail!(
            "{} has no seeds to explore; run it without --minutes",
            name.unwrap_or("none")
        ),
        false => Ok(explorations),
    }
}

fn can_explore(suite: &StressSuite) -> bool {
    match suite.kind {
        SuiteKind::Tests { iterations, .. } => iterations.per_batch > 0,
        SuiteKind::FuzzTargets => true,
        SuiteKind::Tool(_) => false,
    }
}

impl Exploration {
    fn new(suite: &'static StressSuite) -> Self {
        Self {
            suite,
            batches: 0,
            tried: 0,
            duration: Duration::ZERO,
            failures: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Fails if the suite cannot run; a failed test is one of the failures.
    fn run_batch(&mut self, environment: &Environment, program: Option<&FuzzProgram>) -> Result<()> {
        let began = Instant::now();
        self.batches += 1;
        let ended = match (&self.suite.kind, program) {
            (SuiteKind::Tests { iterations, .. }, _) => self.run_tests(iterations.per_batch, environment),
            (SuiteKind::FuzzTargets, Some(program)) => self.search_inputs(program),
            _ => Ok(()),
        };
        self.duration += began.elapsed();
        ended
    }

    fn run_tests(&mut self, runs: u64, environment: &Environment) -> Result<()> {
        let Some(run) = SuiteRun::new(self.suite, Some(runs), random_seed()) else {
            return Ok(());
        };
        // Another run of a test with fixed seeds finds nothing.
        let run = SuiteRun {
            seeded_only: true,
            ..run
        };
        println!(
            "\n== {}: {runs} {}, seed {}",
            self.suite.name, run.iterations.unit, run.seed
        );
        let result = run.execute(environment)?;
        self.tried += runs;
        let new = result
            .skipped
            .into_iter()
            .filter(|skipped| !self.skipped.contains(skipped));
        let new: Vec<Skipped> = new.collect();
        self.skipped.extend(new);
        let Some(failure) = result.failure else {
            return Ok(());
        };
        println!("{failure}");
        self.failures.push(run.command());
        regressions::append(&run)
    }

    /// libFuzzer draws its seeds itself. An input that breaks a property becomes a file of the committed corpus, so that
    /// it needs no line among the regressions.
    fn search_inputs(&mut self, program: &FuzzProgram) -> Result<()> {
        for target in fuzz::targets()? {
            let command = format!("cargo xtask fuzz {target}");
            // The committed input would end each further search at once.
            if self.failures.contains(&command) || signals::received() {
                continue;
            }
            println!("\n== {}: {target}, {SECONDS_PER_TARGET} s", self.suite.name);
            let searched = program.search(&target, SECONDS_PER_TARGET, &mut self.tried);
            if let Err(failure) = searched
                && !signals::received()
            {
                println!("{failure:#}");
                self.failures.push(command);
            }
        }
        Ok(())
    }
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.suite.kind {
            SuiteKind::Tests { iterations, .. } => iterations.unit,
            _ => "inputs",
        };
        let (name, batches, tried, failures) = (self.suite.name, self.batches, self.tried, self.failures.len());
        let seconds = self.duration.as_secs();
        write!(
            f,
            "{name:<14}{batches} batches, {tried} {unit}, {failures} failures, {seconds} s"
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
        for name in [
            "kills",
            "acknowledged",
            "quota",
            "bytes",
            "inputs",
            "model",
            "simulation",
            "rollout",
        ] {
            assert!(names(None).contains(&name), "{name}");
            assert_eq!(names(Some(name)), [name]);
        }
        assert!(!names(None).contains(&"timing"));
        assert!(explorations(Some("egress")).is_err());
    }
}
