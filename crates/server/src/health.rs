//! `recado health`: the health check of another process on this machine, for containers without an HTTP client.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::config::Config;

/// The timeout of connecting, of each read and of each write.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The process to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// `recado serve`, at `BIND`: is it ready for requests?
    Server,
    /// `recado worker`, at `METRICS_BIND`: is it alive?
    Worker,
}

/// Fails if the process is not healthy.
pub fn check(process: Process) -> anyhow::Result<()> {
    let source = |name: &str| std::env::var(name).ok();
    let (address, path) = match process {
        Process::Server => (Config::bind(&source)?, "/readyz"),
        Process::Worker => match Config::metrics_bind(&source)? {
            Some(address) => (address, "/healthz"),
            None => bail!("configuration: METRICS_BIND is required: the health check of a worker uses this address"),
        },
    };
    let response = get(reachable(address), path).with_context(|| format!("{address} does not answer"))?;
    let status = response.split(' ').nth(1).unwrap_or_default();
    ensure!(status == "200", "{address}{path} answers {status}");
    Ok(())
}

fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    // Only the status line matters.
    stream.take(4096).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Replaces an unspecified address (`0.0.0.0`, `::`) by the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_becomes_loopback() {
        for (bound, reached) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), reached);
        }
    }
}
