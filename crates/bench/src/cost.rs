//! The cost of a read in the database: statements and round trips.

use anyhow::{Context, Result, bail};
use recado_testkit::services::postgres::connect;

use super::Options;
use super::fixture::Fixture;
use super::proxy::Proxy;
use super::results::BenchResult;

const WARM_UP: usize = 200;
const REQUESTS: u16 = 2000;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let url = fixture.database();
    let port = fixture.cluster.port();
    let proxy = Proxy::start(port)?;
    let proxied = url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port));
    let server = fixture.serve_routes(&proxied)?;
    fixture.read(&server, WARM_UP)?;
    let (statements, trips) = (statements(fixture)?, proxy.trips());
    fixture.read(&server, REQUESTS.into())?;
    let trips_each = each(proxy.trips() - trips)?;
    let mut results = vec![
        BenchResult::less("cost: database round trips per read", trips_each, "", 1)
            .count()
            .target(1.0),
    ];
    if let (Some(before), Some(after)) = (statements, self::statements(fixture)?) {
        let statements = BenchResult::less("cost: statements per read", each(after - before)?, "", 1);
        results.push(statements.target(4.0).count());
    } else {
        println!("this PostgreSQL does not count statements (pg_stat_statements is not installed)");
    }
    Ok(results)
}

/// Per request, rounded to one decimal: the membership is reloaded now and then.
fn each(count: u64) -> Result<f64> {
    match u32::try_from(count) {
        Ok(count) => Ok((f64::from(count) / f64::from(REQUESTS) * 10.0).round() / 10.0),
        Err(_) => bail!("{count} is too large a count for {REQUESTS} requests"),
    }
}

/// The number of executed statements. None: `pg_stat_statements` is not available.
fn statements(fixture: &Fixture) -> Result<Option<u64>> {
    if !fixture.cluster.has_statement_statistics() {
        return Ok(None);
    }
    let row = connect(&fixture.database())?
        .query_one("SELECT sum(calls)::bigint FROM pg_stat_statements", &[])
        .and_then(|row| row.try_get::<_, i64>(0))
        .context("cannot read pg_stat_statements")?;
    Ok(u64::try_from(row).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_per_request_is_rounded_to_one_decimal() {
        assert_eq!(each(4012).unwrap(), 2.0);
        assert_eq!(each(4200).unwrap(), 2.1);
    }
}
