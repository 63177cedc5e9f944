//! A private Redis for the rate limiter: in memory only, behind a random password, on a free port of 127.0.0.1.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::owner::Owner;
use super::{ReservedPort, find};
use crate::process::ChildProcess;
use crate::secrets;

/// A running Redis; dropping it stops it.
pub struct Redis {
    process: ChildProcess,
    password: String,
    port: u16,
}

impl Redis {
    pub fn start(home: &Path) -> Result<Self> {
        let binary = find::redis_or_install()?;
        let owner = Owner::detect()?;
        owner.private_dir(home)?;
        stop_left_over(home);
        launch(&binary, home, &owner)
    }

    pub fn url(&self) -> String {
        format!("redis://default:{}@127.0.0.1:{}", self.password, self.port)
    }

    /// Port and password.
    pub fn port_and_password(&self) -> (u16, &str) {
        (self.port, &self.password)
    }

    /// Deletes all rate-limit data.
    pub fn clear(&self) {
        let _ = send(self.port, &self.password, "FLUSHALL");
    }

    pub fn alive(&mut self) -> Result<()> {
        self.process.alive()
    }
}

fn launch(binary: &Path, home: &Path, owner: &Owner) -> Result<Redis> {
    let (reserved, password) = (ReservedPort::new()?, secrets::password()?);
    let port = reserved.number();
    let config = home.join("redis.conf");
    // The password is in a private file, because every user can read a command line.
    let text = format!(
        "bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave \"\"\nappendonly no\ndaemonize no\ndir \"{}\"\n",
        home.display()
    );
    secrets::write_private(&config, &text)?;
    owner.give(&config)?;
    let process = ChildProcess::spawn(
        "redis-server",
        owner.command(binary).arg(&config),
        home.join("redis.log"),
    )?;
    let mut redis = Redis {
        process,
        password,
        port,
    };
    let password = redis.password.clone();
    redis.process.wait_until(Duration::from_secs(10), || {
        send(port, &password, "PING").contains("+PONG")
    })?;
    Ok(redis)
}

/// Shuts down the Redis of a killed run, with the password from its configuration.
pub fn stop_left_over(home: &Path) {
    let Ok(config) = fs::read_to_string(home.join("redis.conf")) else {
        return;
    };
    let value = |name: &str| {
        config
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .unwrap_or_default()
    };
    if let Ok(port) = value("port ").parse() {
        let _ = send(port, value("requirepass "), "SHUTDOWN NOSAVE");
    }
}

/// Authenticates, sends a command and returns the response. Empty if no server responds.
fn send(port: u16, password: &str, command: &str) -> String {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(format!("AUTH {password}\r\n{command}\r\nQUIT\r\n").as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    exchange().unwrap_or_default()
}
