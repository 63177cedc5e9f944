//! A separate Redis server for one test, which the test can stop.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test without its Redis can only fail"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{ReservedPort, find};
use crate::DEADLINE;

/// Commands that the rate limiter's script calls.
const SCRIPT_COMMANDS: [&str; 7] = [
    "time",
    "zremrangebyscore",
    "zcard",
    "zrevrange",
    "zadd",
    "pexpire",
    "zrange",
];

/// Commands that the tests send.
const TEST_COMMANDS: [&str; 4] = ["info", "config|resetstat", "flushall", "quit"];

/// A Redis server on its own port, in memory only; killed on drop.
#[derive(Debug)]
pub struct OwnRedis {
    child: Child,
    port: ReservedPort,
}

impl OwnRedis {
    pub fn start() -> Self {
        let port = ReservedPort::new().expect("no port is free");
        let child = launch(port.number());
        Self { child, port }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts it on the same port, without data.
    pub fn restart(&mut self) {
        self.kill();
        self.child = launch(self.port());
    }

    /// Sends a signal: `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "cannot send {name} to {pid}"
        );
    }

    /// Sends an inline command and returns the raw response (RESP). Panics if Redis responds with an error.
    pub fn command(&self, command: &str) -> String {
        let response = send_command(self.port(), command).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(!response.starts_with('-'), "{command}: {response}");
        response
    }

    /// Calls by clients per command since `CONFIG RESETSTAT`, without the commands of the script and of the tests.
    pub fn calls(&self) -> Vec<(String, u64)> {
        let statistics = self.command("INFO commandstats");
        let lines = statistics.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
        let calls = lines.filter_map(|line| {
            let (name, rest) = line.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        calls
            .filter(|(name, _)| !SCRIPT_COMMANDS.contains(&name.as_str()) && !TEST_COMMANDS.contains(&name.as_str()))
            .collect()
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(port: u16) -> Child {
    let binary = find::redis_or_install().expect("no Redis");
    let child = Command::new(binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .current_dir(std::env::temp_dir())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server does not start");
    let deadline = Instant::now() + DEADLINE;
    while !send_command(port, "PING").is_ok_and(|response| response.starts_with("+PONG")) {
        assert!(Instant::now() < deadline, "Redis did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn send_command(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}
