//! The real binary as a child process.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use recado_postgres::testing::tenant_url;
use recado_testkit::services::own_redis::OwnRedis;
use tempfile::NamedTempFile;

use super::{VERIFY_TOKEN, WHATSAPP_APP_SECRET, eventually};

/// Signs session tokens.
pub const SESSION_SECRET: &str = "black-box-session-secret-of-32-bytes";

/// The server under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_recado");

/// A running process; killed when dropped.
pub struct Process {
    child: Child,
    log: NamedTempFile,
}

impl Process {
    /// Starts the binary with this environment and no other.
    pub fn start(arguments: &[&str], env: &[(&str, String)]) -> Self {
        Self::start_program(Path::new(BINARY), arguments, env)
    }

    /// Starts another version of the binary.
    pub fn start_program(program: &Path, arguments: &[&str], env: &[(&str, String)]) -> Self {
        let log = NamedTempFile::with_prefix("recado-it-").unwrap();
        let out = || log.as_file().try_clone().unwrap();
        let mut command = program_command(program, arguments, env);
        let child = command.stdout(out()).stderr(out()).spawn().unwrap();
        Self { child, log }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Sends SIGTERM, waits and returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.terminate();
        self.wait()
    }

    /// Waits for the process to end and returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        eventually("the process ends", || self.child.try_wait().unwrap()).code()
    }

    /// Sends SIGKILL and waits.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Peak resident memory, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.memory_status("VmHWM:")
    }

    /// Current resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory_status("VmRSS:")
    }

    fn memory_status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kilobytes = line.split_whitespace().nth(1).unwrap();
        kilobytes.parse::<u64>().unwrap() * 1024
    }

    /// The port of the routes, once the process has logged it.
    pub fn port(&self) -> u16 {
        self.logged_port("listening")
    }

    /// The port of the metrics, once the process has logged it.
    pub fn metrics_port(&self) -> u16 {
        self.logged_port("serving metrics")
    }

    fn logged_port(&self, event: &str) -> u16 {
        eventually("the process logs its address", || {
            let log = self.log();
            let line = log.lines().find(|line| line.contains(event) && line.contains("bind"))?;
            let (_, port) = line.split_once("127.0.0.1:")?;
            port.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        })
    }

    /// The output of the process, stdout and stderr.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let log = self.log();
        if std::thread::panicking() {
            let from = log.char_indices().rev().nth(6000).map_or(0, |(at, _)| at);
            eprintln!("the end of the server's log:\n{}", log.get(from..).unwrap_or_default());
        }
        // A panic of the server fails every test.
        let panicked = log.contains("panicked at");
        assert!(std::thread::panicking() || !panicked, "the server panicked:\n{log}");
    }
}

/// The binary with this environment and no other.
pub fn command(arguments: &[&str], env: &[(&str, String)]) -> Command {
    program_command(Path::new(BINARY), arguments, env)
}

fn program_command(program: &Path, arguments: &[&str], env: &[(&str, String)]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null());
    // In a directory without an `.env` file.
    command.current_dir(std::env::temp_dir());
    let last = |variable: &str| {
        env.iter()
            .rfind(|(name, _)| *name == variable)
            .map(|(_, value)| value.as_str())
    };
    // Tenants log in to the same database, unless the test says something else.
    if let (Some(url), None) = (last("DATABASE_URL"), last("TENANT_DATABASE_URL"))
        && url.starts_with("postgres://")
    {
        command.env("TENANT_DATABASE_URL", tenant_url(url));
    }
    for (name, value) in env {
        if value.is_empty() {
            command.env_remove(name);
        } else {
            command.env(name, value);
        }
    }
    command
}

/// The environment of a test server, which listens at a port that the system chooses.
pub fn environment(database_url: &str, whatsapp_url: &str) -> Vec<(&'static str, String)> {
    [
        ("DATABASE_URL", database_url),
        ("APP_SECRET", &STANDARD.encode([b'k'; 32])),
        ("SESSION_JWT_SECRET", SESSION_SECRET),
        ("BIND", "127.0.0.1:0"),
        ("PUBLIC_URL", "http://127.0.0.1"),
        ("COOKIE_SECURE", "false"),
        ("PLATFORM_ADMIN_EMAILS", "root@example.com"),
        ("WHATSAPP_API_URL", whatsapp_url),
        ("WHATSAPP_APP_ID", "1"),
        ("WHATSAPP_APP_SECRET", WHATSAPP_APP_SECRET),
        ("WHATSAPP_VERIFY_TOKEN", VERIFY_TOKEN),
        ("CAMPAIGN_MESSAGE_DELAY_MS", "0"),
        ("LOG_FORMAT", "json"),
        // Longer than the default, so that requests on a busy machine wait for a connection instead of failing.
        // Tests of an exhausted pool set the default.
        ("DATABASE_WAIT_TIMEOUT", "20s"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// A Redis server for one test; killed when dropped. A restart uses the same port.
pub fn own_redis() -> OwnRedis {
    OwnRedis::start()
}
