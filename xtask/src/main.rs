//! `cargo xtask`: the commands of developers and build machines besides plain cargo.
//!
//! It starts PostgreSQL and Redis itself, so that nothing must be installed or configured first. It runs the product in
//! development and every check, and checks rules about the structure of the code. A new command is one module and one
//! variant of `Command`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool writes to its terminal"
)]

mod browser;
mod clients;
mod deny;
mod dev;
mod fuzz;
mod guides;
mod migrate;
mod mutants;
mod outcome;
mod sbom;
mod schemathesis;
mod seed;
mod shipped;
mod stress;
mod test;
mod tidy;
mod token;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use recado_testkit::paths;

const ENVIRONMENT: &str = "\
Environment:
  DATABASE_URL, REDIS_URL            dev: use these instead of private servers
  TENANT_DATABASE_URL                dev, migrate: the tenants' login to that DATABASE_URL
  TEST_DATABASE_URL, TEST_REDIS_URL  test: the same (a superuser's URL, and Redis)
  PG_BIN, REDIS_BIN, PGBOUNCER_BIN   directory of PostgreSQL's programs, paths of redis-server and pgbouncer
  CHROMIUM_BIN                       browser: the program to use
  RECADO_DEV_BIND                    dev: where the server listens (127.0.0.1:8080, or a free port if that is taken)
  RECADO_RUNS, RECADO_SEED           cargo test: iterations and seed of repeated tests; stress sets them
  XDG_DATA_HOME                      parent directory of the state of dev (target/dev-state; as root always /var/tmp)
  CARGO_TARGET_DIR                   build directory of cargo, also for screenshots and installed tools";

/// The commands of developers and build machines besides plain cargo.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", after_help = ENVIRONMENT)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the product here: database, Redis, simulators of the external systems, server, demo data.
    Dev(dev::Options),
    /// Start only the development database, print its URLs, wait for Ctrl-C.
    Db,
    /// Run `recado migrate` on the development database.
    Migrate,
    /// Write migrations/schema.sql, the tables of crates/schema and docs/data-model.md from a migrated database.
    Schema,
    /// Add the demo account to the running development server (dev does this too).
    Seed(seed::Options),
    /// Print a session token for the development server.
    Token(token::Options),
    /// Run every check, or only some steps.
    Test(test::Options),
    /// Run every command of README.md and docs/guides against the whole product.
    Guides {
        /// The pages, without directory and `.md` (all).
        pages: Vec<String>,
    },
    /// Check the rules about the structure of the code.
    Tidy,
    /// Check the dependencies against .deny.toml: advisories, licences, banned crates, sources.
    Deny(deny::Options),
    /// Write the software bill of materials of the server (CycloneDX) to target/recado.cdx.json.
    Sbom,
    /// Repeat the tests of reliability and security (docs/faults.md); without a name, list the suites.
    Stress(stress::Options),
    /// Change the code that decides on states, limits and permissions, and require that tests find it (cargo-mutants).
    Mutants(mutants::Options),
    /// Search for inputs that break a parser (crates/fuzz), guided by coverage.
    Fuzz(fuzz::Options),
    /// Check the API reference (/docs) in Chromium, which is installed if missing.
    Browser,
    /// Test the API against its document (/api/openapi.json) with schemathesis, which is installed if missing.
    Schemathesis(schemathesis::Options),
    /// Generate clients for TypeScript and Python from the API document, and run the main job with each.
    Clients,
    /// Measure the release server and compare with the targets (bench --help); only --write changes files.
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run(CommandLine::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Dev(options) => dev::run(&options),
        Command::Db => dev::database_only(),
        Command::Migrate => migrate::run(),
        Command::Schema => test::migrations::write_schema_files(),
        Command::Seed(options) => seed::run(&options),
        Command::Token(options) => token::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Guides { pages } => guides::run(&pages),
        Command::Tidy => tidy::run(),
        Command::Deny(options) => deny::run(&options),
        Command::Sbom => sbom::run(),
        Command::Stress(options) => stress::run(&options),
        Command::Mutants(options) => mutants::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Browser => browser::run(),
        Command::Schemathesis(options) => schemathesis::run(options),
        Command::Clients => clients::run(),
        Command::Bench { args } => bench(&args),
    }
}

/// Becomes the program of crates/bench, which only this command builds.
fn bench(args: &[OsString]) -> Result<()> {
    let mut run = paths::cargo();
    run.args(["run", "--quiet", "--package", "recado-bench", "--"])
        .args(args);
    Err(run.exec()).context("cannot start cargo")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn accepts(line: &str) -> bool {
        CommandLine::try_parse_from(["xtask"].into_iter().chain(line.split_whitespace())).is_ok()
    }

    #[test]
    fn command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn options_of_commands_are_validated() {
        for line in [
            "dev --reset",
            "seed",
            "seed --large",
            "seed --large --messages 20000",
            "token --email a@b --hours 3",
            "test unit fmt",
            "deny --online",
            "stress kills --seed 7 --runs 20",
            "schemathesis --seed 0 --workers 8 --seconds 60 --only /api/tags",
            "bench --help",
        ] {
            assert!(accepts(line), "{line}");
        }
        for line in [
            "dev --fast",
            "seed --messages 20000",
            "seed large",
            "seed --large --messages",
            "seed --large --messages x",
            "seed --large --messages 9999",
            "token --user x",
            "token --email",
            "token --email=",
            "token --email a@b --hours many",
            "token --email a@b --frobnicate 1",
            "test everything",
            "stress nothing",
            "stress --runs 20",
            "stress kills --runs",
            "stress kills --runs x",
            "stress kills --runs 0",
            "stress kills --fast",
            "schemathesis --examples",
            "schemathesis --examples 0",
            "schemathesis --workers x",
            "schemathesis --examples 1 --requests 1",
        ] {
            assert!(!accepts(line), "{line}");
        }
    }
}
