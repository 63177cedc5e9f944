//! `cargo xtask test`: runs every check of this repository with the required services and prints a summary.
//!
//! Developers and the build machine run the same command. All steps run even if one fails, so that one run shows all
//! failures.

pub(crate) mod counts;
mod data_model;
mod diesel_schema;
pub(crate) mod migrations;
mod nextest;
pub(crate) mod plans;
mod schema;
pub(crate) mod services;

use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use recado_testkit::{paths, process, signals, skip};

use crate::deny::Advisories;
use crate::outcome::{self, Outcome, Skipped, StepReport};
use crate::{deny, guides, sbom, shipped, tidy};
use counts::{Counts, counted};
use services::TestServices;

/// State that the steps share.
#[derive(Default)]
struct Run {
    services: Option<TestServices>,
    counts: Option<Counts>,
    report: Option<nextest::Report>,
    /// The checks that the current step skipped.
    skipped: Vec<Skipped>,
    build_failed: bool,
}

struct Step {
    name: &'static str,
    run: fn(&mut Run) -> Result<()>,
    /// The step requires a database.
    services: bool,
}

const fn step(name: &'static str, run: fn(&mut Run) -> Result<()>) -> Step {
    let services = false;
    Step { name, run, services }
}

const fn step_with_services(name: &'static str, run: fn(&mut Run) -> Result<()>) -> Step {
    let services = true;
    Step { name, run, services }
}

const STEPS: &[Step] = &[
    step("fmt", fmt),
    step("clippy", clippy),
    step("features", features),
    step("tidy", |_| tidy::run()),
    step("deny", |_| deny::check(Advisories::Snapshot)),
    step("sbom", |_| sbom::check()),
    step("rust", |run| {
        run.skipped = shipped::minimum_rust()?;
        Ok(())
    }),
    step("previous", |run| {
        run.skipped = shipped::build_previous()?;
        Ok(())
    }),
    // After `previous`, which builds a program of the same name.
    step("build", build),
    step("systemd", |run| {
        run.skipped = shipped::systemd_unit()?;
        Ok(())
    }),
    step("image", |run| {
        run.skipped = shipped::image()?;
        Ok(())
    }),
    step_with_services("unit", unit),
    step_with_services("regressions", regressions),
    step_with_services("plans", plans),
    step_with_services("migrations", |run| services(run).and_then(migrations::check)),
    step("doc", doc),
    step("guides", |run| guides::check(&[]).map(|skipped| run.skipped = skipped)),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The steps to run (all).
    #[arg(value_parser = PossibleValuesParser::new(STEPS.iter().map(|step| step.name)))]
    steps: Vec<String>,
}

/// `cargo xtask test`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    let steps = select_steps(&options.steps);
    let mut run = Run::default();
    let mut reports = Vec::new();
    if steps.iter().any(|step| step.services) {
        reports.push(timed("services", &mut run, |run| {
            run.services = Some(TestServices::start()?);
            Ok(())
        }));
    }
    for step in steps {
        if signals::received() {
            break;
        }
        println!("\n== {}", step.name);
        reports.push(timed(step.name, &mut run, step.run));
    }
    // Stop the services before the summary, so that it is the last output.
    run.services = None;
    print!("\n== summary\n{}", outcome::summary(&reports));
    if let Some(report) = &run.report {
        print!("{report}");
    }
    if let Some(counts) = &run.counts {
        println!("{counts}");
    }
    if signals::received() {
        bail!("interrupted");
    }
    outcome::check(&reports)
}

/// The steps with these names in the order of the table. Without names: all steps.
fn select_steps(names: &[String]) -> Vec<&'static Step> {
    let chosen = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.name);
    STEPS.iter().filter(chosen).collect()
}

fn timed(name: &'static str, run: &mut Run, step: impl FnOnce(&mut Run) -> Result<()>) -> StepReport {
    let start = Instant::now();
    let result = step(run);
    let skipped = std::mem::take(&mut run.skipped);
    let outcome = Outcome::new(result.map(|()| skipped), skip::is_failure());
    if let Outcome::Failed(failure) = &outcome {
        eprintln!("{name}: {failure}");
    }
    StepReport {
        name,
        outcome,
        took: start.elapsed(),
    }
}

