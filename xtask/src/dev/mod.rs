//! `cargo xtask dev`: runs the whole product on this machine with demo data until Ctrl-C, without any setup.

mod guide;

use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use recado_testkit::process;
use recado_testkit::product::Product;
use recado_testkit::scratch::{SERVER_LOG, SIMULATORS_LOG};
use recado_testkit::services::postgres::DATABASE;
use recado_testkit::services::postgres::{self, Cluster, Purpose};
use recado_testkit::services::{ReservedPort, redis};
use recado_testkit::state::{self, State};
use recado_testkit::{paths, signals};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Delete the development data first.
    #[arg(long)]
    reset: bool,
}

/// `cargo xtask dev`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    let start = Instant::now();
    let state = take()?;
    stop_left_over(&state.dir);
    if options.reset {
        delete_state(&state)?;
    }
    let (bind, _reserved) = bind()?;
    let mut product = Product::start(&state.dir, Purpose::Development, bind)?;
    let _running = state.publish(&product.env)?;
    let server_env = state.dir.join(state::RUNNING);
    guide::print(
        &product.env,
        &product.addresses,
        &server_env,
        &product.logs(),
        start.elapsed(),
    )?;
    while signals::pause().is_ok() {
        product.alive()?;
    }
    println!("stopping");
    drop(product);
    Ok(())
}

/// `cargo xtask db`.
pub(crate) fn database_only() -> Result<()> {
    signals::install()?;
    let state = take()?;
    let cluster = Cluster::start(&state.dir.join("postgres"), Purpose::Development)?;
    cluster.ensure_database(DATABASE)?;
    println!("export DATABASE_URL={}", cluster.url(DATABASE));
    println!("export TEST_DATABASE_URL={}", cluster.url("postgres"));
    println!("# Ctrl-C stops it; the data remains");
    while signals::pause().is_ok() {
        cluster.alive()?;
    }
    Ok(())
}

fn take() -> Result<State> {
    match State::take()? {
        Some(state) => Ok(state),
        None => bail!("another cargo xtask already runs the development database of this checkout"),
    }
}

/// Stops the programs of a killed launcher: they would use the same database with simulators that no longer run.
fn stop_left_over(dir: &Path) {
    process::stop_left_over(&dir.join(SERVER_LOG), &paths::built("recado"));
    process::stop_left_over(&dir.join(SIMULATORS_LOG), &paths::built("recado-simulators"));
}

fn delete_state(state: &State) -> Result<()> {
    postgres::stop_left_over(&state.dir.join("postgres"))?;
    redis::stop_left_over(&state.dir.join("redis"));
    state.clear()
}

/// The address of the server: `RECADO_DEV_BIND`, or the default port, or a free port.
fn bind() -> Result<(String, Option<ReservedPort>)> {
    match std::env::var("RECADO_DEV_BIND") {
        Ok(bind) => Ok((bind, None)),
        Err(_) if TcpListener::bind("127.0.0.1:8080").is_ok() => Ok(("127.0.0.1:8080".to_owned(), None)),
        Err(_) => {
            let port = ReservedPort::new()?;
            Ok((port.address(), Some(port)))
        }
    }
}
