//! A Redis of one test's own, which may be stopped, and a proxy that makes it slow.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

/// A Redis on a port of its own; killed when dropped.
pub(crate) struct OwnRedis {
    child: Child,
    port: u16,
}

impl OwnRedis {
    pub(crate) fn start() -> Self {
        // Taken again below: nobody else is given a port so soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            child: launch(port),
            port,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, empty.
    pub(crate) fn restart(&mut self) {
        self.child = launch(self.port);
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(status.success());
    }

    pub(crate) async fn say(&self, command: &[&str]) -> redis::Value {
        crate::say(&self.url(), command).await
    }

    /// How often clients and scripts called each command since the statistics were reset.
    pub(crate) async fn calls(&self) -> Vec<(String, u64)> {
        let text: String = redis::from_redis_value(self.say(&["INFO", "commandstats"]).await).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
        lines
            .map(|line| {
                let (name, rest) = line.split_once(":calls=").unwrap();
                (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap())
            })
            .collect()
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn launch(port: u16) -> Child {
    let binary = std::env::var_os("REDIS_BIN").unwrap_or_else(|| "redis-server".into());
    let child = Command::new(binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .current_dir(std::env::temp_dir())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + DEADLINE;
    while !answers(port) {
        assert!(Instant::now() < deadline, "Redis does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn answers(port: u16) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(answer == *b"+PONG")
    };
    ping().unwrap_or(false)
}

/// Stands between a counter and its Redis: holds answers back, and counts how often it was asked for the script.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    delay_ms: AtomicU64,
    asked: AtomicUsize,
}

impl Proxy {
    pub(crate) fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let state = Arc::clone(&shared);
                std::thread::spawn(move || ask(from, to, &state));
                let state = Arc::clone(&shared);
                std::thread::spawn(move || answer(server, client, &state));
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on every answer comes so much later.
    pub(crate) fn delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap();
        self.state.delay_ms.store(milliseconds, Ordering::SeqCst);
    }

    /// How many calls of the script came so far.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }
}

fn ask(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 4096];
    let mut tail = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        tail.extend_from_slice(&buffer[..read]);
        let found = tail.windows(7).filter(|word| word == b"EVALSHA").count();
        state.asked.fetch_add(found, Ordering::SeqCst);
        // A word cut in two by a read is found with the next one, a whole one is not found twice.
        let kept = if found == 0 { tail.len().min(6) } else { 0 };
        tail.drain(..tail.len() - kept);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
}

fn answer(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let delay = Duration::from_millis(state.delay_ms.load(Ordering::SeqCst));
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
}