fn fmt(_: &mut Run) -> Result<()> {
    process::run(paths::cargo().args(["fmt", "--all", "--check"]), "cargo fmt")
}

fn clippy(_: &mut Run) -> Result<()> {
    let mut clippy = paths::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    process::run(&mut clippy, "cargo clippy")
}

/// With an example among the targets, cargo selects the features of the dependencies that tests need. So the steps share
/// the compiled dependencies.
const FEATURES_OF_TESTS: [&str; 3] = ["--workspace", "--example", "bare"];

/// Compiles without the default features of the server. The other steps build the defaults, which are what ships, and
/// run the tests with them. Only two crates are compiled again.
fn features(_: &mut Run) -> Result<()> {
    let mut check = paths::cargo();
    check.arg("clippy").args(FEATURES_OF_TESTS);
    check.args(["--lib", "--bins", "--no-default-features"]);
    process::run(
        check.args(["--", "-D", "warnings"]),
        "cargo clippy without default features",
    )
}

/// Builds the programs that some tests run.
fn build(run: &mut Run) -> Result<()> {
    let mut build = paths::cargo();
    build.arg("build").args(FEATURES_OF_TESTS);
    build.args(["--bin", "recado", "--bin", "recado-simulators"]);
    let built = process::run(&mut build, "cargo build");
    run.build_failed = built.is_err();
    built
}

fn unit(run: &mut Run) -> Result<()> {
    run.counts = Some(Counts::default());
    if run.build_failed {
        bail!("skipped, because the build failed");
    }
    let services = services(run)?;
    let list = services.dir().join("skipped-tests");
    let mut environment = services.environment().to_vec();
    environment.push((skip::LIST_VARIABLE, list.display().to_string()));
    let (report, result) = nextest::run(&environment)?;
    // nextest runs no doc tests.
    let mut doc_tests = paths::cargo();
    doc_tests.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    doc_tests.envs(environment);
    let mut counts = Counts::default();
    let doc_result = counted(&mut doc_tests, &mut counts);
    run.skipped = skipped_tests(&fs::read_to_string(&list).unwrap_or_default());
    counts.add_report(&report, run.skipped.len());
    (run.report, run.counts) = (Some(report), Some(counts));
    result.and(doc_result)
}

/// The tests that recorded that they could not run.
fn skipped_tests(list: &str) -> Vec<Skipped> {
    list.lines().map(|line| Skipped(line.to_owned())).collect()
}

/// Repeats the runs that failed once. It is another process, so that `stress` may use the services of this module.
fn regressions(run: &mut Run) -> Result<()> {
    let mut stress = Command::new(env::current_exe()?);
    stress.args(["stress", "--regressions"]);
    for (name, value) in services(run)?.environment() {
        stress.env(name, value);
    }
    process::run(&mut stress, "cargo xtask stress --regressions")
}

fn plans(run: &mut Run) -> Result<()> {
    if run.build_failed {
        bail!("skipped, because the build failed");
    }
    run.skipped = plans::check(services(run)?)?;
    Ok(())
}

fn doc(_: &mut Run) -> Result<()> {
    let mut doc = paths::cargo();
    doc.arg("doc")
        .args(FEATURES_OF_TESTS)
        .args(["--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut doc, "cargo doc")
}

fn services(run: &Run) -> Result<&TestServices> {
    match &run.services {
        Some(services) => Ok(services),
        None => bail!("skipped, because the services did not start"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_steps_are_selected_by_name_in_table_order() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen_names = |list: &[&str]| {
            select_steps(&names(list))
                .iter()
                .map(|step| step.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen_names(&["unit", "fmt"]), ["fmt", "unit"]);
        assert_eq!(chosen_names(&[]).len(), STEPS.len());
    }
}
