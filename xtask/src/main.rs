//! `cargo xtask`: everything a developer or a build machine does with this repository besides plain cargo.
//!
//! It starts the services the product needs (PostgreSQL, Redis) by itself, so that nothing has to be installed or
//! configured first; it runs the product in development, runs every check, and holds the few rules about the shape
//! of the code that no compiler checks. One module per concern; a new command is one module and one line in `run`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool speaks through its terminal"
)]

mod bench;
mod browser;
mod dev;
mod error;
mod guides;
mod http;
mod migrate;
mod paths;
mod process;
mod progress;
mod schemathesis;
mod scratch;
mod secrets;
mod seed;
mod services;
mod signals;
mod state;
mod stress;
mod test;
mod tidy;
mod token;

use std::process::ExitCode;

use error::{Result, fail};

/// With the names of the steps and of the benches in their places.
const USAGE: &str = "\
usage: cargo xtask <command>

  dev [--reset]        run the product here: database, counters, stand-ins for the outside world, server, demo data;
                       --reset throws the development data away first
  db                   start the development database alone, print its URLs, wait for Ctrl-C
  migrate              run `recado migrate` on the development database
  seed [--large [--messages N]]
                       add the demo account to the running development server (dev does it, too); --large adds one
                       with N messages (10 million) and a year of everything that analytics is about
  token --email E [--user UUID] [--name N] [--hours H]
                       print a session token for the development server
  test [step ...]      run every check, or only these:
                       {steps}
  guides [page ...]    run every command of README.md and docs/guides, or of these pages, against the whole product
  tidy                 check the rules about the shape of the code
  stress [name [--runs N] [--seed S]]
                       try what is said of reliability and security again and again (docs/faults.md); without a name
                       the list of what can be proved
  browser              look at the page of the reference (/docs) in Chromium, which is installed if need be
  schemathesis [--examples N | --requests N] [--seconds N] [--seed N] [--workers N] [--only PATH]
                       try the API against its own document (/api/openapi.json) with schemathesis, which is installed
                       if need be: N examples of every operation (20), or so many that N requests come together
  bench [name ...] [--seconds N] [--pairs N]
                       measure the release server, or only this of it:
                       {benches}
                       the result goes to docs/performance.md: without a name as a new table, else into the rows of
                       what was measured; needs wrk and pgbench, for limit Redis, for auth valgrind

environment:
  DATABASE_URL, REDIS_URL            dev: use these instead of private servers
  TEST_DATABASE_URL, TEST_REDIS_URL  test: the same (a superuser's URL, and a counter store)
  PG_BIN, REDIS_BIN                  where the binaries of PostgreSQL and of Redis are
  CHROMIUM_BIN                       browser: the program to use
  RECADO_DEV_BIND                    dev: where the server listens (127.0.0.1:8080, or a free port if that is taken)
  RECADO_BENCH_MESSAGES              bench analytics: messages of the large account (1 million)
  RECADO_BENCH_ENTRIES               bench audit: entries of the large account (1 million)
  RECADO_RUNS, RECADO_SEED           cargo test: how often tests of many rounds try, and from which seed; stress sets them
  XDG_DATA_HOME                      where dev keeps its state, below it (target/dev-state; as root always /var/tmp)
  CARGO_TARGET_DIR                   where cargo builds, and with it the browser's pictures and what is installed
";

fn usage() -> String {
    let steps = test::names().collect::<Vec<_>>().join(" ");
    // As wide as the other lines.
    let mut benches = String::new();
    for (index, name) in bench::names().enumerate() {
        benches.push_str(match index {
            0 => "",
            index if index % 10 == 0 => "\n                       ",
            _ => " ",
        });
        benches.push_str(name);
    }
    USAGE.replace("{steps}", &steps).replace("{benches}", &benches)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let Some((command, rest)) = args.split_first() else {
        print!("{}", usage());
        return Ok(());
    };
    if rest.iter().any(|a| a == "--help" || a == "-h") {
        print!("{}", usage());
        return Ok(());
    }
    match command.as_str() {
        "help" | "--help" | "-h" => {
            print!("{}", usage());
            Ok(())
        }
        "dev" => dev::run(rest),
        "db" => none(rest).and_then(|()| dev::database_only()),
        "migrate" => none(rest).and_then(|()| migrate::run()),
        "seed" => seed::run(rest),
        "token" => token::run(rest),
        "test" => test::run(rest),
        "guides" => guides::run(rest),
        "bench" => bench::run(rest),
        "stress" => stress::run(rest),
        "browser" => none(rest).and_then(|()| browser::run()),
        "schemathesis" => schemathesis::run(rest),
        "tidy" => none(rest).and_then(|()| tidy::run()),
        other => {
            eprint!("{}", usage());
            fail(format!("there is no command {other}"))
        }
    }
}

fn none(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(arg) => fail(format!(
            "unexpected argument {arg} (cargo xtask --help lists the commands)"
        )),
    }
}
