//! A real PgBouncer in transaction mode, for one test.
#![expect(clippy::expect_used, reason = "a test without its PgBouncer can only fail")]

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use postgres::Config;
use tempfile::TempDir;

use super::owner::Owner;
use super::{ReservedPort, find};
use crate::skip::skip;

/// How long PgBouncer may take to listen.
const STARTUP: Duration = Duration::from_secs(10);

/// A running PgBouncer, killed when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    home: TempDir,
    port: u16,
}

impl PgBouncer {
    /// Starts PgBouncer before the servers of these URLs, with this many server connections for each user and
    /// database. None: it is not installed, so the test is skipped.
    #[track_caller]
    pub fn start(urls: &[&str], server_connections: usize) -> Option<Self> {
        let Some(program) = find::pgbouncer() else {
            skip("pgbouncer is not installed, and PGBOUNCER_BIN is not set");
            return None;
        };
        let reserved = ReservedPort::new().expect("a port is free");
        let port = reserved.number();
        let owner = Owner::detect().expect("the user of PgBouncer is known");
        let home = TempDir::with_prefix("recado-pgbouncer-").expect("the directory of PgBouncer can be created");
        write_configuration(home.path(), urls, port, server_connections);
        let configuration = home.path().join("pgbouncer.ini");
        for path in [home.path(), &configuration, &home.path().join("users.txt")] {
            owner.give(path).expect("root may give files away");
        }
        let mut command = owner.command(program);
        command.arg(configuration);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("PgBouncer starts");
        let pooler = Self { process, home, port };
        pooler.wait();
        Some(pooler)
    }

    /// The URL of the same database through PgBouncer.
    pub fn through(&self, url: &str) -> String {
        let config: Config = url.parse().expect("a PostgreSQL URL");
        let server = config.get_ports().first().copied().unwrap_or(5432);
        url.replacen(&format!(":{server}/"), &format!(":{}/", self.port), 1)
    }

    /// What PgBouncer has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn wait(&self) {
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < STARTUP, "PgBouncer does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_configuration(home: &Path, urls: &[&str], port: u16, server_connections: usize) {
    let configs: Vec<Config> = urls.iter().map(|url| url.parse().expect("a PostgreSQL URL")).collect();
    let server = configs.first().and_then(|config| config.get_ports().first()).copied();
    let users: String = configs
        .iter()
        .map(|config| {
            let password = String::from_utf8_lossy(config.get_password().unwrap_or_default()).into_owned();
            format!("\"{}\" \"{password}\"\n", config.get_user().unwrap_or_default())
        })
        .collect();
    let home_path = home.display();
    // The default of a new installation, but for the addresses and the pool: nothing is tuned for Recado.
    let text = format!(
        "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {home_path}/users.txt\npool_mode = transaction\n\
         default_pool_size = {server_connections}\nmax_client_conn = 1000\nlogfile = {home_path}/log\n\
         pidfile = {home_path}/pid\n",
        server.unwrap_or(5432)
    );
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .expect("the configuration can be written");
    };
    write("users.txt", &users);
    write("pgbouncer.ini", &text);
}
