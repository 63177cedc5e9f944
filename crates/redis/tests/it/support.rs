//! A proxy that delays the responses of Redis.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A TCP proxy between a limiter and its Redis: delays responses, counts connections and calls of the script.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    delay_ms: AtomicU64,
    script_calls: AtomicUsize,
    connections: AtomicUsize,
}

impl Proxy {
    pub(crate) fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let state = Arc::clone(&shared);
                std::thread::spawn(move || forward_requests(from, to, &state));
                let state = Arc::clone(&shared);
                std::thread::spawn(move || forward_responses(server, client, &state));
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Delays every later response.
    pub(crate) fn delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap();
        self.state.delay_ms.store(milliseconds, Ordering::SeqCst);
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn script_calls(&self) -> usize {
        self.state.script_calls.load(Ordering::SeqCst)
    }
}

fn forward_requests(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 4096];
    let mut tail = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        tail.extend_from_slice(&buffer[..read]);
        let found = tail.windows(7).filter(|word| word == b"EVALSHA").count();
        state.script_calls.fetch_add(found, Ordering::SeqCst);
        // Finds a word that two reads split, and counts no whole word twice.
        let overlap = if found == 0 { tail.len().min(6) } else { 0 };
        tail.drain(..tail.len() - overlap);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
}

fn forward_responses(mut from: TcpStream, mut to: TcpStream, state: &State) {
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
