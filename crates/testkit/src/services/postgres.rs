//! A private PostgreSQL cluster: a data directory, a random password, a free port of 127.0.0.1, no socket file.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use postgres::config::Host;
use postgres::{Client, Config, NoTls};

use super::owner::Owner;
use super::{ReservedPort, find};
use crate::{process, secrets};

/// The name of the product's database in a cluster.
pub const DATABASE: &str = "recado";

/// Purpose of a cluster, which decides its durability.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Durable: contains a developer's data.
    Development,
    /// Fast and not durable: deleted after the run.
    Tests,
    /// Durable, because it is measured; deleted after the run.
    Benchmarks,
}

/// A running cluster. It stops when it is dropped.
pub struct Cluster {
    bin: PathBuf,
    home: PathBuf,
    owner: Owner,
    password: String,
    port: u16,
}

impl Cluster {
    /// Starts the cluster of this directory, or creates it. Adopts a server that an earlier run left running.
    pub fn start(home: &Path, purpose: Purpose) -> Result<Self> {
        Self::start_with(find::postgres_or_install()?, home, purpose)
    }

    /// As [`Self::start`], with the binaries of `bin`.
    pub fn start_with(bin: PathBuf, home: &Path, purpose: Purpose) -> Result<Self> {
        let owner = Owner::detect()?;
        owner.private_dir(home)?;
        let mut cluster = Self {
            bin,
            home: home.to_owned(),
            owner,
            password: String::new(),
            port: 0,
        };
        if !cluster.data().is_dir() {
            cluster.create(purpose)?;
        }
        cluster.same_version()?;
        cluster.password = fs::read_to_string(cluster.home.join("password"))
            .map(|text| text.trim().to_owned())
            .with_context(|| format!("cannot read the password of {}", cluster.home.display()))?;
        match cluster.running_port() {
            Some(port) => cluster.port = port,
            None => cluster.launch(purpose)?,
        }
        Ok(cluster)
    }

