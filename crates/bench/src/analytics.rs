//! Latency of reports and exports of a large account compared with an account with 100,000 messages.
//!
//! Both share one database. Their requests alternate, one at a time: the result is how much more rows slow down a
//! response.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::large_account::LargeAccount;
use recado_testkit::services::postgres::connect;

use super::Options;
use super::data;
use super::fixture::{Fixture, Server, port};
use super::results::BenchResult;
use super::times::{Latencies, MEASURED, alternately, timed};

/// Messages of the small account, and default of the large account.
const FEW: u64 = 100_000;
const MANY: u64 = 1_000_000;
const MESSAGES_VARIABLE: &str = "RECADO_BENCH_MESSAGES";

/// Number of calls over which buffers are counted.
const CALLS: usize = 10;

/// How long an export is read slowly, at a kilobyte per second.
const SLOW_READ: Duration = Duration::from_secs(6);

const REPORTS: &[&str] = &[
    "/api/analytics",
    "/api/analytics/messages?period=90d&tz=Asia/Kathmandu",
    "/api/analytics/campaigns?period=90d",
    "/api/analytics/heatmap?period=90d&tz=America/Sao_Paulo",
    "/api/analytics/rfm",
    "/api/analytics/revenue?period=90d&tz=America/Sao_Paulo",
    "/api/analytics/ecommerce?period=90d&tz=America/Sao_Paulo",
    "/api/analytics/automations?period=90d",
    "/api/analytics/metrics",
    "/api/analytics/metrics/metrica_1?period=90d&tz=America/Sao_Paulo",
    "/api/analytics/metrics/metrica_1/top-contacts?limit=50",
    "/api/analytics/metrics/metrica_1/activity",
];
const EXPORT: &str = "/api/analytics/export?type=contacts";

/// The aggregate that the rollups replace: the same days, computed from the messages.
const RAW: &str = "
    SELECT (created_at AT TIME ZONE 'UTC')::date, status, count(*) FROM (
      SELECT created_at, status FROM messages WHERE account_id = $1::text::uuid AND created_at >= now() - interval '30 days'
      UNION ALL SELECT created_at, status FROM campaign_sends
      WHERE account_id = $1::text::uuid AND created_at >= now() - interval '30 days') m
    GROUP BY 1, 2";

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let many = match std::env::var(MESSAGES_VARIABLE) {
        Ok(number) => number
            .parse()
            .with_context(|| format!("{MESSAGES_VARIABLE}={number}"))?,
        Err(_) => MANY,
    };
    let accounts = data::accounts();
    let [few_account, many_account, ..] = accounts.as_slice() else {
        bail!("there are no accounts");
    };
    let database = fixture.database();
    for (account, messages) in [(few_account, FEW), (many_account, many)] {
        println!("an account with {messages} messages");
        let large = LargeAccount {
            database: &database,
            account,
            messages,
            recado: fixture.program("recado"),
        };
        large.fill()?;
    }
    let server = fixture.serve_routes(&database)?;
    let few = Client::new(&server.base, fixture.headers(few_account)?);
    let large = Client::new(&server.base, fixture.headers(many_account)?);
    let mut results = reports(fixture, &few, &large, many)?;
    results.push(raw(&database, many_account, &large)?);
    results.extend(exports(fixture, &server, many_account)?);
    Ok(results)
}

