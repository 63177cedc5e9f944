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
    let mut stack = Stack::start(&state.dir, &Given::by_environment())?;
    let _announcement = state.announce(&stack.env)?;
    let logs = [&*stack.server.log, &*stack.simulators.log];
    let server_env = state.dir.join(state::RUNNING);
    guide::print(&stack.env, &stack.addresses, &server_env, &logs, start.elapsed())?;
    while signals::pause().is_ok() {
        stack.alive()?;
    }
    println!("stopping");
    Ok(())
}

/// Services that run already; none: private ones are started.
#[derive(Default)]
pub(crate) struct Given {
    database_url: Option<String>,
    redis_url: Option<String>,
}

impl Given {
    fn by_environment() -> Self {
        Self {
            database_url: std::env::var("DATABASE_URL").ok(),
            redis_url: std::env::var("REDIS_URL").ok(),
        }
    }
}

/// The whole product, running, with demo data; stopped in the order of the fields.
pub(crate) struct Stack {
    server: Process,
    simulators: Process,
    base: Foundation,
    /// The environment of the server, and the secrets of both sides.
    env: Env,
    addresses: Addresses,
}

impl Stack {
    /// Starts everything that is not given, with its state in a directory.
    pub(crate) fn start(dir: &Path, given: &Given) -> Result<Self> {
        let secrets = state::dev_secrets(dir)?;
        let base = foundation(dir, given)?;
        migrate::migrate(&base.database_url)?;
        let addresses = addresses()?;
        let mut env = environment::server(&addresses, &base.database_url, base.redis_url.as_deref(), &secrets, dir)?;
        let simulators = start_simulators(&environment::simulators(&addresses, &secrets)?, dir)?;
        let server = start_server(&env, &addresses, dir)?;
        env.extend(secrets);
        if let Err(failure) = seed::plant(&env) {
            return fail(format!("{failure}\nthe server's log ends:\n{}", server.tail()));
        }
        Ok(Self {
            server,
            simulators,
            base,
            env,
            addresses,
        })
    }

    /// What a shell needs to use it; `server_env` is the file with its environment.
    pub(crate) fn variables(&self, server_env: &Path) -> Result<Vec<(&'static str, String)>> {
        guide::variables(&self.env, &self.addresses, server_env)
    }

    /// The environment of the server and all secrets, for a second one beside it.
    pub(crate) fn environment(&self) -> &Env {
        &self.env
    }

    /// A failure when anything ended by itself.
    fn alive(&mut self) -> Result<()> {
        self.server.alive()?;
        self.simulators.alive()?;
        if let Some(redis) = &mut self.base.redis {
            redis.alive()?;
        }
        if let Some(cluster) = &self.base.cluster {
            cluster.alive()?;
        }
        Ok(())
    }
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
fn foundation(dir: &Path, given: &Given) -> Result<Foundation> {
    let (database, counters, built) = thread::scope(|scope| {
        let database = scope.spawn(|| start_database(dir, given));
        let counters = scope.spawn(|| start_counters(dir, given));
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

fn start_database(dir: &Path, given: &Given) -> Result<(Option<Cluster>, String)> {
    if let Some(url) = &given.database_url {
        return Ok((None, url.clone()));
    }
    let cluster = Cluster::start(&dir.join("postgres"), Purpose::Development)?;
    cluster.ensure_database(DATABASE)?;
    let url = cluster.url(DATABASE);
    Ok((Some(cluster), url))
}

/// The product runs without Redis, too; so do we.
fn start_counters(dir: &Path, given: &Given) -> (Option<Redis>, Option<String>) {
    if let Some(url) = &given.redis_url {
        return (None, Some(url.clone()));
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