    /// The superuser's URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres:{}@127.0.0.1:{}/{database}",
            self.password, self.port
        )
    }

    /// The URL with which tenants log in. `recado migrate` gives the role this password.
    pub fn tenant_url(&self, database: &str, password: &str) -> String {
        format!("postgres://recado_tenant:{password}@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates a database unless it exists.
    pub fn ensure_database(&self, name: &str) -> Result<()> {
        let mut client = connect(&self.url("postgres"))?;
        let found = client
            .query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name])
            .context("cannot list the databases")?;
        if found.is_none() {
            client
                .batch_execute(&format!("CREATE DATABASE \"{name}\""))
                .with_context(|| format!("cannot create the database {name}"))?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub fn log(&self) -> PathBuf {
        self.home.join("postgres.log")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.owner.command(self.bin.join(program));
        command.stdin(Stdio::null());
        command
    }

    /// Runs initdb in a temporary directory and renames it, so that an interrupted initdb leaves no broken cluster.
    fn create(&self, purpose: Purpose) -> Result<()> {
        let password = self.home.join("password");
        secrets::write_private(&password, &secrets::password()?)?;
        self.owner.give(&password)?;
        let fresh = self.home.join("data.new");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).with_context(|| format!("cannot delete {}", fresh.display()))?;
        }
        let mut initdb = self.command("initdb");
        initdb.args([
            "-U",
            "postgres",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
        ]);
        // Sorts by bytes, but upper and lower case work for all letters, not only ASCII.
        initdb.args(["--locale=C", "--lc-ctype=C.UTF-8", "--no-instructions"]);
        if purpose != Purpose::Development {
            initdb.arg("--no-sync");
        }
        process::quietly(initdb.arg("--pwfile").arg(&password).arg("-D").arg(&fresh), "initdb")?;
        fs::rename(&fresh, self.data()).with_context(|| format!("cannot create {}", self.data().display()))
    }

    /// Checks the major version: a server reads only the data of its own.
    fn same_version(&self) -> Result<()> {
        let file = self.data().join("PG_VERSION");
        let created_by = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let found = find::postgres_version(&self.bin);
        if created_by.trim().parse().ok() == found {
            return Ok(());
        }
        bail!(
            "the database was made by PostgreSQL {}, and the one found is {}: set PG_BIN, or start over with \
             cargo xtask dev --reset",
            created_by.trim(),
            found.map_or_else(|| "unknown".to_owned(), |version| version.to_string())
        )
    }

    fn launch(&mut self, purpose: Purpose) -> Result<()> {
        let reserved = ReservedPort::new()?;
        self.port = reserved.number();
        self.pg_ctl_start(purpose)
    }

    fn pg_ctl_start(&self, purpose: Purpose) -> Result<()> {
        let mut options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''",
            self.port
        );
        if purpose == Purpose::Tests {
            options.push_str(" -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=600");
        }
        if purpose != Purpose::Development && self.has_statement_statistics() {
            options.push_str(" -c shared_preload_libraries=pg_stat_statements");
        }
        let mut start = self.command("pg_ctl");
        start
            .arg("-D")
            .arg(self.data())
            .arg("-l")
            .arg(self.log())
            .args(["-w", "-t", "30", "-o", &options, "start"]);
        // The server inherits the output. With a pipe, this call would wait until the server ends.
        let status = start
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot run pg_ctl")?;
        if status.success() {
            Ok(())
        } else {
            bail!(
                "PostgreSQL did not start ({status}); its log ends:\n{}",
                process::tail(&self.log())
            )
        }
    }

    /// A program of this installation, or of another one if it is missing here.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let own = self.bin.join(name);
        if own.is_file() { Some(own) } else { find::on_path(name) }
    }

    /// Whether `pg_stat_statements` is available (not in development).
    pub fn has_statement_statistics(&self) -> bool {
        ["../lib", "../lib/postgresql"]
            .iter()
            .any(|lib| self.bin.join(lib).join("pg_stat_statements.so").is_file())
    }

    /// The port of a server that already runs on this data directory.
    fn running_port(&self) -> Option<u16> {
        let file = self.data().join("postmaster.pid");
        let text = fs::read_to_string(&file).ok()?;
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.to_owned();
        let port = lines.nth(2).and_then(|port| port.parse().ok());
        if !process::command_line(&pid).contains(&*self.data().to_string_lossy()) {
            // A stale pid file whose pid belongs to another process now would prevent the start.
            let _ = fs::remove_file(&file);
            return None;
        }
        port
    }

    pub fn alive(&self) -> Result<()> {
        if self.data().join("postmaster.pid").exists() {
            return Ok(());
        }
        bail!("PostgreSQL ended; its log ends:\n{}", process::tail(&self.log()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        stop.arg("-D")
            .arg(self.data())
            .args(["-m", "fast", "-w", "-t", "30", "stop"]);
        if let Err(failure) = process::quietly(&mut stop, "pg_ctl stop")
            && self.running_port().is_some()
        {
            eprintln!("PostgreSQL did not stop: {failure:#}");
        }
    }
}

/// Stops the server that a killed run left running on this data directory.
pub fn stop_left_over(home: &Path) -> Result<()> {
    if !home.join("data").is_dir() {
        return Ok(());
    }
    let Some(bin) = find::postgres()? else {
        return Ok(());
    };
    drop(Cluster {
        bin,
        home: home.to_owned(),
        owner: Owner::detect()?,
        password: String::new(),
        port: 0,
    });
    Ok(())
}

/// Opens a connection with a connect timeout. This program has no TLS, so it connects to this machine only.
pub fn connect(url: &str) -> Result<Client> {
    let mut config = Config::from_str(url).context("the database URL is malformed")?;
    if !is_local(&config) {
        bail!("cargo xtask has no TLS: use a database on a loopback host or a socket");
    }
    config
        .connect_timeout(Duration::from_secs(10))
        .connect(NoTls)
        .context("cannot reach the database")
}

fn is_local(config: &Config) -> bool {
    let is_local_host = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_local_host) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}
