//! Throughput of `GET /api/campaigns/<id>` as a share of the limit.
//!
//! A read needs work in the HTTP server and in PostgreSQL, on the same processors. The HTTP part is measured by a bare
//! handler with the same bytes, the other by the same statements alone. The limit is 1 / (1 / handler + 1 /
//! statements).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::process::ChildProcess;
use recado_testkit::services::postgres::connect;
use recado_testkit::services::{ReservedPort, wrk_or_install};
use serde_json::Value;

use super::Options;
use super::data::targets;
use super::fixture::{Fixture, threads_and_connections};
use super::load::{Pgbench, Wrk};
use super::results::{BenchResult, median_and_spread};

/// The statement as the server prepares it, for a PostgreSQL without `pg_stat_statements`.
pub(super) const STATEMENT: &str = include_str!("read.sql");

/// Requests per second of one round.
struct Round {
    whole: f64,
    handler: f64,
    statements: f64,
    pipelined: f64,
}

impl Round {
    fn share_of_limit(&self, statements: f64) -> f64 {
        self.whole * (1.0 / self.handler + 1.0 / statements)
    }
}

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    fixture.build_bare()?;
    let wrk = Wrk::new(wrk_or_install()?, fixture.dir(), &fixture.requests()?)?;
    let Some(pgbench) = fixture.cluster.program("pgbench") else {
        bail!("pgbench is needed: install PostgreSQL's contributed programs, or put it into the PATH");
    };
    let (threads, connections) = threads_and_connections();
    let pgbench = Pgbench::new(pgbench, &fixture.database(), connections, threads)?;
    let server = fixture.serve()?;
    let (bare, bare_url) = start_bare(fixture, &fixture.read(&server, 1)?)?;
    println!("warming up");
    wrk.run(&server.base, options.seconds)?;
    wrk.run(&bare_url, 1)?;
    let statement = captured(fixture)?;
    verify(fixture, &statement)?;
    let one_by_one = scripts(fixture, &pgbench, &statement, false)?;
    let pipelined = scripts(fixture, &pgbench, &statement, true)?;
    one_by_one.run(1)?;
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let round = Round {
            whole: wrk.run(&server.base, options.seconds)?,
            handler: wrk.run(&bare_url, options.seconds)?,
            statements: one_by_one.run(options.seconds)?,
            pipelined: pipelined.run(options.seconds)?,
        };
        println!(
            "{number}/{}: {:.0}/s; bare handler {:.0}/s; statements {:.0}/s, pipelined {:.0}/s; {:.2} of the limit",
            options.pairs,
            round.whole,
            round.handler,
            round.statements,
            round.pipelined,
            round.share_of_limit(round.statements)
        );
        rounds.push(round);
    }
    drop((server, bare));
    Ok(results(&rounds))
}

fn results(rounds: &[Round]) -> Vec<BenchResult> {
    let median = |value: &dyn Fn(&Round) -> f64| median_and_spread(&rounds.iter().map(value).collect::<Vec<_>>());
    let (ratio, spread) = median(&|round| round.share_of_limit(round.statements));
    let (pipelined, pipelined_spread) = median(&|round| round.share_of_limit(round.pipelined));
    let rate = |name: &str, value: &dyn Fn(&Round) -> f64| {
        BenchResult::more(format!("read: {name}"), median(value).0, "/s", 0)
    };
    vec![
        BenchResult::more("read: share of the limit", ratio, "", 2)
            .spread(spread)
            .target(0.75),
        BenchResult::more("read: share of the limit with pipelined statements", pipelined, "", 2)
            .spread(pipelined_spread),
        rate("server throughput", &|round| round.whole),
        rate("bare handler throughput", &|round| round.handler),
        rate("statements throughput", &|round| round.statements),
        rate("pipelined statements throughput", &|round| round.pipelined),
    ]
}