fn reports(fixture: &Fixture, few: &Client, many: &Client, messages: u64) -> Result<Vec<BenchResult>> {
    let (mut worst, mut slowest, mut most_buffers) = (0.0_f64, 0.0_f64, 0.0_f64);
    for path in REPORTS {
        let (small, large) = alternately((few, path), (many, path))?;
        let ratio = large.p50() / small.p50();
        let buffers = buffers(fixture, many, path)?;
        println!(
            "{path}: p50 {:.2} ms, {ratio:.2} times {FEW}; p95 {:.2} ms; {buffers:.0} buffers a call, {:.0} of {FEW}",
            large.p50(),
            large.p95(),
            self::buffers(fixture, few, path)?
        );
        worst = worst.max(ratio);
        slowest = slowest.max(large.p95());
        most_buffers = most_buffers.max(buffers);
    }
    let Some(target) = data::targets().into_iter().next() else {
        bail!("there is nothing to read");
    };
    let path = format!("/api/campaigns/{}", target.campaign);
    let (read, _) = alternately((few, &path), (few, &path))?;
    let mut results = vec![
        BenchResult::less(
            format!("analytics: worst report p50 at {messages} messages / {FEW}"),
            worst,
            "",
            2,
        )
        .target(1.1),
        BenchResult::less(
            "analytics: p95 of the slowest report / campaign read",
            slowest / read.p95(),
            "",
            1,
        )
        .target(5.0),
    ];
    if fixture.cluster.has_statement_statistics() {
        let name = "analytics: most buffers per call at the large account";
        results.push(BenchResult::less(name, most_buffers, "", 0).target(300.0).count());
    }
    Ok(results)
}

/// Buffers per call of the most expensive statement of a report, over `CALLS` calls of an account.
fn buffers(fixture: &Fixture, client: &Client, path: &str) -> Result<f64> {
    if !fixture.cluster.has_statement_statistics() {
        return Ok(f64::NAN);
    }
    connect(&fixture.database())?
        .batch_execute("SELECT pg_stat_statements_reset()")
        .context("cannot count statements")?;
    for _ in 0..CALLS {
        timed(client, path)?;
    }
    read_buffers(&fixture.database())
}

/// Reads the buffers per call of the most expensive report statement since the last reset.
fn read_buffers(database: &str) -> Result<f64> {
    let row = connect(database)?.query_one(
        "SELECT coalesce(max((shared_blks_hit + shared_blks_read)::float8 / calls), 0) FROM pg_stat_statements
         WHERE query LIKE '%AS totals%' OR query LIKE '%rfm_calculations%'",
        &[],
    );
    let row = row.context("cannot count buffers")?;
    row.try_get(0).context("cannot count buffers")
}

fn raw(database: &str, account: &str, client: &Client) -> Result<BenchResult> {
    let mut connection = connect(database)?;
    let mut raw = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        connection.query(RAW, &[&account]).context("cannot count messages")?;
        raw.push(began.elapsed());
    }
    let mut rolled = Vec::new();
    for _ in 0..MEASURED {
        rolled.push(timed(client, "/api/analytics/messages?period=30d")?);
    }
    let (raw, rolled) = (Latencies::of(&raw)?.p50(), Latencies::of(&rolled)?.p50());
    println!("30 days of messages: {raw:.1} ms from the messages themselves, {rolled:.2} ms by the report");
    Ok(BenchResult::more("analytics: raw aggregate / report of 30 days", raw / rolled, "", 0).target(1000.0))
}

/// A response that is read from the socket directly.
struct RawResponse {
    stream: TcpStream,
    began: Instant,
}

