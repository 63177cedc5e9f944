//! `recado`: `serve` (the default), `worker`, `migrate`.

use std::process::ExitCode;

use anyhow::Context as _;
use recado_server::config::Config;
use recado_server::{logging, serve};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: recado [serve [--no-workers] | worker | migrate]";

fn main() -> ExitCode {
    // A `.env` file is a convenience of development; what is set already wins over it.
    dotenvy::dotenv().ok();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] | ["serve"] => serve::run(serve::Parts::Everything),
        ["serve", "--no-workers"] => serve::run(serve::Parts::Routes),
        ["worker"] => serve::run(serve::Parts::Workers),
        ["migrate"] => migrate(),
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

fn migrate() -> anyhow::Result<()> {
    let url = Config::database_url(&|name| std::env::var(name).ok())?;
    logging::start(logging::Format::from_env())?;
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
