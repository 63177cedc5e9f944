//! What tests, benchmarks and `cargo xtask` share: private PostgreSQL and Redis, child processes, free ports, temporary
//! directories, session tokens and a large account.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it reports downloads and slow steps to the terminal of the tool or test that uses it"
)]

use std::time::Duration;

pub mod demo_account;
pub mod http;
pub mod large_account;
pub mod memory;
pub mod paths;
pub mod process;
pub mod product;
pub mod scratch;
pub mod secrets;
pub mod services;
pub mod signals;
pub mod skip;
pub mod state;
pub mod token;

/// Upper bound of every wait of a test. It ends a test that hangs, and is generous: it never tells fast from slow, which
/// depends on the machine.
pub const DEADLINE: Duration = Duration::from_secs(60);
