//! A proxy in front of the database that counts round trips: how often the client sends after a response.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};

/// Runs until the process ends.
pub(super) struct Proxy {
    pub(super) port: u16,
    trips: Arc<AtomicU64>,
}

impl Proxy {
    pub(super) fn start(target: u16) -> Result<Self> {
        let doing = "cannot start the counting proxy";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(doing)?;
        let port = listener.local_addr().context(doing)?.port();
        let trips = Arc::new(AtomicU64::new(0));
        let counter = trips.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If this fails, the client reports the error.
                let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, target))
                    .and_then(|server| join(client, server, counter.clone()));
            }
        });
        Ok(Self { port, trips })
    }

    pub(super) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }
}

fn join(client: TcpStream, server: TcpStream, trips: Arc<AtomicU64>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let response_seen = Arc::new(AtomicBool::new(true));
    let server_sent = response_seen.clone();
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        forward(from, to, || {
            if response_seen.swap(false, Ordering::Relaxed) {
                trips.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    thread::spawn(move || forward(server, client, || server_sent.store(true, Ordering::Relaxed)));
    Ok(())
}

fn forward(mut from: TcpStream, mut to: TcpStream, mut on_data: impl FnMut()) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        on_data();
        if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_counts_requests_after_a_response() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap().port()).unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for trip in 1..=3 {
            client.write_all(b"one").unwrap();
            client.write_all(b"two").unwrap();
            server.read_exact(&mut [0; 6]).unwrap();
            server.write_all(b"answer").unwrap();
            client.read_exact(&mut [0; 6]).unwrap();
            assert_eq!(proxy.trips(), trip);
        }
    }
}