/// Starts the bare handler with a response of the server.
pub(super) fn start_bare(fixture: &Fixture, response: &Value) -> Result<(ChildProcess, String)> {
    let body = fixture.dir().join("body.json");
    fs::write(&body, response.to_string()).with_context(|| format!("cannot write {}", body.display()))?;
    let port = ReservedPort::new()?;
    let bind = port.address();
    let url = format!("http://{bind}");
    let mut command = Command::new(fixture.program("examples").join("bare"));
    let mut bare = ChildProcess::spawn("bare", command.arg(&bind).arg(&body), fixture.dir().join("bare.log"))?;
    let client = Client::new(&url, Vec::new());
    bare.wait_until(Duration::from_secs(10), || client.get("/").is_ok())?;
    Ok((bare, url))
}

/// The statement that the requests so far executed most often.
fn captured(fixture: &Fixture) -> Result<String> {
    if !fixture.cluster.has_statement_statistics() {
        return Ok(STATEMENT.trim().to_owned());
    }
    let row = connect(&fixture.database())?
        .query_one(
            "SELECT query FROM pg_stat_statements WHERE userid = 'recado_tenant'::regrole AND query LIKE 'SELECT %'
             ORDER BY calls DESC LIMIT 1",
            &[],
        )
        .context("cannot find the statement of a read")?;
    row.try_get(0).context("cannot find the statement of a read")
}

/// Writes a pgbench script with the server's transaction for each target.
pub(super) fn scripts(fixture: &Fixture, pgbench: &Pgbench, statement: &str, pipelined: bool) -> Result<Pgbench> {
    let mut scripts: Vec<PathBuf> = Vec::new();
    let mut variables = vec!["one=1".to_owned()];
    for (at, target) in targets().iter().enumerate() {
        let select = statement
            .replace("$1", &format!(":a{at}"))
            .replace("$2", &format!(":c{at}"))
            .replace("$3", ":one");
        let transaction = format!(
            "BEGIN READ ONLY;\nSET LOCAL app.account_id = '{}';\n{select};\nCOMMIT;\n",
            target.account
        );
        let (name, text) = if pipelined {
            (
                format!("pipelined-{at}.sql"),
                format!("\\startpipeline\n{transaction}\\endpipeline\n"),
            )
        } else {
            (format!("read-{at}.sql"), transaction)
        };
        let file = fixture.dir().join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        scripts.push(file);
        variables.extend([
            format!("a{at}={}", target.account),
            format!("c{at}={}", target.campaign),
        ]);
    }
    Ok(pgbench.with(scripts, variables))
}

/// Checks by its plan that the statement reads one campaign by its key.
fn verify(fixture: &Fixture, statement: &str) -> Result<()> {
    let Some(target) = targets().into_iter().next() else {
        bail!("there is nothing to read");
    };
    let literal = statement
        .replace("$1", &format!("'{}'", target.account))
        .replace("$2", &format!("'{}'", target.campaign))
        .replace("$3", "1");
    let mut client = connect(&fixture.database())?;
    let mut explain = || -> Result<String, postgres::Error> {
        let mut transaction = client.transaction()?;
        transaction.batch_execute(&format!(
            "SET LOCAL ROLE recado_tenant; SET LOCAL app.account_id = '{}'",
            target.account
        ))?;
        let lines = transaction.query(&format!("EXPLAIN {literal}"), &[])?;
        lines.iter().map(|line| line.try_get::<_, String>(0)).collect()
    };
    let plan = explain().with_context(|| format!("cannot explain {statement}"))?;
    // Two indexes begin with the key; either one is accepted.
    if plan.contains("Index Cond: ((account_id = ") && plan.contains(" AND (id = ") {
        Ok(())
    } else {
        bail!("this is not the read of one campaign: {statement}\n{plan}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_limit_adds_the_costs() {
        let round = Round {
            whole: 10.0,
            handler: 60.0,
            statements: 30.0,
            pipelined: 60.0,
        };
        assert!((round.share_of_limit(round.statements) - 0.5).abs() < 1e-9);
        assert!((round.share_of_limit(round.pipelined) - 1.0 / 3.0).abs() < 1e-9);
    }
}
