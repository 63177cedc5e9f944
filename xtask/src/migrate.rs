//! `recado migrate` on the development database, which is started if it does not run.

use anyhow::Result;
use recado_testkit::product::migrate;
use recado_testkit::services::postgres::{Cluster, DATABASE, Purpose};
use recado_testkit::state::{self, State};
use recado_testkit::{paths, process, signals};

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
