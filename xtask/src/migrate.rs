//! `recado migrate` on the development database, which is started if it does not run.

use crate::error::{Result, fail};
use crate::services::postgres::{Cluster, Purpose};
use crate::state::{self, State};
use crate::{paths, process, signals};

pub(crate) const DATABASE: &str = "recado";

/// `cargo xtask migrate`.
pub(crate) fn run() -> Result<()> {
    signals::install()?;
    process::run(paths::cargo().args(["build", "--bin", "recado"]), "cargo build")?;
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return migrate(&url);
    }
    let Some(state) = State::take()? else {
        return migrate(state::value(&state::running()?, "DATABASE_URL")?);
    };
    let cluster = Cluster::start(&state.dir.join("postgres"), Purpose::Development)?;
    cluster.ensure_database(DATABASE)?;
    migrate(&cluster.url(DATABASE))
}

/// Migrates a database with the server's own command.
pub(crate) fn migrate(url: &str) -> Result<()> {
    let binary = paths::built("recado");
    if !binary.is_file() {
        return fail(format!("{} is missing: build it first", binary.display()));
    }
    let mut command = std::process::Command::new(binary);
    process::run(
        command
            .arg("migrate")
            .env("DATABASE_URL", url)
            .current_dir(paths::root()),
        "recado migrate",
    )
}
