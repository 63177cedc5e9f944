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
mod million;
mod overload;
mod proxy;
mod queues;
mod read;
mod report;
mod results;
mod rollups;
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

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, value_parser};
use recado_testkit::signals;

use fixture::Fixture;
use results::{BenchResult, TargetResult};

/// Measures the release server and writes the results to docs/performance.md.
///
/// Without a name it writes a new table, else the rows of these benches. It needs wrk and pgbench; `limit` also needs
/// Redis, and `auth` valgrind.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", after_help = ENVIRONMENT)]
struct CommandLine {
    /// The benches to run (all).
    #[arg(value_parser = PossibleValuesParser::new(BENCHES.iter().map(|(name, _)| *name)))]
    names: Vec<String>,
    #[command(flatten)]
    options: Options,
}

const ENVIRONMENT: &str = "\
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
    ("million", million::run),
    ("snapshot", snapshot::run),
];

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

/// The chosen benches, or all, in the order of the table.
fn selected(chosen: &[String]) -> impl Iterator<Item = &'static (&'static str, Run)> {
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    BENCHES.iter().filter(move |(name, _)| is_chosen(name))
}

fn run(CommandLine { names: chosen, options }: &CommandLine) -> Result<()> {
    signals::install()?;
    let fixture = Fixture::start()?;
    let before = results::Ticks::now();
    let (mut results, mut names) = (Vec::new(), Vec::new());
    let mut failure = None;
    for (name, run) in selected(chosen) {
        println!("\n== {name}");
        match run(&fixture, *options) {
            Ok(found) => {
                print!("{}", results::table(&found));
                results.extend(found);
                names.push(*name);
            }
            // The results of the earlier benches are still written.
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let stolen = results::Ticks::now().stolen_since(&before);
    println!("\n{}", results::table(&results));
    let run = report::Run {
        everything: names.len() == BENCHES.len(),
        names,
        options: *options,
        stolen,
    };
    report::write(&results, &run, &fixture)?;
    if let Some(error) = failure {
        return Err(error);
    }
    let below: Vec<&str> = results
        .iter()
        .filter(|result| result.target_result() == TargetResult::Below)
        .map(|result| result.name.as_str())
        .collect();
    if below.is_empty() {
        Ok(())
    } else {
        bail!("below the floor: {}", below.join(", "))
    }
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
    fn bench_arguments_are_validated() {
        for args in ["everything", "--pairs", "--pairs many", "--seconds 0", "read --pairs 0"] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }
}
