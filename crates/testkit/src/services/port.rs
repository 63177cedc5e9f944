//! Ports of 127.0.0.1 for programs whose port must be known before they start.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

/// A port that the system chose. Until this value is dropped, the system gives it to nothing else.
///
/// A bound socket that does not listen reserves it. Linux then neither returns the port for port 0 nor uses it for an
/// outgoing connection, but a server that names it may listen there, again and again: both have `SO_REUSEADDR`. Once a
/// server that is never restarted listens, the reservation may be dropped.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    /// None on other systems, which let no second socket bind the port.
    _socket: Option<Socket>,
}

impl ReservedPort {
    pub fn new() -> Result<Self> {
        let reserve = || -> std::io::Result<(u16, Socket)> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            let address = socket.local_addr()?.as_socket();
            Ok((address.map_or(0, |address| address.port()), socket))
        };
        let (number, socket) = reserve().context("cannot reserve a port")?;
        let _socket = cfg!(target_os = "linux").then_some(socket);
        Ok(Self { number, _socket })
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reserved_port_accepts_one_server_at_a_time() {
        let port = ReservedPort::new().unwrap();
        for _ in 0..2 {
            assert!(TcpStream::connect(port.address()).is_err());
            let server = TcpListener::bind(port.address()).unwrap();
            assert!(TcpListener::bind(port.address()).is_err());
            TcpStream::connect(port.address()).unwrap();
            drop(server);
        }
    }

    /// The system checks a free port as it checks a bind without `SO_REUSEADDR`.
    #[test]
    fn reserved_port_is_not_free() {
        let bind = |port: u16| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
        };
        let port = ReservedPort::new().unwrap();
        let number = port.number();
        assert!(bind(number).is_err());
        drop(port);
        bind(number).unwrap();
    }
}
