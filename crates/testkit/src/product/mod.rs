//! The running product: services, simulators of the external systems, server and demo data, in one directory.

mod environment;
mod simulators;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::http::Client;
use crate::paths;
use crate::process::{self, ChildProcess};
use crate::scratch::SERVER_LOG;
use crate::services::ReservedPort;
use crate::services::postgres::{Cluster, DATABASE, Purpose};
use crate::services::redis::Redis;
use crate::state::{self, Env, value};
use crate::{demo_account, token};
pub use environment::Addresses;
use environment::DatabaseUrls;
pub use simulators::Simulators;

const READY: Duration = Duration::from_secs(30);

/// All processes, stopped in the order of the fields.
pub struct Product {
    pub server: ChildProcess,
    simulators: Simulators,
    foundation: Foundation,
    /// The environment of the server and the development secrets.
    pub env: Env,
    pub addresses: Addresses,
}

/// PostgreSQL and Redis, stopped in the order of the fields.
struct Foundation {
    redis: Option<Redis>,
    cluster: Option<Cluster>,
    redis_url: Option<String>,
    database: DatabaseUrls,
}

impl Product {
    /// Builds and starts everything, and inserts the demo data.
    pub fn start(dir: &Path, purpose: Purpose, bind: String) -> Result<Self> {
        let secrets = state::dev_secrets(dir)?;
        let foundation = foundation(dir, purpose, value(&secrets, "TENANT_DATABASE_PASSWORD")?)?;
        migrate(&foundation.database.owner, foundation.database.tenant.as_deref())?;
        let metrics = ReservedPort::new()?;
        let variables = environment::simulators(&bind, &secrets)?;
        let simulators = Simulators::start(&paths::built("recado-simulators"), &variables, dir)?;
        let addresses = simulators.addresses(bind, metrics.address())?;
        let redis = foundation.redis_url.as_deref();
        let mut env = environment::server(&addresses, &foundation.database, redis, &secrets, dir)?;
        let server = start_server(&env, &addresses, dir)?;
        env.extend(secrets);
        if let Err(failure) = demo_account::seed(&env) {
            bail!("{failure:#}\nend of the server's log:\n{}", server.tail());
        }
        Ok(Self {
            server,
            simulators,
            foundation,
            env,
            addresses,
        })
    }

    /// Fails if a process has ended.
    pub fn alive(&mut self) -> Result<()> {
        self.server.alive()?;
        self.simulators.process.alive()?;
        if let Some(redis) = &mut self.foundation.redis {
            redis.alive()?;
        }
        match &self.foundation.cluster {
            Some(cluster) => cluster.alive(),
            None => Ok(()),
        }
    }

    /// Shell variables of the product. `server_env` is the file with the server's environment.
    pub fn variables(&self, server_env: &Path) -> Result<Vec<(&'static str, String)>> {
        variables(&self.env, &self.addresses, server_env)
    }

    pub fn logs(&self) -> [&Path; 2] {
        [&self.server.log, &self.simulators.process.log]
    }

    /// The private Redis, if one was started.
    pub fn redis(&self) -> Option<&Redis> {
        self.foundation.redis.as_ref()
    }
}

/// Starts the services and builds the programs concurrently.
fn foundation(dir: &Path, purpose: Purpose, tenant_password: &str) -> Result<Foundation> {
    let (database, redis, built) = thread::scope(|scope| {
        let database = scope.spawn(|| start_database(dir, purpose, tenant_password));
        let redis = scope.spawn(|| start_redis(dir, purpose));
        let mut build = paths::cargo();
        build.args(["build", "--bin", "recado", "--bin", "recado-simulators"]);
        let built = process::run(&mut build, "cargo build");
        (database.join(), redis.join(), built)
    });
    let (cluster, database) = database.map_err(|_| anyhow!("the start of the database panicked"))??;
    let (redis, redis_url) = redis.map_err(|_| anyhow!("the start of Redis panicked"))??;
    built?;
    Ok(Foundation {
        redis,
        cluster,
        redis_url,
        database,
    })
}

/// The URL of an existing service. Tests and benchmarks always use private services.
fn existing_service(variable: &str, purpose: Purpose) -> Option<String> {
    match purpose {
        Purpose::Development => std::env::var(variable).ok(),
        Purpose::Tests | Purpose::Benchmarks => None,
    }
}

fn start_database(dir: &Path, purpose: Purpose, tenant_password: &str) -> Result<(Option<Cluster>, DatabaseUrls)> {
    if let Some(owner) = existing_service("DATABASE_URL", purpose) {
        let tenant = existing_service("TENANT_DATABASE_URL", purpose);
        return Ok((None, DatabaseUrls { owner, tenant }));
    }
    let cluster = Cluster::start(&dir.join("postgres"), purpose)?;
    cluster.ensure_database(DATABASE)?;
    let (owner, tenant) = (cluster.url(DATABASE), cluster.tenant_url(DATABASE, tenant_password));
    let tenant = Some(tenant);
    Ok((Some(cluster), DatabaseUrls { owner, tenant }))
}

/// Starts Redis. Development continues without it, as the product does; tests and benchmarks would not measure the same.
fn start_redis(dir: &Path, purpose: Purpose) -> Result<(Option<Redis>, Option<String>)> {
    if let Some(url) = existing_service("REDIS_URL", purpose) {
        return Ok((None, Some(url)));
    }
    match Redis::start(&dir.join("redis")) {
        Ok(redis) => {
            let url = redis.url();
            Ok((Some(redis), Some(url)))
        }
        Err(failure) if purpose != Purpose::Development => Err(failure),
        Err(failure) => {
            println!("continuing without Redis; the server limits request rates in its own memory: {failure:#}");
            Ok((None, None))
        }
    }
}

fn start_server(env: &Env, addresses: &Addresses, dir: &Path) -> Result<ChildProcess> {
    let mut command = Command::new(paths::built("recado"));
    command
        .arg("serve")
        .env_remove("REDIS_URL")
        .env_remove("TENANT_DATABASE_URL")
        .envs(env)
        .current_dir(paths::root());
    let mut server = ChildProcess::spawn("recado", &mut command, dir.join(SERVER_LOG))?;
    let client = Client::new(&addresses.base_url(), Vec::new());
    server.wait_until(READY, || client.get("/readyz").is_ok_and(|reply| reply.status == 200))?;
    Ok(server)
}

/// Shell variables for the commands to paste and for the guides.
pub fn variables(env: &Env, at: &Addresses, server_env: &Path) -> Result<Vec<(&'static str, String)>> {
    let secret = value(env, "SESSION_JWT_SECRET")?;
    let cookie = |email: &str, user: &str, name| {
        let token = token::sign(secret, user, email, name, 720)?;
        anyhow::Ok(format!("Cookie: svc-session={token}"))
    };
    let owner = cookie(demo_account::EMAIL, &demo_account::user(), Some(demo_account::NAME))?;
    let admin = cookie(demo_account::ADMIN, &token::user_id(demo_account::ADMIN), None)?;
    Ok(vec![
        ("BASE", at.base_url()),
        ("RECEIVER", format!("http://{}", at.receiver)),
        ("WHATSAPP", format!("http://{}", at.whatsapp)),
        ("PAYMENT", format!("http://{}", at.payment)),
        ("KEY", value(env, "DEMO_API_KEY")?.to_owned()),
        ("SESSION", owner),
        ("ADMIN", admin),
        ("SERVER_ENV", server_env.display().to_string()),
    ])
}

/// Migrates a database with the server's own command, which also makes the tenant's login.
pub fn migrate(url: &str, tenant_url: Option<&str>) -> Result<()> {
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
