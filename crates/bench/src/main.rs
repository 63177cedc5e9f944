//! `cargo xtask bench`: measures speed and memory of the release server on this machine.
//!
//! Speeds are ratios to a reference load that alternates with the measured one: absolute rates are not comparable
//! between machines, nor between two minutes on one machine. `docs/performance.md` describes each measurement.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool writes to its terminal"
)]

mod admin_accounts;
mod analytics;
mod audience;
mod audit;
mod auth;
mod cancel;
mod captured;
mod cost;
mod data;
mod dispatch;
mod fixture;
mod growth;
mod idle;
mod import;
mod isolation;
mod keys;
mod limit;
mod load;
mod load_clients;
mod messages;
mod million;
mod noise;
mod overload;
mod proxy;
mod queues;
mod read;
mod report;
mod results;
mod rollups;
mod segments;
mod send_rate;
mod sending;
mod share;
mod snapshot;
mod statuses;
mod times;
mod upload;
mod webhooks;
mod wire;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, value_parser};
use recado_testkit::{paths, signals};

use fixture::Fixture;
use noise::Noise;
use results::{BenchResult, TargetResult};

/// Measures the release server, and compares the results with their targets and with docs/performance.md.
///
/// No tracked file changes without `--write`. It needs wrk and pgbench; `limit` also needs Redis, and `auth` valgrind.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", after_help = AFTER_HELP)]
struct CommandLine {
    /// The benches to run (all).
    #[arg(value_parser = PossibleValuesParser::new(BENCHES.iter().map(|(name, _)| *name)))]
    names: Vec<String>,
    /// Write the results to docs/performance.md: a new table, or with names the rows of these benches.
    #[arg(long)]
    write: bool,
    /// Measure a debug build, to try out a bench: the results have no verdict.
    #[arg(long, conflicts_with = "write")]
    debug: bool,
    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
A target is met (yes), missed (no), or there is no verdict, with the reason: other work took more than 10 % of a
processor, or the rounds differ by more than 15 % (interquartile range / median). Measure again on a quiet machine.

Exit status:
  0  no target is missed; there may be results without a verdict
  1  a target is missed
  2  a bench failed, or the arguments are wrong

Environment:
  RECADO_BENCH_MESSAGES  analytics: messages of the large account (1 million)
  RECADO_BENCH_ENTRIES   audit: entries of the large account (1 million)";

#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    /// The seconds of each measurement.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..))]
    seconds: u32,
    /// The number of rounds.
    #[arg(long, default_value_t = 5, value_parser = |text: &str| text.parse().map(NonZeroUsize::get))]
    pairs: usize,
}

type Run = fn(&Fixture, Options) -> Result<Vec<BenchResult>>;

/// In the order of a run: the benches that fill the database come last.
const BENCHES: &[(&str, Run)] = &[
    ("idle", idle::run),
    ("cost", cost::run),
    ("read", read::run),
    ("plans", share::plans),
    ("list", share::list),
    ("overload", overload::run),
    ("isolation", isolation::run),
    ("limit", limit::run),
    ("auth", auth::run),
    ("keys", keys::run),
    ("dispatch", dispatch::run),
    ("audience", audience::run),
    ("cancel", cancel::run),
    ("rollups", rollups::run),
    ("send-rate", send_rate::run),
    ("messages", messages::run),
    ("statuses", statuses::run),
    ("webhooks", webhooks::run),
    ("import", import::run),
    ("upload", upload::run),
    ("create", share::create),
    ("audit", audit::run),
    ("admin-accounts", admin_accounts::run),
    ("analytics", analytics::run),
    ("growth", growth::run),
    ("snapshot-queues", queues::run),
    ("segments", segments::run),
    ("million", million::run),
    ("snapshot", snapshot::run),
];

/// Exit status of a missed target, and of an error (also of wrong arguments, by clap).
const MISSED: u8 = 1;
const ERROR: u8 = 2;

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("error: {failure:#}");
            ExitCode::from(ERROR)
        }
    }
}

