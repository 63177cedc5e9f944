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

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use recado_testkit::signals;

use fixture::Fixture;
use results::{BenchResult, TargetResult};

/// The seconds of each measurement and the number of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    seconds: u32,
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
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

/// The names of all benches.
fn names() -> impl Iterator<Item = &'static str> {
    BENCHES.iter().map(|bench| bench.name)
}

fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        let names: Vec<&str> = names().collect();
        println!(
            "usage: cargo xtask bench [name ...] [--seconds N] [--pairs N]\nbenches: {}",
            names.join(" ")
        );
        return Ok(());
    }
    let (benches, options) = parse(args)?;
    signals::install()?;
    let fixture = Fixture::start()?;
    let before = results::Ticks::now();
    let (mut results, mut names) = (Vec::new(), Vec::new());
    let mut failure = None;
    for bench in &benches {
        println!("\n== {}", bench.name);
        match (bench.run)(&fixture, options) {
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
        options,
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

fn parse(args: &[String]) -> Result<(Vec<&'static Bench>, Options)> {
    let mut options = Options { seconds: 4, pairs: 5 };
    let mut names = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--seconds" => options.seconds = number(arg, rest.next())?,
            "--pairs" => options.pairs = number(arg, rest.next())?,
            name if BENCHES.iter().any(|bench| bench.name == name) => names.push(name),
            unknown => {
                let names: Vec<&str> = self::names().collect();
                bail!("there is no bench {unknown}; choose from {}", names.join(" "));
            }
        }
    }
    if options.seconds == 0 || options.pairs == 0 {
        bail!("--seconds and --pairs must be at least 1");
    }
    let selected = BENCHES
        .iter()
        .filter(|bench| names.is_empty() || names.contains(&bench.name))
        .collect();
    Ok((selected, options))
}

fn number<T: std::str::FromStr>(option: &str, value: Option<&String>) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    match value {
        Some(value) => value.parse().with_context(|| format!("{option} {value}")),
        None => bail!("{option} needs a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Vec<&'static str>, Options)> {
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&args).map(|(benches, options)| (benches.iter().map(|bench| bench.name).collect(), options))
    }

    #[test]
    fn bench_arguments_are_accepted_in_any_order() {
        let (names, options) = parsed("import --pairs 7 idle --seconds 10").unwrap();
        assert_eq!(names, ["idle", "import"]);
        assert_eq!(options, Options { seconds: 10, pairs: 7 });
        assert_eq!(parsed("").unwrap().0.len(), BENCHES.len());
    }

    #[test]
    fn bench_arguments_are_validated() {
        for args in ["everything", "--pairs", "--pairs many", "--seconds 0", "read --pairs 0"] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }
}
