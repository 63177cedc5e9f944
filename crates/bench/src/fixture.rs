//! The fixture of every bench: the release server, and a private, durable, filled database.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::process::ChildProcess;
use recado_testkit::scratch::{SERVER_LOG, Scratch};
use recado_testkit::services::ReservedPort;
use recado_testkit::services::postgres::DATABASE;
use recado_testkit::services::postgres::{Cluster, Purpose, connect};
use recado_testkit::token;
use recado_testkit::{paths, process, secrets, signals};
use serde_json::Value;

use super::data::{self, Target};
use super::load::Request;

const READY: Duration = Duration::from_secs(60);

/// Default of `DATABASE_POOL_SIZE`.
const POOL: usize = 16;

/// Stopped and removed in the order of the fields.
pub(super) struct Fixture {
    pub(super) cluster: Cluster,
    debug: bool,
    session_secret: String,
    app_secret: String,
    scratch: Scratch,
}

/// How a server is started.
pub(super) struct Launch {
    pub(super) database: String,
    pub(super) command_line: &'static [&'static str],
    /// Program that runs the server, with its arguments. Empty: the server runs directly.
    pub(super) under: Vec<OsString>,
    /// `REDIS_URL` of the rate limiter.
    pub(super) redis: Option<String>,
    /// Additional environment variables.
    pub(super) more: Vec<(&'static str, String)>,
    /// File name of the log. Concurrent servers need different ones.
    pub(super) log: &'static str,
}

/// A running release server.
pub(super) struct Server {
    pub(super) process: ChildProcess,
    pub(super) base: String,
    /// Time from its start until it is ready.
    pub(super) took: Duration,
}

impl Fixture {
    /// `debug`: of debug builds.
    pub(super) fn start(debug: bool) -> Result<Self> {
        cargo_build(debug, &["--bin", "recado"])?;
        let scratch = Scratch::new()?;
        println!("starting a private database");
        let cluster = Cluster::start(&scratch.dir.join("postgres"), Purpose::Benchmarks)?;
        cluster.ensure_database(DATABASE)?;
        let fixture = Self {
            cluster,
            debug,
            session_secret: secrets::password()?,
            app_secret: secrets::base64(&secrets::random::<32>()?),
            scratch,
        };
        let mut migrate = Command::new(fixture.program("recado"));
        migrate.arg("migrate").env("DATABASE_URL", fixture.database());
        process::quietly(&mut migrate, "recado migrate")?;
        data::fill(&fixture.database())?;
        if fixture.cluster.has_statement_statistics() {
            connect(&fixture.database())?
                .batch_execute("CREATE EXTENSION pg_stat_statements")
                .context("cannot count statements")?;
        }
        Ok(fixture)
    }

