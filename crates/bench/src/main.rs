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
    #[arg(value_parser = PossibleValuesParser::new(BENCHES.iter().map(|bench| bench.name)))]
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

struct Bench {
    name: &'static str,
    run: fn(&Fixture, Options) -> Result<Vec<BenchResult>>,
}

/// In the order of a run: the benches that fill the database come last.
const BENCHES: &[Bench] = &[
    Bench {
        name: "idle",
        run: idle::run,
    },
    Bench {
        name: "cost",
        run: cost::run,
    },
    Bench {
        name: "read",
        run: read::run,
    },
    Bench {
        name: "plans",
        run: share::plans,
    },
    Bench {
        name: "list",
        run: share::list,
    },
    Bench {
        name: "overload",
        run: overload::run,
    },
    Bench {
        name: "isolation",
        run: isolation::run,
    },
    Bench {
        name: "limit",
        run: limit::run,
    },
    Bench {
        name: "auth",
        run: auth::run,
    },
    Bench {
        name: "keys",
        run: keys::run,
    },
    Bench {
        name: "dispatch",
        run: dispatch::run,
    },
    Bench {
        name: "audience",
        run: audience::run,
    },
    Bench {
        name: "cancel",
        run: cancel::run,
    },
    Bench {
        name: "rollups",
        run: rollups::run,
    },
    Bench {
        name: "send-rate",
        run: send_rate::run,
    },
    Bench {
        name: "statuses",
        run: statuses::run,
    },
    Bench {
        name: "webhooks",
        run: webhooks::run,
    },
    Bench {
        name: "import",
        run: import::run,
    },
    Bench {
        name: "upload",
        run: upload::run,
    },
    Bench {
        name: "create",
        run: share::create,
    },
    Bench {
        name: "audit",
        run: audit::run,
    },
    Bench {
        name: "admin-accounts",
        run: admin_accounts::run,
    },
    Bench {
        name: "analytics",
        run: analytics::run,
    },
    Bench {
        name: "growth",
        run: growth::run,
    },
    Bench {
        name: "snapshot-queues",
        run: queues::run,
    },
    Bench {
        name: "million",
        run: million::run,
    },
    Bench {
        name: "snapshot",
        run: snapshot::run,
    },
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

fn run(CommandLine { names, options }: &CommandLine) -> Result<()> {
    let benches: Vec<&Bench> = BENCHES
        .iter()
        .filter(|bench| names.is_empty() || names.iter().any(|name| name == bench.name))
        .collect();
    signals::install()?;
    let fixture = Fixture::start()?;
    let before = results::Ticks::now();
    let (mut results, mut names) = (Vec::new(), Vec::new());
    let mut failure = None;
    for bench in &benches {
        println!("\n== {}", bench.name);
        match (bench.run)(&fixture, *options) {
            Ok(found) => {
                print!("{}", results::table(&found));
                results.extend(found);
                names.push(bench.name);
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
    fn bench_arguments_are_validated() {
        for args in ["everything", "--pairs", "--pairs many", "--seconds 0", "read --pairs 0"] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }
}
