//! The cost of row-level security: the same scripts as the tenant role and as a role that bypasses it.

use std::fs;

use anyhow::{Context, Result, bail};
use recado_testkit::services::postgres::connect;

use super::Options;
use super::data::targets;
use super::fixture::{Fixture, threads_and_connections};
use super::load::Pgbench;
use super::read;
use super::results::{BenchResult, median_and_spread};

const TENANT: &str = "recado_tenant";
const UNBOUND: &str = "bench_unbound";

/// The function that a policy would call for each row.
const SETTING: &str = "current_setting";

/// Ninety days of a rollup, as a report reads them.
const ROLLUP: &str =
    "SELECT date_bin('1 day', bucket_start, '2000-01-01 03:00Z'), sum(sent), sum(delivered), sum(read), sum(failed),
    sum(received) FROM message_rollups
  WHERE account_id = :account AND bucket_minutes = 180 AND bucket_start >= now() - interval '90 days' GROUP BY 1";

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let Some(program) = fixture.cluster.program("pgbench") else {
        bail!("pgbench is needed: install PostgreSQL's contributed programs, or put it into the PATH");
    };
    prepare(fixture)?;
    let (threads, connections) = threads_and_connections();
    let pgbench = Pgbench::new(program, &fixture.database(), connections, threads)?;
    let point = read::scripts(fixture, &pgbench, read::STATEMENT.trim(), false)?;
    let rollup = rollups(fixture, &pgbench)?;
    let mut results = vec![
        compare("isolation: read throughput with RLS / without", &point, options)?.target(0.95),
        compare("isolation: report throughput with RLS / without", &rollup, options)?.target(0.98),
    ];
    let each = f64::from(plans_with_row_filter(fixture)?);
    results.push(
        BenchResult::less(
            "isolation: plans with a filter that reads the account for every row",
            each,
            "",
            0,
        )
        .target(0.0)
        .count(),
    );
    Ok(results)
}

fn prepare(fixture: &Fixture) -> Result<()> {
    let accounts: Vec<String> = targets()
        .iter()
        .map(|target| format!("'{}'::uuid", target.account))
        .collect();
    let sql = format!(
        "DROP ROLE IF EXISTS {UNBOUND};
         CREATE ROLE {UNBOUND} BYPASSRLS;
         GRANT {TENANT} TO {UNBOUND};
         INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, sent, delivered, read, failed, received)
           SELECT a, 180, date_bin('3 hours', now(), '2000-01-01 00:00Z') - n * interval '3 hours', 5, 4, 3, 2, 1
           FROM unnest(ARRAY[{}]) a, generate_series(0, 8 * 365) n ON CONFLICT DO NOTHING;
         VACUUM ANALYZE message_rollups",
        accounts.join(", ")
    );
    let mut client = connect(&fixture.database())?;
    for statement in sql.split(';') {
        client
            .batch_execute(statement)
            .context("cannot prepare roles and rows")?;
    }
    Ok(())
}

/// Scripts that read the rollup for each target.
fn rollups(fixture: &Fixture, pgbench: &Pgbench) -> Result<Pgbench> {
    let (mut scripts, mut variables) = (Vec::new(), Vec::new());
    for (at, target) in targets().iter().enumerate() {
        let file = fixture.dir().join(format!("rollup-{at}.sql"));
        let select = ROLLUP.replace(":account", &format!(":a{at}"));
        let text = format!(
            "BEGIN READ ONLY;\nSET LOCAL app.account_id = '{}';\n{select};\nCOMMIT;\n",
            target.account
        );
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        scripts.push(file);
        variables.push(format!("a{at}={}", target.account));
    }
    Ok(pgbench.with(scripts, variables))
}

fn compare(name: &str, scripts: &Pgbench, options: Options) -> Result<BenchResult> {
    let (bound, unbound) = (scripts.role(TENANT), scripts.role(UNBOUND));
    bound.run(1)?;
    unbound.run(1)?;
    let mut ratios = Vec::new();
    for number in 1..=options.pairs {
        let (with, without) = (bound.run(options.seconds)?, unbound.run(options.seconds)?);
        println!(
            "{name}, {number}/{}: {with:.0}/s, without {without:.0}/s",
            options.pairs
        );
        ratios.push(with / without);
    }
    let (ratio, spread) = median_and_spread(&ratios);
    Ok(BenchResult::more(name, ratio, "", 2).spread(spread))
}

/// The number of plans with a filter that calls `SETTING` for each row.
fn plans_with_row_filter(fixture: &Fixture) -> Result<u32> {
    let Some(target) = targets().into_iter().next() else {
        bail!("there is nothing to read");
    };
    let account = format!("'{}'", target.account);
    let point = read::STATEMENT
        .trim()
        .replace("$1", &account)
        .replace("$2", &format!("'{}'", target.campaign))
        .replace("$3", "1");
    let mut found = 0;
    for statement in [point, ROLLUP.replace(":account", &account)] {
        let mut client = connect(&fixture.database())?;
        let mut explain = || -> Result<Vec<String>, postgres::Error> {
            let mut transaction = client.transaction()?;
            transaction.batch_execute(&format!(
                "SET LOCAL ROLE {TENANT}; SET LOCAL app.account_id = {account}; SET LOCAL enable_seqscan = off"
            ))?;
            let lines = transaction.query(&format!("EXPLAIN {statement}"), &[])?;
            lines.iter().map(|line| line.try_get(0)).collect()
        };
        let plan = explain().context("cannot explain")?;
        if plan.iter().any(|line| filters_each_row(line)) {
            println!("{}", plan.join("\n"));
            found += 1;
        }
    }
    Ok(found)
}

/// Whether a plan line calls `SETTING` per row: a filter does, an index condition and a one-time filter do not.
fn filters_each_row(line: &str) -> bool {
    line.trim_start().starts_with("Filter:") && line.contains(SETTING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_filters_are_evaluated_for_each_row() {
        assert!(filters_each_row(
            "   Filter: (account_id = (NULLIF(current_setting('app.account_id'::text))"
        ));
        assert!(!filters_each_row(
            "   One-Time Filter: ('a' = current_setting('app.account_id'::text))"
        ));
        assert!(!filters_each_row(
            "   Index Cond: (account_id = current_setting('app.account_id'::text))"
        ));
    }
}