impl RawResponse {
    fn request(fixture: &Fixture, server: &Server, account: &str, path: &str) -> Result<Self> {
        let began = Instant::now();
        let mut head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for (name, value) in fixture.headers(account)? {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let connect = || -> std::io::Result<TcpStream> {
            let mut stream = TcpStream::connect(("127.0.0.1", port(&server.base).unwrap_or_default()))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(format!("{head}\r\n").as_bytes())?;
            Ok(stream)
        };
        let stream = connect().with_context(|| format!("cannot request {path}"))?;
        Ok(Self { stream, began })
    }

    /// The time until the first byte, and until the end.
    fn read(mut self) -> Result<(Duration, Duration)> {
        let mut buffer = vec![0; 64 * 1024];
        let mut read = |stream: &mut TcpStream| stream.read(&mut buffer).context("the response was incomplete");
        read(&mut self.stream)?;
        let first = self.began.elapsed();
        while read(&mut self.stream)? > 0 {}
        Ok((first, self.began.elapsed()))
    }
}

fn exports(fixture: &Fixture, server: &Server, account: &str) -> Result<Vec<BenchResult>> {
    let mut read = Vec::new();
    for _ in 0..MEASURED {
        read.push(
            RawResponse::request(fixture, server, account, "/api/campaigns?limit=1")?
                .read()?
                .1,
        );
    }
    for _ in 0..3 {
        RawResponse::request(fixture, server, account, EXPORT)?.read()?;
    }
    let before = memory(server, "VmRSS:")?;
    // Resets the peak (VmHWM).
    fs::write(format!("/proc/{}/clear_refs", server.process.id()), "5").context("cannot reset the peak")?;
    let (mut first, mut whole, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..20 {
        let (to_first, to_end) = RawResponse::request(fixture, server, account, EXPORT)?.read()?;
        first.push(to_first);
        whole.push(to_end);
        copied.push(copy(&fixture.database(), account)?);
    }
    let increase = memory(server, "VmHWM:")?.saturating_sub(before);
    let held = transactions_of_a_slow_reader(fixture, server, account)?;
    let (first, whole, copied) = (
        Latencies::of(&first)?.p50(),
        Latencies::of(&whole)?.p50(),
        Latencies::of(&copied)?.p50(),
    );
    println!(
        "10,000 contacts: {whole:.1} ms, COPY {copied:.1} ms; the first byte after {first:.1} ms; {increase} KiB more"
    );
    let mebibytes = f64::from(u32::try_from(increase).unwrap_or(u32::MAX)) / 1024.0;
    Ok(vec![
        BenchResult::less("analytics: peak memory increase of an export", mebibytes, " MiB", 1)
            .count()
            .target(2.0),
        BenchResult::more("analytics: export throughput / COPY to a client", copied / whole, "", 2).target(0.70),
        BenchResult::less(
            "analytics: p50 of an export's first byte / list of one campaign",
            first / Latencies::of(&read)?.p50(),
            "",
            1,
        )
        .target(5.0),
        BenchResult::less("analytics: transactions held by a slow export", held, "", 0)
            .count()
            .target(0.0),
    ])
}

/// The time to copy the same records to a client with `COPY`, on an open connection.
fn copy(database: &str, account: &str) -> Result<Duration> {
    let mut client = connect(database)?;
    let began = Instant::now();
    let statement = format!(
        "COPY (SELECT name, phone, email, created_at FROM contacts WHERE account_id = '{account}' AND deleted_at IS NULL
         ORDER BY id DESC LIMIT 10000) TO STDOUT (FORMAT csv)"
    );
    let mut reader = client.copy_out(&statement).context("cannot copy")?;
    std::io::copy(&mut reader, &mut std::io::sink()).context("cannot copy")?;
    Ok(began.elapsed())
}

/// Maximum number of transactions older than a second while a client reads an export at a kilobyte per second.
fn transactions_of_a_slow_reader(fixture: &Fixture, server: &Server, account: &str) -> Result<f64> {
    let mut response = RawResponse::request(fixture, server, account, EXPORT)?;
    let mut client = connect(&fixture.database())?;
    let (mut buffer, mut held) = ([0; 256], 0_i64);
    while response.began.elapsed() < SLOW_READ {
        response
            .stream
            .read_exact(&mut buffer)
            .context("the export was incomplete")?;
        sleep(Duration::from_millis(250));
        let row = client.query_one(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'recado tenant'
             AND now() - xact_start > interval '1 second'",
            &[],
        );
        let row = row.context("cannot read pg_stat_activity")?;
        held = held.max(row.try_get(0).context("cannot read pg_stat_activity")?);
    }
    Ok(f64::from(u32::try_from(held).unwrap_or(u32::MAX)))
}

fn memory(server: &Server, line: &str) -> Result<u64> {
    let path = format!("/proc/{}/status", server.process.id());
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    match found.map(|text| text.trim().trim_end_matches(" kB").parse()) {
        Some(Ok(kibibytes)) => Ok(kibibytes),
        _ => bail!("{path} has no {line}"),
    }
}
