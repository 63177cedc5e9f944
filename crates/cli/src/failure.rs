//! Why a command failed, and its exit code.

use std::fmt;
use std::process::ExitCode;

/// The exit codes, as `recado --help` and docs/command-line.md list them.
pub const EXIT_CODES: &str = "\
Exit codes of send, import, listen and tail:
  0  done
  1  failed: the server refused the request, the message failed, or the campaign was cancelled
  2  wrong usage: an argument or a variable is missing or malformed; nothing was sent
  3  the server is not reachable or too busy; try again later
  4  done in part: rows were skipped, or recipients were not reached
Of every other command: 0 done, 1 failed or a check found a problem, 2 wrong arguments";

#[derive(Debug)]
pub enum CommandFailure {
    /// The server refused the request, or what was asked for failed.
    Refused(String),
    /// An argument or a variable is missing or malformed.
    Usage(String),
    /// The server is not reachable or too busy.
    Unreachable(String),
    /// Done in part.
    Partial(String),
    /// The reader of standard output has closed it, as `head` does. Not an error.
    OutputClosed,
}

impl CommandFailure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::Partial(_) => 4,
            Self::OutputClosed => 0,
        })
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) | Self::Usage(text) | Self::Unreachable(text) | Self::Partial(text) => {
                f.write_str(text)
            }
            Self::OutputClosed => f.write_str("standard output is closed"),
        }
    }
}
