//! The load generators: wrk for HTTP, pgbench for SQL. Both report requests per second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use postgres::Config;
use postgres::config::Host;
use recado_testkit::process;

/// Connections of wrk: more than the server has to the database, so that those are never idle.
const CONNECTIONS: u32 = 32;

pub(super) struct Wrk {
    program: PathBuf,
    script: PathBuf,
}

pub(super) struct Request {
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    /// JSON body of a POST. None: the request is a GET.
    pub(super) body: Option<String>,
}

impl Wrk {
    /// Sends these requests in turn. The script formats them once and then only picks the next.
    pub(super) fn new(program: PathBuf, dir: &Path, requests: &[Request]) -> Result<Self> {
        let mut text = String::from("local all, next = {}, 0\nfunction init()\n");
        for Request { path, headers, body } in requests {
            let mut lines: String = headers
                .iter()
                .map(|(name, value)| format!("[\"{name}\"]=\"{value}\","))
                .collect();
            let (method, body) = match body {
                Some(body) => {
                    lines.push_str("[\"Content-Type\"]=\"application/json\"");
                    ("POST", format!(", [==[{body}]==]"))
                }
                None => ("GET", String::new()),
            };
            text.push_str(&format!(
                "  all[#all + 1] = wrk.format(\"{method}\", \"{path}\", \
                 {{[\"Host\"]=wrk.headers[\"Host\"],{lines}}}{body})\n"
            ));
        }
        text.push_str("end\nfunction request()\n  next = next % #all + 1\n  return all[next]\nend\n");
        let script = dir.join("wrk.lua");
        fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
        Ok(Self { program, script })
    }

    /// Posts the same JSON body to this path.
    pub(super) fn posting(program: PathBuf, dir: &Path, path: &str, body: &str) -> Result<Self> {
        let text = format!(
            "wrk.method = \"POST\"\nwrk.path = \"{path}\"\nwrk.body = [==[{body}]==]\n\
             wrk.headers[\"Content-Type\"] = \"application/json\"\nwrk.headers[\"Authorization\"] = \"Bearer token\"\n"
        );
        let script = dir.join("wrk-post.lua");
        fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
        Ok(Self { program, script })
    }

    /// Requests per second. Fails if a response is not a success.
    pub(super) fn run(&self, base: &str, seconds: u32) -> Result<f64> {
        let mut wrk = Command::new(&self.program);
        wrk.args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s"), "-s"]);
        let output = process::quietly(wrk.arg(&self.script).arg(base), "wrk")?;
        if output.contains("Non-2xx") || output.contains("Socket errors") {
            bail!("not every request succeeded:\n{output}");
        }
        number_after(&output, "Requests/sec:")
    }
}

pub(super) struct Pgbench {
    program: PathBuf,
    scripts: Vec<PathBuf>,
    variables: Vec<String>,
    environment: Vec<(&'static str, String)>,
    clients: usize,
    threads: usize,
}

impl Pgbench {
    /// Connects to the database of this URL as `recado_tenant`.
    pub(super) fn new(program: PathBuf, url: &str, clients: usize, threads: usize) -> Result<Self> {
        let config = Config::from_str(url).context("the database URL is malformed")?;
        let host = config.get_hosts().first().map_or("", |host| match host {
            Host::Tcp(name) => name,
            Host::Unix(_) => "",
        });
        let password = config.get_password().map(String::from_utf8_lossy).unwrap_or_default();
        let environment = vec![
            ("PGHOST", host.to_owned()),
            (
                "PGPORT",
                config.get_ports().first().map(u16::to_string).unwrap_or_default(),
            ),
            ("PGUSER", config.get_user().unwrap_or_default().to_owned()),
            ("PGPASSWORD", password.into_owned()),
            ("PGDATABASE", config.get_dbname().unwrap_or_default().to_owned()),
            ("PGOPTIONS", "-c role=recado_tenant".to_owned()),
        ];
        Ok(Self {
            program,
            scripts: Vec::new(),
            variables: Vec::new(),
            environment,
            clients,
            threads,
        })
    }

    /// Uses the same connections with other scripts, which run in random order.
    pub(super) fn with(&self, scripts: Vec<PathBuf>, variables: Vec<String>) -> Self {
        Self {
            program: self.program.clone(),
            scripts,
            variables,
            environment: self.environment.clone(),
            ..*self
        }
    }

    /// Runs the same scripts as this role.
    pub(super) fn role(&self, role: &str) -> Self {
        let mut pgbench = self.with(self.scripts.clone(), self.variables.clone());
        pgbench.environment.retain(|(name, _)| *name != "PGOPTIONS");
        pgbench.environment.push(("PGOPTIONS", format!("-c role={role}")));
        pgbench
    }

    /// Scripts per second. Fails if a transaction fails.
    pub(super) fn run(&self, seconds: u32) -> Result<f64> {
        let mut pgbench = Command::new(&self.program);
        pgbench.envs(self.environment.iter().cloned()).args([
            "-n",
            "-M",
            "prepared",
            &format!("-c{}", self.clients),
            &format!("-j{}", self.threads),
            &format!("-T{seconds}"),
        ]);
        for variable in &self.variables {
            pgbench.args(["-D", variable]);
        }
        for script in &self.scripts {
            pgbench.arg("-f").arg(script);
        }
        let output = process::quietly(&mut pgbench, "pgbench")?;
        if number_after(&output, "number of failed transactions:")? > 0.0 {
            bail!("not every transaction succeeded:\n{output}");
        }
        number_after(&output, "tps =")
    }
}

/// The first number after a label.
fn number_after(text: &str, label: &str) -> Result<f64> {
    let number = text
        .split_once(label)
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    match number {
        Some(number) => Ok(number),
        None => bail!("there is no \"{label}\" in:\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_results_are_parsed() {
        let pgbench = "number of failed transactions: 0 (0.000%)\ntps = 21034.5 (without initial connection time)\n";
        assert_eq!(number_after(pgbench, "number of failed transactions:").unwrap(), 0.0);
        assert_eq!(number_after(pgbench, "tps =").unwrap(), 21034.5);
        assert_eq!(
            number_after("Requests/sec:  17400.12\n", "Requests/sec:").unwrap(),
            17400.12
        );
        assert!(number_after("nothing", "tps =").is_err());
    }

    #[test]
    fn pgbench_takes_its_connection_from_the_url() {
        let url = "postgres://u:p%20w@127.0.0.1:5433/db";
        let pgbench = Pgbench::new(PathBuf::from("pgbench"), url, 12, 2).unwrap();
        let value = |name: &str| {
            let found = pgbench.environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(
            ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"].map(value),
            ["127.0.0.1", "5433", "u", "p w", "db"]
        );
    }
}
