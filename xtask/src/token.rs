//! `cargo xtask token`: prints a session token for the development server.

use anyhow::Result;
use recado_testkit::paths;
use recado_testkit::state;
use recado_testkit::token::{sign, user_id};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    email: String,
    /// The id of the user (derived from the address).
    #[arg(long)]
    user: Option<String>,
    #[arg(long)]
    name: Option<String>,
    /// How long the token is valid.
    #[arg(long, default_value_t = 24)]
    hours: u64,
}

/// `cargo xtask token`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let secret = match std::env::var("SESSION_JWT_SECRET") {
        Ok(secret) => secret,
        Err(_) => state::value(&state::dev_secrets(&paths::state()?)?, "SESSION_JWT_SECRET")?.to_owned(),
    };
    let user = options.user.clone().unwrap_or_else(|| user_id(&options.email));
    println!(
        "{}",
        sign(&secret, &user, &options.email, options.name.as_deref(), options.hours)?
    );
    Ok(())
}
