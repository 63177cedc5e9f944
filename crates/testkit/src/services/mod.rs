//! PostgreSQL, Redis and other programs: found or installed, and run privately on free ports of 127.0.0.1.
//!
//! Every service is stopped when its value is dropped.

pub mod find;
mod install;
pub mod own_redis;
pub mod owner;
pub mod pgbouncer;
pub mod postgres;
pub mod redis;
pub mod versions;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

pub use find::{postgres as find_postgres, wrk_or_install};

/// Returns a free port below the system's ephemeral ports, so that no outgoing connection takes it before it is used.
/// Another server may take it; the caller then tries again.
pub fn free_port() -> Result<u16> {
    const PORTS: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent processes begin at different ports.
    let first = u16::try_from(std::process::id() % 600).unwrap_or(0) * 20;
    for _ in 0..PORTS {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("cannot find a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_port_returns_no_port_twice() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        let (low, high) = (ports.iter().min().unwrap(), ports.iter().max().unwrap());
        assert!((20_000..32_000).contains(low) && *high < 32_000);
        let mut different = ports.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ports.len());
        let next = (ports.last().unwrap() - 20_000 + 1) % 12_000 + 20_000;
        let _taken = TcpListener::bind(("127.0.0.1", next));
        assert_ne!(free_port().unwrap(), next);
    }
}
