//! `recado`: `serve` (the default), `worker`, `migrate`, `rollups`, `erasures`, `secrets`, `doctor`, `health`, `openapi`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use recado_server::config::Config;
use recado_server::doctor::{self, DoctorOptions};
use recado_server::rollups::{self, Task};
use recado_server::{contact_search, erasures, health, logging, secrets, serve};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: recado [serve [--no-workers] | worker | migrate | \
    rollups (verify | rebuild [--reprice]) [--account ID] | erasures replay | secrets rotate | doctor [--json] [--account ID] | \
    health [--worker] | openapi]";

fn main() -> ExitCode {
    // A `.env` file is for development. Variables that are already set take precedence.
    if let Err(error) = dotenvy::dotenv()
        && !error.not_found()
    {
        print_error(&format!(
            "recado: cannot read the file .env: {}",
            dotenv_problem(&error)
        ));
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] | ["serve"] => serve::run(serve::ProcessRole::Everything),
        ["serve", "--no-workers"] => serve::run(serve::ProcessRole::Routes),
        ["worker"] => serve::run(serve::ProcessRole::Workers),
        ["migrate"] => migrate(),
        ["rollups", "verify"] => run_rollups(Task::Verify, None),
        ["rollups", "verify", "--account", id] => run_rollups(Task::Verify, Some(id)),
        ["rollups", "rebuild"] => run_rollups(Task::Rebuild, None),
        ["rollups", "rebuild", "--account", id] => run_rollups(Task::Rebuild, Some(id)),
        ["rollups", "rebuild", "--reprice"] => run_rollups(Task::Reprice, None),
        ["rollups", "rebuild", "--reprice", "--account", id] | ["rollups", "rebuild", "--account", id, "--reprice"] => {
            run_rollups(Task::Reprice, Some(id))
        }
        ["erasures", "replay"] => replay_erasures(),
        ["secrets", "rotate"] => rotate_secrets(),
        ["doctor", options @ ..] => return run_doctor(options),
        ["health"] => health::check(health::Process::Server),
        ["health", "--worker"] => health::check(health::Process::Worker),
        ["openapi"] => print_openapi(),
        _ => {
            print_error(USAGE);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("recado: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Describes the error without the malformed line, which may contain a secret.
fn dotenv_problem(error: &dotenvy::Error) -> String {
    match error {
        dotenvy::Error::Io(error) => error.to_string(),
        _ => "a line does not have the form NAME=value".to_owned(),
    }
}

fn run_rollups(task: Task, account: Option<&str>) -> anyhow::Result<()> {
    let _log_guard = logging::start(logging::Format::from_env())?;
    match rollups::run(task, account)? {
        true => Ok(()),
        false => anyhow::bail!("rollups differ from their source rows; run: recado rollups rebuild"),
    }
}

fn replay_erasures() -> anyhow::Result<()> {
    let _log_guard = logging::start(logging::Format::from_env())?;
    erasures::replay()
}

fn rotate_secrets() -> anyhow::Result<()> {
    let _log_guard = logging::start(logging::Format::from_env())?;
    match secrets::rotate()? {
        true => Ok(()),
        false => anyhow::bail!(
            "some values are still under an earlier key: keep APP_SECRET_PREVIOUS, and run the command again after \
             every server has the new APP_SECRET"
        ),
    }
}

fn run_doctor(arguments: &[&str]) -> ExitCode {
    let Some(options) = DoctorOptions::parse(arguments) else {
        print_error(USAGE);
        return ExitCode::from(2);
    };
    doctor::run(&options).unwrap_or_else(|error| {
        print_error(&format!("recado: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Writes the OpenAPI document to standard output. A reader that closes the pipe early is not an error.
fn print_openapi() -> anyhow::Result<()> {
    let text = format!("{:#}\n", recado_api::reference::document());
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn migrate() -> anyhow::Result<()> {
    let source = |name: &str| std::env::var(name).ok();
    let (url, tls) = (Config::database_url(&source)?, Config::database_tls(&source)?);
    let tenant_url = Config::tenant_database_url(&source)?;
    let _log_guard = logging::start(logging::Format::from_env())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(1)
        .build()?;
    runtime.block_on(recado_postgres::check_tls(&url, &tls))?;
    let applied = runtime
        .block_on(recado_postgres::migrate_over(&url, &tls))
        .context("migrating the database failed")?;
    runtime
        .block_on(recado_postgres::prepare_tenant_role(&url, tenant_url.as_ref(), &tls))
        .context("TENANT_DATABASE_URL: the tenant role cannot be made")?;
    runtime.block_on(contact_search::prepare(&url, &tls));
    tracing::info!(count = applied.len(), ?applied, "migrated the database");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "errors of a command go to its standard error")]
fn print_error(text: &str) {
    eprintln!("{text}");
}
