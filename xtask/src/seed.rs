//! `cargo xtask seed`: adds demo data to the running development server.

use anyhow::Result;
use recado_testkit::demo_account::{seed, seed_large};
use recado_testkit::large_account::MESSAGES;
use recado_testkit::state::{self, value};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Add an account with many messages and a year of data for analytics instead.
    #[arg(long)]
    large: bool,
    /// The messages of the large account.
    #[arg(long, requires = "large", default_value_t = MESSAGES, value_parser = clap::value_parser!(u64).range(10_000..))]
    messages: u64,
}

/// `cargo xtask seed`.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !options.large {
        return seed(&state::running()?);
    }
    match std::env::var("DATABASE_URL") {
        Ok(url) => seed_large(&url, options.messages),
        Err(_) => seed_large(value(&state::running()?, "DATABASE_URL")?, options.messages),
    }
}
