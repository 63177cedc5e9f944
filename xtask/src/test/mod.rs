//! `cargo xtask test`: runs every check of this repository with the required services and prints a summary.
//!
//! Developers and the build machine run the same command. All steps run even if one fails, so that one run shows all
//! failures.

pub(crate) mod counts;
mod data_model;
mod diesel_schema;
pub(crate) mod migrations;
pub(crate) mod plans;
mod schema;
pub(crate) mod services;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use recado_testkit::{paths, process, signals};

use crate::deny::Advisories;
use crate::{deny, guides, sbom, tidy};
use counts::{Counts, counted};
use services::TestServices;

/// State that the steps share.
#[derive(Default)]
struct Run {
    services: Option<TestServices>,
    counts: Option<Counts>,
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
    step("otel", otel),
    step("tidy", |_| tidy::run()),
    step("deny", |_| deny::check(Advisories::Snapshot)),
    step("sbom", |_| sbom::check()),
    step("build", build),
    step_with_services("unit", unit),
    step_with_services("plans", plans),
    step_with_services("migrations", |run| services(run).and_then(migrations::check)),
    step("doc", doc),
    step("guides", |_| guides::check(&[])),
];

struct Outcome {
    name: &'static str,
    failure: Option<String>,
    took: Duration,
}

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
    let mut outcomes = Vec::new();
    if steps.iter().any(|step| step.services) {
        outcomes.push(timed("services", || {
            run.services = Some(TestServices::start()?);
            Ok(())
        }));
    }
    for step in steps {
        if signals::received() {
            break;
        }
        println!("\n== {}", step.name);
        outcomes.push(timed(step.name, || (step.run)(&mut run)));
    }
    // Stop the services before the summary, so that it is the last output.
    run.services = None;
    summary(&outcomes, run.counts.as_ref())
}

/// The steps with these names in the order of the table. Without names: all steps.
fn select_steps(names: &[String]) -> Vec<&'static Step> {
    let chosen = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.name);
    STEPS.iter().filter(chosen).collect()
}

fn timed(name: &'static str, run: impl FnOnce() -> Result<()>) -> Outcome {
    let start = Instant::now();
    let failure = run().err().map(|failure| format!("{failure:#}"));
    if let Some(failure) = &failure {
        eprintln!("{name}: {failure}");
    }
    Outcome {
        name,
        failure,
        took: start.elapsed(),
    }
}

fn summary(outcomes: &[Outcome], counts: Option<&Counts>) -> Result<()> {
    println!("\n== summary");
    for Outcome { name, failure, took } in outcomes {
        let status = if failure.is_some() { "FAILED" } else { "ok" };
        println!("{name:<12}{status:<8}{:>6.1} s", took.as_secs_f64());
    }
    if let Some(counts) = counts {
        println!("{} passed, {} failed", counts.passed, counts.failed);
    }
    if signals::received() {
        bail!("interrupted");
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|o| o.failure.is_some())
        .map(|o| o.name)
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("failed: {}", failed.join(", "))
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

/// Builds with the feature that is off by default. Its tests need a separately built server:
/// `cargo test -p recado-server --features otel --test it traces`.
fn otel(_: &mut Run) -> Result<()> {
    let mut clippy = paths::cargo();
    clippy.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        "recado-server/otel",
    ]);
    process::run(clippy.args(["--", "-D", "warnings"]), "cargo clippy with traces")
}

/// Builds the programs that some tests run.
fn build(run: &mut Run) -> Result<()> {
    let mut build = paths::cargo();
    build.args(["build", "--bin", "recado", "--bin", "recado-simulators"]);
    let built = process::run(&mut build, "cargo build");
    run.build_failed = built.is_err();
    built
}

fn unit(run: &mut Run) -> Result<()> {
    run.counts = Some(Counts::default());
    if run.build_failed {
        bail!("skipped, because the build failed");
    }
    let mut test = paths::cargo();
    // A failing crate must not hide the failures of others.
    test.args(["test", "--workspace", "--no-fail-fast"]);
    for (name, value) in services(run)?.environment() {
        test.env(name, value);
    }
    counted(&mut test, run.counts.get_or_insert_default())
}

fn plans(run: &mut Run) -> Result<()> {
    if run.build_failed {
        bail!("skipped, because the build failed");
    }
    plans::check(services(run)?)
}

fn doc(_: &mut Run) -> Result<()> {
    let mut doc = paths::cargo();
    doc.args(["doc", "--workspace", "--no-deps"])
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

    #[test]
    fn failed_step_fails_the_run() {
        let outcome = |failure: Option<&str>| Outcome {
            name: "x",
            failure: failure.map(str::to_owned),
            took: Duration::ZERO,
        };
        assert!(summary(&[outcome(None), outcome(None)], None).is_ok());
        assert!(summary(&[outcome(None), outcome(Some("no"))], None).is_err());
    }
}
