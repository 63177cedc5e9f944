//! A PostgreSQL cluster for one test, for failures that must not affect the cluster that all tests share.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use recado_simulators::certificates::Identity;
use recado_testkit::services::owner::Owner;
use recado_testkit::services::{ReservedPort, find};
use tempfile::TempDir;

use super::database::Database;
use super::process::{command, environment};
use super::until;

/// A running PostgreSQL cluster; stopped and removed when dropped.
pub struct Cluster {
    programs: PathBuf,
    owner: Owner,
    home: TempDir,
    port: ReservedPort,
}

impl Cluster {
    /// A new cluster. It runs without fsync: commits survive a crash of PostgreSQL, but not of the machine.
    pub fn start() -> Self {
        let (owner, home) = (Owner::detect().unwrap(), TempDir::with_prefix("recado-it-pg-").unwrap());
        owner.give(home.path()).unwrap();
        let Some(programs) = find::postgres().unwrap() else {
            panic!("initdb and pg_ctl are neither in PG_BIN nor on the PATH: run cargo xtask test")
        };
        let cluster = Self {
            programs,
            owner,
            home,
            port: ReservedPort::new().unwrap(),
        };
        let initdb = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
        cluster
            .command("initdb")
            .args(initdb)
            .arg("-D")
            .arg(cluster.data())
            .succeed();
        cluster.launch();
        cluster
    }

    /// Creates a migrated database.
    pub fn database(&self) -> Database {
        Database::at(&self.url("postgres")).run("CREATE DATABASE recado");
        self.migrated()
    }

    /// Creates a migrated database with its tablespace in this directory.
    pub fn database_on(&self, directory: &Path) -> Database {
        self.owner.give(directory).unwrap();
        let admin = Database::at(&self.url("postgres"));
        admin.run(&format!(
            "CREATE TABLESPACE elsewhere LOCATION '{}'",
            directory.display()
        ));
        admin.run("CREATE DATABASE recado TABLESPACE elsewhere");
        self.migrated()
    }

    fn migrated(&self) -> Database {
        let url = self.url("recado");
        let output = command(&["migrate"], &environment(&url, "http://127.0.0.1:9/v25.0")).output();
        assert!(output.as_ref().unwrap().status.success(), "{output:?}");
        Database::at(&url)
    }

    /// From now on a new connection needs TLS and the password of its role (`hostssl` with SCRAM alone). Connections that
    /// are open stay open.
    pub fn require_tls(&self, identity: &Identity) {
        self.present(identity);
        let settings = self.data().join("postgresql.conf");
        let text = std::fs::read_to_string(&settings).unwrap();
        std::fs::write(&settings, format!("{text}\nssl = on\n")).unwrap();
        let rule = "hostssl all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.data().join("pg_hba.conf"), rule).unwrap();
        self.control(&["reload"]);
        until("PostgreSQL offers TLS", || self.offers_tls());
    }

    /// Restarts the cluster with another certificate.
    pub fn replace_certificate(&self, identity: &Identity) {
        self.present(identity);
        self.control(&["-m", "fast", "-t", "30", "restart"]);
        until("PostgreSQL offers TLS", || self.offers_tls());
    }

    fn present(&self, identity: &Identity) {
        for (name, text) in [
            ("server.crt", &identity.certificate_pem),
            ("server.key", &identity.key_pem),
        ] {
            let file = self.data().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            self.owner.give(&file).unwrap();
        }
    }

    /// Whether the response to an `SSLRequest` is `S`.
    fn offers_tls(&self) -> bool {
        let response = || -> std::io::Result<u8> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port()))?;
            stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            Ok(byte[0])
        };
        response().is_ok_and(|byte| byte == b'S')
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Stops the cluster without a shutdown checkpoint, as a crash does.
    pub fn crash(&self) {
        self.control(&["-m", "immediate", "stop"]);
    }

    /// Starts the cluster, always at the same port, and waits until it accepts connections.
    pub fn launch(&self) {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off -c max_connections=60",
            self.port()
        );
        self.control(&["-o", &options, "-t", "30", "start"]);
        until("PostgreSQL listens", || {
            TcpStream::connect(("127.0.0.1", self.port())).is_ok()
        });
    }

    fn control(&self, arguments: &[&str]) {
        let mut control = self.command("pg_ctl");
        control
            .arg("-D")
            .arg(self.data())
            .arg("-l")
            .arg(self.home.path().join("log"));
        control.args(["-s", "-w"]).args(arguments).succeed();
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port())
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.owner.command(self.programs.join(program));
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        stop.arg("-D").arg(self.data()).args(["-s", "-m", "immediate", "stop"]);
        // The cluster may be stopped already.
        stop.stderr(Stdio::null()).status().ok();
    }
}

trait Succeed {
    fn succeed(&mut self);
}

impl Succeed for Command {
    /// Discards the output. The PostgreSQL server inherits it: with a pipe, this would wait until that server ends.
    fn succeed(&mut self) {
        let status = self.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(
            status.as_ref().is_ok_and(std::process::ExitStatus::success),
            "{self:?}: {status:?}"
        );
    }
}
