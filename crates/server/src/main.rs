//! `recado`: the commands of the server, and those that call its API. `recado --help` lists them.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use recado_cli::{ClientCommand, EXIT_CODES};
use recado_domain::shared::AccountId;
use recado_server::config::Config;
use recado_server::doctor::{self, DoctorOptions, parse_account_id};
use recado_server::rollups::{self, Task};
use recado_server::{contact_search, erasures, health, logging, secrets, serve};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sends WhatsApp campaigns for many accounts, and handles the replies.
#[derive(Parser)]
#[command(name = "recado", version, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the routes and do background work; the default.
    Serve {
        /// Serve the routes alone; another process must run `recado worker`.
        #[arg(long)]
        no_workers: bool,
    },
    /// Do background work alone.
    Worker,
    /// Migrate the database to this version, while servers run.
    Migrate,
    /// Compare or rebuild the sums that reports read.
    #[command(subcommand)]
    Rollups(RollupsCommand),
    /// Run erasures of contacts again.
    #[command(subcommand)]
    Erasures(ErasuresCommand),
    /// Change the key of stored secrets.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Check every part of the installation, and change nothing.
    Doctor(DoctorOptions),
    /// Check that the server at BIND on this machine is ready.
    Health {
        /// Check that the worker at METRICS_BIND is alive.
        #[arg(long)]
        worker: bool,
    },
    /// Print the API reference, an OpenAPI document.
    Openapi,
    /// Print a completion script for a shell.
    Completion { shell: Shell },
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

#[derive(Subcommand)]
enum RollupsCommand {
    /// Compare every sum with the rows that it counts, and print each difference.
    Verify(RollupsOptions),
    /// Set every sum to what its rows say.
    Rebuild {
        /// Compute the price of every message again with the rate cards of now.
        #[arg(long)]
        reprice: bool,
        #[command(flatten)]
        options: RollupsOptions,
    },
}

#[derive(Args)]
struct RollupsOptions {
    /// Only the rows of this account.
    #[arg(long, value_name = "ID", value_parser = parse_account_id)]
    account: Option<AccountId>,
}

#[derive(Subcommand)]
enum ErasuresCommand {
    /// Request the erasures again that the media store lists and the database lacks, as after a restore.
    Replay,
}

#[derive(Subcommand)]
enum SecretsCommand {
    /// Seal every stored secret under APP_SECRET.
    Rotate,
}

fn main() -> ExitCode {
    let serve = Command::Serve { no_workers: false };
    match execute(CommandLine::parse().command.unwrap_or(serve)) {
        Ok(code) => code,
        Err(error) => {
            print_error(&format!("recado: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Command {
    /// Whether the command is configured by the server's variables. A client takes none from a `.env` file: one in a
    /// foreign directory could send the API key elsewhere.
    fn is_of_server(&self) -> bool {
        !matches!(self, Self::Client(_) | Self::Openapi | Self::Completion { .. })
    }
}

/// Reads the `.env` file of a developer. Variables that are already set take precedence.
fn load_dotenv() -> anyhow::Result<()> {
    match dotenvy::dotenv() {
        Err(error) if !error.not_found() => anyhow::bail!("cannot read the file .env: {}", dotenv_problem(&error)),
        _ => Ok(()),
    }
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    if command.is_of_server() {
        load_dotenv()?;
    }
    match command {
        Command::Serve { no_workers: false } => serve::run(serve::ProcessRole::Everything)?,
        Command::Serve { no_workers: true } => serve::run(serve::ProcessRole::Routes)?,
        Command::Worker => serve::run(serve::ProcessRole::Workers)?,
        Command::Migrate => migrate()?,
        Command::Rollups(RollupsCommand::Verify(options)) => run_rollups(Task::Verify, &options)?,
        Command::Rollups(RollupsCommand::Rebuild {
            reprice: false,
            options,
        }) => run_rollups(Task::Rebuild, &options)?,
        Command::Rollups(RollupsCommand::Rebuild { reprice: true, options }) => run_rollups(Task::Reprice, &options)?,
        Command::Erasures(ErasuresCommand::Replay) => replay_erasures()?,
        Command::Secrets(SecretsCommand::Rotate) => rotate_secrets()?,
        Command::Doctor(options) => return doctor::run(&options),
        Command::Health { worker: false } => health::check(health::Process::Server)?,
        Command::Health { worker: true } => health::check(health::Process::Worker)?,
        Command::Openapi => print_document(&format!("{:#}\n", recado_api::reference::document()))?,
        Command::Completion { shell } => print_completion(shell)?,
        Command::Client(command) => return Ok(recado_cli::run(*command)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes the error without the malformed line, which may contain a secret.
fn dotenv_problem(error: &dotenvy::Error) -> String {
    match error {
        dotenvy::Error::Io(error) => error.to_string(),
        _ => "a line does not have the form NAME=value".to_owned(),
    }
}

fn run_rollups(task: Task, options: &RollupsOptions) -> anyhow::Result<()> {
    let _log_guard = logging::start(logging::Format::from_env())?;
    match rollups::run(task, options.account)? {
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

fn print_completion(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "recado", &mut script);
    print_document(&String::from_utf8(script)?)
}

/// Writes to standard output. A reader that closes the pipe early is not an error.
fn print_document(text: &str) -> anyhow::Result<()> {
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
