//! The runs that failed once, which every gate repeats.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use recado_testkit::paths;

use super::runner::{Environment, SuiteRun};
use super::suites::SUITES;
use crate::outcome;

fn file() -> PathBuf {
    paths::root().join("xtask/src/stress/regressions.txt")
}

/// Adds a run to the list, unless it is there.
pub(super) fn append(run: &SuiteRun) -> Result<()> {
    match with_line(read()?, &line(run)) {
        Some(list) => fs::write(file(), list).context("cannot write regressions.txt"),
        None => Ok(()),
    }
}

/// Repeats every run of the list.
pub(super) fn check() -> Result<()> {
    let runs = parse(&read()?)?;
    println!("{} runs that failed once", runs.len());
    if runs.is_empty() {
        return Ok(());
    }
    let suites: Vec<_> = runs.iter().map(|run| run.suite).collect();
    let environment = Environment::prepare(&suites)?;
    let mut skipped = Vec::new();
    for run in runs {
        let result = run.execute(&environment).with_context(|| run.command())?;
        if let Some(failure) = result.failure {
            bail!("{failure}; repeat with: {}", run.command());
        }
        skipped.extend(result.skipped);
    }
    outcome::finish(Ok(skipped))
}

fn read() -> Result<String> {
    fs::read_to_string(file()).context("cannot read regressions.txt")
}

fn line(run: &SuiteRun) -> String {
    format!("{} {} {}", run.suite.name, run.runs, run.seed)
}

/// The list with another line. None: it has this line.
fn with_line(mut list: String, line: &str) -> Option<String> {
    if list.lines().any(|present| present == line) {
        return None;
    }
    list.push_str(line);
    list.push('\n');
    Some(list)
}

fn parse(list: &str) -> Result<Vec<SuiteRun>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| parse_line(line).with_context(|| line.to_owned()))
        .collect()
}

fn parse_line(line: &str) -> Result<SuiteRun> {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, runs, seed] = words[..] else {
        bail!("a line has a suite, a number of runs and a seed");
    };
    let mut suites = SUITES.iter();
    let suite = suites
        .find(|suite| suite.name == name)
        .context("no suite has this name")?;
    let run = SuiteRun::new(suite, Some(runs.parse()?), seed.parse()?).context("the suite has no seeds")?;
    // `unit` runs the tests with fixed seeds.
    Ok(SuiteRun {
        seeded_only: true,
        ..run
    })
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
        let list = "# comment\nkills 2 4711\nmodel 20 1\n";
        let runs = parse(list).unwrap();
        assert_eq!(
            runs.iter().map(line).collect::<Vec<_>>(),
            ["kills 2 4711", "model 20 1"]
        );
        for line in ["kills 2", "kills two 1", "nothing 1 1", "supply 1 1", "inputs 1 1", ""] {
            assert!(parse(&format!("{line}\n")).is_err(), "{line}");
        }
    }

    #[test]
    fn failed_run_is_added_once() {
        let list = with_line("# comment\n".to_owned(), "kills 2 4711").unwrap();
        assert_eq!(list, "# comment\nkills 2 4711\n");
        assert_eq!(with_line(list, "kills 2 4711"), None);
    }
}
