//! Throughput of requests as a share of the limit: a bare handler with the same bytes, and the same statements alone.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::services::postgres::connect;
use recado_testkit::services::wrk_or_install;
use serde_json::{Value, json};

use super::Options;
use super::captured;
use super::data::targets;
use super::fixture::{Fixture, Server, threads_and_connections};
use super::load::{Pgbench, Request, Wrk};
use super::read::start_bare;
use super::results::{BenchResult, median_and_spread};

/// A kind of request, with the target of its share of the limit.
struct Case {
    name: &'static str,
    path: &'static str,
    creates: bool,
    uses_database: bool,
    target: f64,
}

const PLANS: Case = Case {
    name: "plans",
    path: "/api/billing/plans",
    creates: false,
    uses_database: false,
    target: 0.90,
};

const LIST: Case = Case {
    name: "list",
    path: "/api/campaigns?limit=20",
    creates: false,
    uses_database: true,
    target: 0.70,
};

const CREATE: Case = Case {
    name: "create",
    path: "/api/campaigns",
    creates: true,
    uses_database: true,
    target: 0.65,
};

/// Every connection prepares every script. With more scripts, preparing would take much of a short round.
const SCRIPTS: usize = 4;

pub(super) fn plans(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    PLANS.run(fixture, options)
}

pub(super) fn list(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    LIST.run(fixture, options)
}

pub(super) fn create(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let results = CREATE.run(fixture, options)?;
    // Delete the campaigns and their events, so that no later bench relays them.
    connect(&fixture.database())?
        .batch_execute("DELETE FROM campaigns WHERE name = 'Bench'; TRUNCATE outbox_events")
        .context("cannot delete the campaigns")?;
    Ok(results)
}

/// Requests per second of one round.
struct Round {
    whole: f64,
    handler: f64,
    statements: Option<f64>,
}

impl Round {
    fn share(&self) -> f64 {
        self.whole * (1.0 / self.handler + self.statements.map_or(0.0, |statements| 1.0 / statements))
    }
}

impl Case {
    fn run(&self, fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
        fixture.build_bare()?;
        let server = fixture.launch(&fixture.uncounted()?)?;
        let dir = fixture.dir().join(self.name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let wrk = Wrk::new(wrk_or_install()?, &dir, &self.requests(fixture)?)?;
        let body = self.request_once(fixture, &server, 0)?;
        let (bare, bare_url) = start_bare(fixture, &body)?;
        let pgbench = match self.uses_database {
            true => Some(self.pgbench(fixture, &server)?),
            false => None,
        };
        wrk.run(&server.base, 1)?;
        wrk.run(&bare_url, 1)?;
        let mut rounds = Vec::new();
        for number in 1..=options.pairs {
            let round = Round {
                whole: wrk.run(&server.base, options.seconds)?,
                handler: wrk.run(&bare_url, options.seconds)?,
                statements: pgbench
                    .as_ref()
                    .map(|pgbench| pgbench.run(options.seconds))
                    .transpose()?,
            };
            println!(
                "{number}/{}: {:.0}/s; bare handler {:.0}/s; statements {:.0}/s; {:.2} of the limit",
                options.pairs,
                round.whole,
                round.handler,
                round.statements.unwrap_or(f64::NAN),
                round.share()
            );
            rounds.push(round);
        }
        drop((server, bare));
        Ok(self.results(&rounds))
    }

    fn results(&self, rounds: &[Round]) -> Vec<BenchResult> {
        let of = |value: fn(&Round) -> f64| median_and_spread(&rounds.iter().map(value).collect::<Vec<_>>());
        let rate =
            |part: &str, value: f64| BenchResult::more(format!("{}: {part} throughput", self.name), value, "/s", 0);
        let (share, spread) = of(Round::share);
        let mut results = vec![
            BenchResult::more(format!("{}: share of the limit", self.name), share, "", 2)
                .spread(spread)
                .target(self.target),
            rate("server", of(|round| round.whole).0),
            rate("bare handler", of(|round| round.handler).0),
        ];
        if self.uses_database {
            let statements = of(|round| round.statements.unwrap_or(f64::NAN)).0;
            results.push(rate("statements", statements));
        }
        results
    }

    /// A request for the account of every target.
    fn requests(&self, fixture: &Fixture) -> Result<Vec<Request>> {
        targets()
            .into_iter()
            .map(|target| {
                Ok(Request {
                    path: self.path.to_owned(),
                    headers: fixture.headers(&target.account)?,
                    body: self.creates.then(|| body(&target.account).to_string()),
                })
            })
            .collect()
    }

    /// Sends the request for a target's account and returns the response.
    fn request_once(&self, fixture: &Fixture, server: &Server, target: usize) -> Result<Value> {
        let Some(target) = targets().into_iter().nth(target) else {
            bail!("there is no target");
        };
        let client = Client::new(&server.base, fixture.headers(&target.account)?);
        let reply = match self.creates {
            true => client.post(self.path, &body(&target.account))?,
            false => client.get(self.path)?,
        };
        match reply.status {
            200 | 201 => Ok(reply.body),
            status => bail!("{} responded with {status}: {}", self.path, reply.body),
        }
    }

    /// Scripts with the statements of the first target's request, one for each of the first `SCRIPTS` targets.
    fn pgbench(&self, fixture: &Fixture, server: &Server) -> Result<Pgbench> {
        let Some(program) = fixture.cluster.program("pgbench") else {
            bail!("pgbench is needed: install PostgreSQL's contributed programs, or put it into the PATH");
        };
        let (threads, connections) = threads_and_connections();
        let last = std::cell::RefCell::new(Value::Null);
        let mut script = captured::script(fixture, || {
            last.replace(self.request_once(fixture, server, 0)?);
            Ok(())
        })?;
        if let Some(id) = last.into_inner().pointer("/data/id").and_then(Value::as_str) {
            // Each run of the script creates a row with a new id. An id within a longer text stays the same.
            let with_new_id = script.replace(&format!("'{id}'"), "md5(:number::text)::uuid");
            script = format!("\\set number random(1, 9000000000000000000)\n{with_new_id}");
        }
        let mut scripts: Vec<PathBuf> = Vec::new();
        let targets = targets();
        for (at, target) in targets.iter().take(SCRIPTS).enumerate() {
            let first = targets.first().map_or("", |first| &first.account);
            let file = fixture.dir().join(format!("{}-{at}.sql", self.name));
            fs::write(&file, script.replace(first, &target.account))
                .with_context(|| format!("cannot write {}", file.display()))?;
            scripts.push(file);
        }
        let pgbench = Pgbench::new(program, &fixture.database(), connections, threads)?.with(scripts, Vec::new());
        pgbench.run(1)?;
        Ok(pgbench)
    }
}

/// A campaign with the account's template, whose id is the account's id.
fn body(account: &str) -> Value {
    json!({ "name": "Bench", "template_id": account })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_adds_the_costs_of_the_measured_parts() {
        let mut round = Round {
            whole: 10.0,
            handler: 60.0,
            statements: Some(30.0),
        };
        assert!((round.share() - 0.5).abs() < 1e-9);
        round.statements = None;
        assert!((round.share() - 1.0 / 6.0).abs() < 1e-9);
    }
}
