//! The commands of `recado` that call a server's public API with an API key: `send`, `import`, `listen` and `tail`.
#![expect(clippy::print_stderr, reason = "a command line tool writes to its terminal")]

mod api;
mod failure;
mod import;
mod listen;
mod send;
mod tail;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

pub use self::failure::{CommandFailure, EXIT_CODES};

/// Where the server is. The API key comes from `RECADO_API_KEY` alone: arguments are visible to other users.
#[derive(Args, Debug)]
pub struct Connection {
    /// Address of the server; http:// only for this machine. The API key is read from RECADO_API_KEY.
    #[arg(
        long,
        env = "RECADO_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,
}

#[derive(Subcommand, Debug)]
pub enum ClientCommand {
    /// Send one message to one person, and print it as JSON.
    Send(send::SendOptions),
    /// Import contacts from a CSV file, and print the report as JSON.
    Import(import::ImportOptions),
    /// Forward the account's webhook events to a program on this machine, signed as deliveries are.
    Listen(listen::ListenOptions),
    /// Follow a campaign: print its counters when they change, until its run is over.
    Tail(tail::TailOptions),
}

/// Runs the command on the current thread.
pub fn run(command: ClientCommand) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(execute(command)),
        Err(error) => Err(CommandFailure::Refused(format!("the command cannot start: {error}"))),
    };
    match result {
        Ok(()) | Err(CommandFailure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("recado: {}", printable(&failure.to_string()));
            failure.exit_code()
        }
    }
}

async fn execute(command: ClientCommand) -> Result<(), CommandFailure> {
    match command {
        ClientCommand::Send(options) => send::run(options).await,
        ClientCommand::Import(options) => import::run(&options).await,
        ClientCommand::Listen(options) => listen::run(options).await,
        ClientCommand::Tail(options) => tail::run(&options).await,
    }
}

/// Writes a line to standard output. Ends the command without an error if the reader has closed the pipe.
fn print_line(line: &str) -> Result<(), CommandFailure> {
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CommandFailure::OutputClosed),
        Err(error) => Err(CommandFailure::Refused(format!(
            "standard output cannot be written: {error}"
        ))),
    }
}

/// Text of the server without control characters, which could change the terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A field of an object of the server; null if it is absent.
fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}