/// The chosen benches, or all, in the order of the table.
fn selected(chosen: &[String]) -> impl Iterator<Item = &'static (&'static str, Run)> {
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    BENCHES.iter().filter(move |(name, _)| is_chosen(name))
}

fn run(command_line: &CommandLine) -> Result<u8> {
    signals::install()?;
    let options = command_line.options;
    let fixture = Fixture::start(command_line.debug)?;
    let began = Noise::now();
    let (mut results, mut names) = (Vec::new(), Vec::new());
    let mut failure = None;
    for (name, run) in selected(&command_line.names) {
        println!("\n== {name}");
        match with_noise(|| run(&fixture, options)) {
            Ok(mut found) => {
                if command_line.debug {
                    found = found
                        .into_iter()
                        .map(|result| result.inconclusive("debug build"))
                        .collect();
                }
                print!("{}", results::results_table(&found));
                results.extend(found);
                names.push(*name);
            }
            // The results of the earlier benches are still reported.
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let run = report::Run {
        everything: names.len() == BENCHES.len(),
        names,
        options,
        stolen_percent: Noise::stolen_percent(&began, &Noise::now()),
    };
    let closing = command_line.write.then(|| report::closing(&run, &fixture));
    let page = paths::root().join(report::PAGE);
    println!(
        "\n{}",
        report::report(&page, &results, run.everything, closing.as_deref())?
    );
    failure.map_or_else(|| Ok(exit_status(&results)), Err)
}

/// Runs a bench. On a noisy machine, its results that depend on time have no verdict.
fn with_noise(run: impl FnOnce() -> Result<Vec<BenchResult>>) -> Result<Vec<BenchResult>> {
    let before = Noise::now();
    let results = run()?;
    let reason = Noise::reason(&before, &Noise::now());
    let with_noise = |result: BenchResult| result.with_noise(reason.as_deref());
    Ok(results.into_iter().map(with_noise).collect())
}

fn exit_status(results: &[BenchResult]) -> u8 {
    let missed = results
        .iter()
        .filter(|result| result.target_result() == TargetResult::Missed);
    let missed: Vec<&str> = missed.map(|result| result.name.as_str()).collect();
    if missed.is_empty() {
        return 0;
    }
    eprintln!("target missed: {}", missed.join(", "));
    MISSED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Vec<String>, Options), clap::Error> {
        let line = CommandLine::try_parse_from(["bench"].into_iter().chain(text.split_whitespace()))?;
        Ok((line.names, line.options))
    }

    #[test]
    fn bench_arguments_are_accepted_in_any_order() {
        let (names, options) = parsed("import --pairs 7 idle --seconds 10").unwrap();
        assert_eq!(names, ["import", "idle"]);
        assert_eq!(options, Options { seconds: 10, pairs: 7 });
        assert_eq!(parsed("").unwrap(), (Vec::new(), Options { seconds: 4, pairs: 5 }));
    }

    #[test]
    fn chosen_benches_run_in_the_order_of_the_table() {
        let (chosen, _) = parsed("import idle").unwrap();
        let names: Vec<&str> = selected(&chosen).map(|(name, _)| *name).collect();
        assert_eq!(names, ["idle", "import"]);
        assert_eq!(selected(&[]).count(), BENCHES.len());
    }

    #[test]
    fn only_a_missed_target_changes_the_exit_status() {
        let result = |value| BenchResult::less("idle: x", value, "", 0).target(5.0);
        assert_eq!(exit_status(&[]), 0);
        let noisy = result(6.0).with_noise(Some("noise"));
        assert_eq!(exit_status(&[result(5.0), noisy.clone()]), 0);
        assert_eq!(exit_status(&[noisy, result(6.0)]), MISSED);
    }

    #[test]
    fn bench_arguments_are_validated() {
        assert!(!CommandLine::try_parse_from(["bench"]).unwrap().write);
        assert!(CommandLine::try_parse_from(["bench", "--write", "read"]).unwrap().write);
        for args in [
            "--debug --write",
            "everything",
            "--pairs",
            "--pairs many",
            "--seconds 0",
            "read --pairs 0",
        ] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }
}