    /// Path of a measured program.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        match self.debug {
            true => paths::built(name),
            false => paths::released(name),
        }
    }

    pub(super) fn build(&self, target: &[&str]) -> Result<()> {
        cargo_build(self.debug, target)
    }

    /// Builds the bare handler of the reference measurements. It is built separately: together with the server, it
    /// would enable test features there.
    pub(super) fn build_bare(&self) -> Result<()> {
        self.build(&["--package", "recado-server", "--example", "bare"])
    }

    /// Directory for the files of this run.
    pub(super) fn dir(&self) -> &Path {
        &self.scratch.dir
    }

    pub(super) fn database(&self) -> String {
        self.cluster.url(DATABASE)
    }

    /// Starts the server as in a deployment: JSON log to a file, otherwise default settings.
    pub(super) fn serve(&self) -> Result<Server> {
        self.launch(&Launch {
            command_line: &["serve"],
            ..self.routes()
        })
    }

    /// Starts a server without workers on the database of this URL.
    pub(super) fn serve_routes(&self, database: &str) -> Result<Server> {
        self.launch(&Launch {
            database: database.to_owned(),
            ..self.routes()
        })
    }

    /// A server without workers, otherwise as in a deployment.
    pub(super) fn routes(&self) -> Launch {
        Launch {
            database: self.database(),
            command_line: &["serve", "--no-workers"],
            under: Vec::new(),
            redis: None,
            more: Vec::new(),
            log: SERVER_LOG,
        }
    }

    /// A server without workers and without rate limits, because its Redis is unreachable.
    pub(super) fn uncounted(&self) -> Result<Launch> {
        Ok(Launch {
            redis: Some("redis://127.0.0.1:9".to_owned()),
            ..self.routes()
        })
    }

    /// Starts a server and waits until it is ready.
    pub(super) fn launch(&self, launch: &Launch) -> Result<Server> {
        let port = ReservedPort::new()?;
        let bind = port.address();
        let base = format!("http://{bind}");
        let program = self.program("recado").into_os_string();
        let mut words = launch.under.iter().cloned().chain([program]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(launch.command_line)
            .env_clear()
            .env("DATABASE_URL", &launch.database)
            .env("APP_SECRET", &self.app_secret)
            .env("SESSION_JWT_SECRET", &self.session_secret)
            .env("BIND", &bind)
            .env("LOG_FORMAT", "json")
            .envs(launch.redis.iter().map(|url| ("REDIS_URL", url)))
            .envs(launch.more.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.scratch.dir);
        let start = Instant::now();
        let mut process = ChildProcess::spawn("recado", &mut command, self.scratch.dir.join(launch.log))?;
        let client = Client::new(&base, Vec::new());
        // Poll more often than `wait_until`, because the startup time is measured.
        while !client.get("/readyz").is_ok_and(|reply| reply.status == 200) {
            process.alive()?;
            if signals::received() {
                bail!("interrupted");
            }
            if start.elapsed() > READY {
                bail!("the server did not become ready; end of its log:\n{}", process.tail());
            }
            sleep(Duration::from_millis(2));
        }
        Ok(Server {
            process,
            base,
            took: start.elapsed(),
        })
    }

    /// Headers of the bench user for an account.
    pub(super) fn headers(&self, account: &str) -> Result<Vec<(&'static str, String)>> {
        let user = token::user_id(data::EMAIL);
        let session = token::sign(&self.session_secret, &user, data::EMAIL, None, 24)?;
        Ok(vec![
            ("authorization", format!("Bearer {session}")),
            ("x-account-id", account.to_owned()),
        ])
    }

    /// A read of each target.
    pub(super) fn requests(&self) -> Result<Vec<Request>> {
        data::targets()
            .into_iter()
            .map(|Target { account, campaign }| {
                Ok(Request {
                    path: format!("/api/campaigns/{campaign}"),
                    headers: self.headers(&account)?,
                    body: None,
                })
            })
            .collect()
    }

    /// Reads the first target `times` times in sequence and returns the last body. Fails unless every read succeeds.
    pub(super) fn read(&self, server: &Server, times: usize) -> Result<Value> {
        let mut body = Value::Null;
        for Request { path, headers, .. } in self.requests()?.into_iter().take(1) {
            let client = Client::new(&server.base, headers);
            for _ in 0..times {
                let reply = client.get(&path)?;
                if reply.status != 200 {
                    bail!("{path} responded with {}: {}", reply.status, reply.body);
                }
                body = reply.body;
            }
        }
        Ok(body)
    }
}

/// The port of a base URL.
pub(super) fn port(base: &str) -> Result<u16> {
    let port = base.rsplit_once(':').map(|(_, port)| port.parse());
    match port {
        Some(Ok(port)) => Ok(port),
        _ => bail!("{base} has no port"),
    }
}

/// The number of worker threads of the server, and of their tenant connections together.
pub(super) fn threads_and_connections() -> (usize, usize) {
    let threads = available_parallelism().map_or(2, std::num::NonZero::get);
    (threads, (POOL / threads).max(2) * threads)
}

fn cargo_build(debug: bool, target: &[&str]) -> Result<()> {
    let mut build = paths::cargo();
    build.arg("build").args((!debug).then_some("--release"));
    process::run(build.args(target), "cargo build")
}
