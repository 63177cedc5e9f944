//! `cargo xtask dev`: the whole product on this machine, from nothing, with demo data, until Ctrl-C.

mod environment;
mod guide;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Result, fail};
use crate::http::Client;
use crate::migrate::{self, DATABASE};
use crate::process::{self, Process};
use crate::services::free_port;
use crate::services::postgres::{self, Cluster, Purpose};
use crate::services::redis::{self, Redis};
use crate::state::{self, Env, State};
use crate::{paths, seed, signals};
use environment::Addresses;

const SERVER_LOG: &str = "server.log";
const SIMULATORS_LOG: &str = "simulators.log";
const READY: Duration = Duration::from_secs(30);

/// What everything else stands on; stopped in the order of the fields.
struct Foundation {
    redis: Option<Redis>,
    cluster: Option<Cluster>,
    redis_url: Option<String>,
    database_url: String,
}

/// `cargo xtask dev`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let reset = match args {
        [] => false,
        [only] if only == "--reset" => true,
        _ => return fail("dev knows one option: --reset"),
    };
    signals::install()?;
    let start = Instant::now();
    let state = take()?;
    stop_left_over(&state.dir);
    if reset {
        start_over(&state)?;
    }
    let secrets = state::dev_secrets(&state.dir)?;
    let mut base = foundation(&state.dir)?;
    migrate::migrate(&base.database_url)?;

    let addresses = addresses()?;
    let env = environment::server(
        &addresses,
        &base.database_url,
        base.redis_url.as_deref(),
        &secrets,
        &state.dir,
    )?;
    let mut simulators = start_simulators(&environment::simulators(&addresses, &secrets)?, &state.dir)?;
    let mut server = start_server(&env, &addresses, &state.dir)?;

    let mut running = env;
    running.extend(secrets);
    if let Err(failure) = seed::plant(&running) {
        return fail(format!("{failure}\nthe server's log ends:\n{}", server.tail()));
    }
    let _announcement = state.announce(&running)?;
    guide::print(&running, &addresses, &[&server.log, &simulators.log], start.elapsed())?;
    watch(&mut server, &mut simulators, &mut base)?;

    println!("stopping");
    drop(server);
    drop(simulators);
    drop(base);
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
    println!("# Ctrl-C stops it; its data stays");
    while signals::pause().is_ok() {
        cluster.alive()?;
    }
    Ok(())
}

fn take() -> Result<State> {
    match State::take()? {
        Some(state) => Ok(state),
        None => fail("another cargo xtask already runs the development database of this checkout"),
    }
}

/// The programs of a launcher that was killed would work on the same database, with stand-ins that are gone.
fn stop_left_over(dir: &Path) {
    process::stop_left_over(&dir.join(SERVER_LOG), &paths::built("recado"));
    process::stop_left_over(&dir.join(SIMULATORS_LOG), &paths::built("recado-simulators"));
}

fn start_over(state: &State) -> Result<()> {
    postgres::stop_left_over(&state.dir.join("postgres"))?;
    redis::stop_left_over(&state.dir.join("redis"));
    state.clear()
}

/// Services and build at the same time: they need nothing of each other.
fn foundation(dir: &Path) -> Result<Foundation> {
    let (database, counters, built) = thread::scope(|scope| {
        let database = scope.spawn(|| start_database(dir));
        let counters = scope.spawn(|| start_counters(dir));
        let mut build = paths::cargo();
        build.args(["build", "--bin", "recado", "--bin", "recado-simulators"]);
        let built = process::run(&mut build, "cargo build");
        (database.join(), counters.join(), built)
    });
    let broken = |_| "the launcher itself is broken";
    let (cluster, database_url) = database.map_err(broken).context(|| "database".to_owned())??;
    let (redis, redis_url) = counters.map_err(broken).context(|| "Redis".to_owned())?;
    built?;
    Ok(Foundation {
        redis,
        cluster,
        redis_url,
        database_url,
    })
}

fn start_database(dir: &Path) -> Result<(Option<Cluster>, String)> {
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return Ok((None, url));
    }
    let cluster = Cluster::start(&dir.join("postgres"), Purpose::Development)?;
    cluster.ensure_database(DATABASE)?;
    let url = cluster.url(DATABASE);
    Ok((Some(cluster), url))
}

/// The product runs without Redis, too; so do we.
fn start_counters(dir: &Path) -> (Option<Redis>, Option<String>) {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return (None, Some(url));
    }
    match Redis::start(&dir.join("redis")) {
        Ok(redis) => {
            let url = redis.url();
            (Some(redis), Some(url))
        }
        Err(failure) => {
            println!("going on without Redis, rate limits are counted inside the server: {failure}");
            (None, None)
        }
    }
}

fn addresses() -> Result<Addresses> {
    let server = match std::env::var("RECADO_DEV_BIND") {
        Ok(bind) => bind,
        Err(_) if TcpListener::bind("127.0.0.1:8080").is_ok() => "127.0.0.1:8080".to_owned(),
        Err(_) => local()?,
    };
    Ok(Addresses {
        server,
        metrics: local()?,
        whatsapp: local()?,
        payment: local()?,
        ai: local()?,
        smtp: local()?,
        receiver: local()?,
    })
}

fn local() -> Result<String> {
    Ok(format!("127.0.0.1:{}", free_port()?))
}

fn start_simulators(env: &Env, dir: &Path) -> Result<Process> {
    let mut command = Command::new(paths::built("recado-simulators"));
    command.envs(env).current_dir(paths::root());
    let log = dir.join(SIMULATORS_LOG);
    let mut simulators = Process::spawn("recado-simulators", &mut command, log.clone())?;
    simulators.wait_until(READY, || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.lines().any(|l| l == "ready"))
    })?;
    Ok(simulators)
}

fn start_server(env: &Env, addresses: &Addresses, dir: &Path) -> Result<Process> {
    let mut command = Command::new(paths::built("recado"));
    command
        .arg("serve")
        .env_remove("REDIS_URL")
        .envs(env)
        .current_dir(paths::root());
    let mut server = Process::spawn("recado", &mut command, dir.join(SERVER_LOG))?;
    let client = Client::new(&addresses.base_url(), Vec::new());
    server.wait_until(READY, || client.get("/readyz").is_ok_and(|reply| reply.status == 200))?;
    Ok(server)
}

/// Until a signal comes; a failure when anything ends by itself.
fn watch(server: &mut Process, simulators: &mut Process, base: &mut Foundation) -> Result<()> {
    while signals::pause().is_ok() {
        server.alive()?;
        simulators.alive()?;
        if let Some(redis) = &mut base.redis {
            redis.alive()?;
        }
        if let Some(cluster) = &base.cluster {
            cluster.alive()?;
        }
    }
    Ok(())
}
