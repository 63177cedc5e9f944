//! `cargo xtask`: the commands of developers and build machines besides plain cargo.
//!
//! It starts PostgreSQL and Redis itself, so that nothing must be installed or configured first. It runs the product in
//! development and every check, and checks rules about the structure of the code. A new command is one module and one
//! line in `run`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool writes to its terminal"
)]

mod browser;
mod deny;
mod dev;
mod guides;
mod migrate;
mod sbom;
mod schemathesis;
mod seed;
mod state;
mod stress;
mod test;
mod tidy;
mod token;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use recado_testkit::paths;

/// `usage` replaces `{steps}`.
const USAGE: &str = "\
usage: cargo xtask <command>

  dev [--reset]        run the product here: database, Redis, simulators of the external systems, server, demo data;
                       --reset deletes the development data first
  db                   start only the development database, print its URLs, wait for Ctrl-C
  migrate              run `recado migrate` on the development database
  schema               write migrations/schema.sql, schema.rs and docs/data-model.md from a migrated database
  seed [--large [--messages N]]
                       add the demo account to the running development server (dev does this too); --large adds an
                       account with N messages (10 million) and a year of data for analytics
  token --email E [--user UUID] [--name N] [--hours H]
                       print a session token for the development server
  test [step ...]      run every check, or only these:
                       {steps}
  guides [page ...]    run every command of README.md and docs/guides, or of these pages, against the whole product
  tidy                 check the rules about the structure of the code
  deny [--online]      check the dependencies against .deny.toml: advisories, licences, banned crates, sources; --online
                       uses the current advisory database instead of the snapshot in the repository
  sbom                 write the software bill of materials of the server (CycloneDX) to target/recado.cdx.json
  stress [name [--runs N] [--seed S]]
                       repeat the tests of reliability and security (docs/faults.md); without a name, list the suites
  browser              check the API reference (/docs) in Chromium, which is installed if missing
  schemathesis [--examples N | --requests N] [--seconds N] [--seed N] [--workers N] [--only PATH]
                       test the API against its document (/api/openapi.json) with schemathesis, which is installed if
                       missing: N examples of every operation (20), or about N requests in total
  bench [name ...] [--seconds N] [--pairs N]
                       measure the release server (crates/bench), with all benches or only these (bench --help); writes
                       the results to docs/performance.md: without a name a new table, else the rows of these benches;
                       needs wrk and pgbench, limit also Redis, auth also valgrind

environment:
  DATABASE_URL, REDIS_URL            dev: use these instead of private servers
  TENANT_DATABASE_URL                dev, migrate: the tenants' login to that DATABASE_URL
  TEST_DATABASE_URL, TEST_REDIS_URL  test: the same (a superuser's URL, and Redis)
  PG_BIN, REDIS_BIN, PGBOUNCER_BIN   directory of PostgreSQL's programs, paths of redis-server and pgbouncer
  CHROMIUM_BIN                       browser: the program to use
  RECADO_DEV_BIND                    dev: where the server listens (127.0.0.1:8080, or a free port if that is taken)
  RECADO_BENCH_MESSAGES              bench analytics: messages of the large account (1 million)
  RECADO_BENCH_ENTRIES               bench audit: entries of the large account (1 million)
  RECADO_RUNS, RECADO_SEED           cargo test: iterations and seed of repeated tests; stress sets them
  XDG_DATA_HOME                      parent directory of the state of dev (target/dev-state; as root always /var/tmp)
  CARGO_TARGET_DIR                   build directory of cargo, also for screenshots and installed tools
";

fn usage() -> String {
    let steps = test::names().collect::<Vec<_>>().join(" ");
    USAGE.replace("{steps}", &steps)
}

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

fn run(args: &[String]) -> Result<()> {
    let Some((command, rest)) = args.split_first() else {
        print!("{}", usage());
        return Ok(());
    };
    if command != "bench" && rest.iter().any(|a| a == "--help" || a == "-h") {
        print!("{}", usage());
        return Ok(());
    }
    match command.as_str() {
        "help" | "--help" | "-h" => {
            print!("{}", usage());
            Ok(())
        }
        "dev" => dev::run(rest),
        "db" => reject_arguments(rest).and_then(|()| dev::database_only()),
        "schema" => reject_arguments(rest).and_then(|()| test::migrations::write_schema_files()),
        "migrate" => reject_arguments(rest).and_then(|()| migrate::run()),
        "seed" => seed::run(rest),
        "token" => token::run(rest),
        "test" => test::run(rest),
        "guides" => guides::run(rest),
        "bench" => bench(rest),
        "stress" => stress::run(rest),
        "browser" => reject_arguments(rest).and_then(|()| browser::run()),
        "schemathesis" => schemathesis::run(rest),
        "deny" => deny::run(rest),
        "sbom" => reject_arguments(rest).and_then(|()| sbom::run()),
        "tidy" => reject_arguments(rest).and_then(|()| tidy::run()),
        unknown => {
            eprint!("{}", usage());
            bail!("there is no command {unknown}")
        }
    }
}

/// Becomes the program of crates/bench, which only this command builds.
fn bench(args: &[String]) -> Result<()> {
    let mut run = paths::cargo();
    run.args(["run", "--quiet", "--package", "recado-bench", "--"])
        .args(args);
    Err(run.exec()).context("cannot start cargo")
}

fn reject_arguments(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(arg) => bail!("unexpected argument {arg} (cargo xtask --help lists the commands)"),
    }
}
