//! `recado migrate` on the development database, which is started if it does not run.

use anyhow::{Result, bail};
use recado_testkit::services::postgres::{Cluster, DATABASE, Purpose};
use recado_testkit::{paths, process, signals};

use crate::state::{self, State};

/// `cargo xtask migrate`.
pub(crate) fn run() -> Result<()> {
    signals::install()?;
    process::run(paths::cargo().args(["build", "--bin", "recado"]), "cargo build")?;
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return migrate(&url, std::env::var("TENANT_DATABASE_URL").ok().as_deref());
    }
    let Some(state) = State::take()? else {
        let env = state::running()?;
        let tenant_url = env.get("TENANT_DATABASE_URL").map(String::as_str);
        return migrate(state::value(&env, "DATABASE_URL")?, tenant_url);
    };
    let secrets = state::dev_secrets(&state.dir)?;
    let cluster = Cluster::start(&state.dir.join("postgres"), Purpose::Development)?;
    cluster.ensure_database(DATABASE)?;
    let password = state::value(&secrets, "TENANT_DATABASE_PASSWORD")?;
    migrate(&cluster.url(DATABASE), Some(&cluster.tenant_url(DATABASE, password)))
}

/// Migrates a database with the server's own command, which also makes the tenant's login.
pub(crate) fn migrate(url: &str, tenant_url: Option<&str>) -> Result<()> {
    let binary = paths::built("recado");
    if !binary.is_file() {
        bail!("{} is missing: build it first", binary.display());
    }
    let mut command = std::process::Command::new(binary);
    process::run(
        command
            .arg("migrate")
            .env("DATABASE_URL", url)
            .env("TENANT_DATABASE_URL", tenant_url.unwrap_or_default())
            .current_dir(paths::root()),
        "recado migrate",
    )
}
