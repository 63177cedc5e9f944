//! `recado`: `serve` (the default), `worker`, `migrate`, `rollups`, `health`, `openapi`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use recado_server::config::Config;
use recado_server::rollups::{self, Task};
use recado_server::{health, logging, serve};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: recado [serve [--no-workers] | worker | migrate | rollups (verify | rebuild) [--account ID] | \
    health [--worker] | openapi]";

fn main() -> ExitCode {
    // A `.env` file is a convenience of development; what is set already wins over it.
    if let Err(error) = dotenvy::dotenv()
        && !error.not_found()
    {
        tell(&format!("recado: the file .env cannot be read: {}", unreadable(&error)));
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] | ["serve"] => serve::run(serve::ProcessRole::Everything),
        ["serve", "--no-workers"] => serve::run(serve::ProcessRole::Routes),
        ["worker"] => serve::run(serve::ProcessRole::Workers),
        ["migrate"] => migrate(),
        ["rollups", "verify"] => sums(Task::Verify, None),
        ["rollups", "verify", "--account", id] => sums(Task::Verify, Some(id)),
        ["rollups", "rebuild"] => sums(Task::Rebuild, None),
        ["rollups", "rebuild", "--account", id] => sums(Task::Rebuild, Some(id)),
        ["health"] => health::ask(health::Process::Server),
        ["health", "--worker"] => health::ask(health::Process::Worker),
        ["openapi"] => print_reference(),
        _ => {
            tell(USAGE);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("recado: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Why a `.env` file cannot be read, without the line, which may hold a secret.
fn unreadable(error: &dotenvy::Error) -> String {
    match error {
        dotenvy::Error::Io(error) => error.to_string(),
        _ => "a line is not of the form NAME=value".to_owned(),
    }
}

fn sums(task: Task, account: Option<&str>) -> anyhow::Result<()> {
    let _log_guard = logging::start(logging::Format::from_env())?;
    match rollups::run(task, account)? {
        true => Ok(()),
        false => anyhow::bail!("sums are kept that are not those of their rows"),
    }
}

/// Writes the reference; whoever reads it may have enough of it at any time.
fn print_reference() -> anyhow::Result<()> {
    let text = format!("{:#}\n", recado_server::reference::document());
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn migrate() -> anyhow::Result<()> {
    let url = Config::database_url(&|name| std::env::var(name).ok())?;
    let _log_guard = logging::start(logging::Format::from_env())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(1)
        .build()?;
    let applied = runtime
        .block_on(recado_postgres::migrate(&url))
        .context("the migrations failed")?;
    tracing::info!(count = applied.len(), ?applied, "database is migrated");
    Ok(())
}

#[expect(
    clippy::print_stderr,
    reason = "the last words of a process go to whoever started it"
)]
fn tell(text: &str) {
    eprintln!("{text}");
}
