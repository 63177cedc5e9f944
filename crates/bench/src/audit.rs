//! Latency of the audit log: the first page with its exact total, and a page far behind it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::process;
use recado_testkit::services::postgres::connect;

use super::Options;
use super::data;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::times::alternately;

/// Entries of the small account, and default of the large account.
const FEW: u64 = 100_000;
const MANY: u64 = 1_000_000;
const ENTRIES_VARIABLE: &str = "RECADO_BENCH_ENTRIES";

const FIRST: &str = "/api/audit-logs?page=1";
const FAR: &str = "/api/audit-logs?page=1000";

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let many = match std::env::var(ENTRIES_VARIABLE) {
        Ok(number) => number.parse().with_context(|| format!("{ENTRIES_VARIABLE}={number}"))?,
        Err(_) => MANY,
    };
    let mut accounts = data::accounts().into_iter().skip(20);
    let (Some(few_account), Some(many_account)) = (accounts.next(), accounts.next()) else {
        bail!("there are no accounts");
    };
    for (account, entries) in [(&few_account, FEW), (&many_account, many)] {
        println!("an account with {entries} entries");
        fill(fixture, account, entries)?;
    }
    let server = fixture.launch(&fixture.uncounted()?)?;
    let few = Client::new(&server.base, fixture.headers(&few_account)?);
    let large = Client::new(&server.base, fixture.headers(&many_account)?);
    let (short, long) = alternately((&few, FIRST), (&large, FIRST))?;
    let (first, far) = alternately((&large, FIRST), (&large, FAR))?;
    let total = large.get(FIRST)?.body;
    let total = total.pointer("/data/total").and_then(serde_json::Value::as_u64);
    if total != Some(many) {
        bail!("the log returned a total of {total:?} entries instead of {many}");
    }
    println!(
        "the first page: {:.2} ms of {FEW}, {:.2} ms of {many}; page 1000 {:.2} ms",
        short.p50(),
        long.p50(),
        far.p50()
    );
    Ok(vec![
        BenchResult::less(
            format!("audit: p50 of the first page at {many} entries / {FEW}"),
            long.p50() / short.p50(),
            "",
            2,
        )
        .target(1.1),
        BenchResult::less("audit: p50 of page 1000 / page 1", far.p50() / first.p50(), "", 1).target(3.0),
    ])
}

fn fill(fixture: &Fixture, account: &str, entries: u64) -> Result<()> {
    let sql = format!(
        "INSERT INTO audit_logs (account_id, id, user_id, action, entity_type, entity_id, changes, ip_address, created_at)
         SELECT '{account}', md5('audit' || n)::uuid, md5('user' || n % 20)::uuid,
           (ARRAY['create', 'update', 'delete'])[n % 3 + 1], (ARRAY['campaign', 'contact', 'template', 'tag'])[n % 4 + 1],
           md5('entity' || n)::uuid, '{{\"name\": {{\"from\": \"a\", \"to\": \"b\"}}}}', '127.0.0.1',
           now() - n * interval '20 seconds'
         FROM generate_series(1, {entries}) n"
    );
    let mut client = connect(&fixture.database())?;
    client.batch_execute(&sql).context("cannot fill the log")?;
    let mut rebuild = Command::new(fixture.program("recado"));
    rebuild
        .args(["rollups", "rebuild", "--account", account])
        .env("DATABASE_URL", fixture.database());
    process::quietly(&mut rebuild, "recado rollups rebuild")?;
    client
        .batch_execute("VACUUM ANALYZE audit_logs")
        .context("cannot vacuum")
}
