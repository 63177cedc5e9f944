//! The simulators of the external systems, as one process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Addresses;
use crate::paths;
use crate::process::ChildProcess;
use crate::scratch::SIMULATORS_LOG;
use crate::state::Env;

const READY: Duration = Duration::from_secs(30);

/// The running process, and the lines that it printed before `ready`: `whatsapp URL`, `payment URL` and so on.
pub struct Simulators {
    pub process: ChildProcess,
    printed: String,
}

impl Simulators {
    /// Starts `program` at ports that the system chooses, with `variables` on top, and waits until it is ready.
    pub fn start(program: &Path, variables: &Env, dir: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        for name in ["WHATSAPP", "PAYMENT", "AI", "SMTP", "RECEIVER"] {
            command.env(format!("SIM_{name}_BIND"), "127.0.0.1:0");
        }
        command.envs(variables).current_dir(paths::root());
        let log = dir.join(SIMULATORS_LOG);
        let mut process = ChildProcess::spawn("recado-simulators", &mut command, log.clone())?;
        let mut printed = String::new();
        process.wait_until(READY, || {
            printed = fs::read_to_string(&log).unwrap_or_default();
            printed.lines().any(|line| line == "ready")
        })?;
        Ok(Self { process, printed })
    }

    /// The address of a simulator, as `host:port`.
    pub fn address(&self, name: &str) -> Result<String> {
        let mut lines = self.printed.lines().filter_map(|line| line.split_once(' '));
        let url = lines.find_map(|(simulator, url)| (simulator == name).then_some(url));
        let address = url.and_then(|url| url.split('/').nth(2));
        address
            .map(str::to_owned)
            .with_context(|| format!("the simulators printed no address of {name}"))
    }

    /// The addresses of all simulators, with those of the server.
    pub(super) fn addresses(&self, server: String, metrics: String) -> Result<Addresses> {
        Ok(Addresses {
            server,
            metrics,
            whatsapp: self.address("whatsapp")?,
            payment: self.address("payment")?,
            ai: self.address("ai")?,
            smtp: self.address("smtp")?,
            receiver: self.address("receiver")?,
        })
    }
}
