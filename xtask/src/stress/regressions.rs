//! The runs that failed once, which every gate repeats.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use recado_testkit::paths;

use super::runner::{iterate, repeat};
use super::suites::{Iterations, SUITES, SuiteKind, Tests};
use crate::test::services::TestServices;

/// A line of the list.
struct Regression {
    name: &'static str,
    iterations: &'static Iterations,
    tests: &'static [Tests],
    runs: u64,
    seed: u64,
}

fn file() -> PathBuf {
    paths::root().join("xtask/src/stress/regressions.txt")
}

/// Adds a run to the list, unless it is there.
pub(super) fn keep(name: &str, runs: u64, seed: u64) -> Result<()> {
    let line = format!("{name} {runs} {seed}");
    let mut list = read()?;
    if !list.lines().any(|kept| kept == line) {
        list.push_str(&line);
        list.push('\n');
        fs::write(file(), list).context("cannot write regressions.txt")?;
    }
    Ok(())
}

/// Repeats every run of the list.
pub(super) fn check() -> Result<()> {
    let regressions = parse(&read()?)?;
    println!("{} runs that failed once", regressions.len());
    if regressions.is_empty() {
        return Ok(());
    }
    let services = TestServices::start()?;
    for Regression {
        name,
        iterations,
        tests,
        runs,
        seed,
    } in regressions
    {
        iterate(&services, iterations, tests, runs, seed).with_context(|| repeat(name, runs, seed))?;
    }
    Ok(())
}

fn read() -> Result<String> {
    fs::read_to_string(file()).context("cannot read regressions.txt")
}

fn parse(list: &str) -> Result<Vec<Regression>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| regression(line).with_context(|| line.to_owned()))
        .collect()
}

fn regression(line: &str) -> Result<Regression> {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, runs, seed] = words[..] else {
        bail!("a line has a suite, a number of runs and a seed");
    };
    let suite = SUITES
        .iter()
        .find(|suite| suite.name == name)
        .context("no suite has this name")?;
    match suite.kind {
        SuiteKind::Tests { iterations, tests } => Ok(Regression {
            name: suite.name,
            iterations,
            tests,
            runs: runs.parse()?,
            seed: seed.parse()?,
        }),
        SuiteKind::Tool(_) => bail!("the suite has no seeds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_regressions_can_be_repeated() {
        parse(&read().unwrap()).unwrap();
    }

    #[test]
    fn regression_names_a_suite_with_seeds() {
        let list = parse("# comment\nkills 2 4711\nmodel 20 1\n").unwrap();
        let found: Vec<_> = list.iter().map(|r| (r.name, r.runs, r.seed)).collect();
        assert_eq!(found, [("kills", 2, 4711), ("model", 20, 1)]);
        for line in ["kills 2", "kills two 1", "nothing 1 1", "supply 1 1", ""] {
            assert!(parse(&format!("{line}\n")).is_err(), "{line}");
        }
    }
}
