//! The cost of the queues while a transaction holds an old snapshot: pages of a queue's table and indexes that are read
//! for each row, with 200,000 dead rows that PostgreSQL cannot remove, divided by the pages without them.
//!
//! The rows arrive in small transactions, so the workers claim few at a time. A row's pages include its insert and its
//! end, which a snapshot does not change: without low-water marks the ratio is several hundred.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postgres::Client;
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;
use serde_json::json;

use super::Options;
use super::data::accounts;
use super::fixture::{Fixture, Launch};
use super::results::{BenchResult, median_and_spread};
use super::sending::{Sender, WhatsappSimulator};

/// Rows that are inserted and deleted while the snapshot is held.
const DEAD_ROWS: u32 = 200_000;

/// Seconds of a measurement, transactions of each, rows of each transaction, and the pause between two.
const SECONDS: u32 = 20;
const STEPS: u32 = 40;
const STEP_ROWS: u32 = 10;
const STEP_PAUSE: Duration = Duration::from_millis(25);

/// A connection reports its statistics with a delay.
const SETTLE: Duration = Duration::from_secs(3);

const TIMEOUT: Duration = Duration::from_secs(120);

struct Queue {
    name: &'static str,
    table: &'static str,
    /// Inserts `{rows}` due rows for the account `{account}`.
    insert: &'static str,
    /// Inserts and deletes `{rows}` rows.
    dead: &'static str,
    /// The statistic of the table that counts a row when a worker is done with it. Counting the rows themselves would
    /// read all dead ones, and these pages would count.
    done: &'static str,
}

const QUEUES: [Queue; 4] = [
    Queue {
        name: "callbacks",
        table: "whatsapp_callbacks",
        insert: "INSERT INTO whatsapp_callbacks (id, body, due_at)
                 SELECT gen_random_uuid(), '{}', clock_timestamp() FROM generate_series(1, {rows})",
        dead: "INSERT INTO whatsapp_callbacks (id, body, due_at)
                 SELECT gen_random_uuid(), '{}', clock_timestamp() FROM generate_series(1, {rows});
               DELETE FROM whatsapp_callbacks",
        done: "n_tup_del",
    },
    Queue {
        name: "outbox",
        table: "outbox_events",
        insert: "INSERT INTO outbox_events (account_id, payload) SELECT '{account}',
                 jsonb_build_object('kind', 'audit', 'action', 'create', 'entity_type', 'contact')
                 FROM generate_series(1, {rows})",
        dead: "INSERT INTO outbox_events (account_id, payload) SELECT '{account}',
                 jsonb_build_object('kind', 'audit', 'action', 'create', 'entity_type', 'contact')
                 FROM generate_series(1, {rows});
               DELETE FROM outbox_events",
        done: "n_tup_del",
    },
    Queue {
        name: "deliveries",
        table: "webhook_deliveries",
        insert: "WITH v AS (INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
                   SELECT '{account}', overlay(gen_random_uuid()::text PLACING left(first_id(now())::text, 13) FROM 1)::uuid, 'message.sent', '{}', now()
                   FROM generate_series(1, {rows}) RETURNING account_id, id)
                 INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id, next_attempt_at)
                 SELECT v.account_id, v.id, e.id, clock_timestamp() FROM v
                 JOIN webhook_endpoints e ON e.account_id = v.account_id AND e.name = 'Queues'",
        dead: "WITH v AS (INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
                   SELECT '{account}', overlay(gen_random_uuid()::text PLACING left(first_id(now())::text, 13) FROM 1)::uuid, 'message.sent', '{}', now()
                   FROM generate_series(1, {rows}) RETURNING account_id, id)
                 INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id, next_attempt_at)
                 SELECT v.account_id, v.id, e.id, clock_timestamp() FROM v
                 JOIN webhook_endpoints e ON e.account_id = v.account_id AND e.name = 'Queues';
               DELETE FROM webhook_deliveries",
        done: "n_tup_del",
    },
    Queue {
        name: "mail",
        table: "outgoing_mail",
        // The content cannot be opened, so a claimed mail waits for a retry after the measurement.
        insert: "INSERT INTO outgoing_mail (id, account_id, content)
                 SELECT gen_random_uuid(), '{account}', '' FROM generate_series(1, {rows})",
        dead: "INSERT INTO outgoing_mail (id, account_id, content)
                 SELECT gen_random_uuid(), md5((n % 100)::text)::uuid, '' FROM generate_series(1, {rows}) n;
               DELETE FROM outgoing_mail",
        done: "n_tup_upd",
    },
];

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    if !fixture.cluster.has_statement_statistics() {
        bail!("snapshot-queues names readers with pg_stat_statements: install PostgreSQL's contrib modules");
    }
    let account = accounts().into_iter().nth(12).unwrap_or_default();
    let simulator = WhatsappSimulator::start(fixture)?;
    let mut client = connect(&fixture.database())?;
    let server = fixture.launch(&Launch {
        command_line: &["serve"],
        more: vec![
            ("SMTP_URL", "smtp://127.0.0.1:9".to_owned()),
            ("EGRESS_ALLOW_CIDRS", "127.0.0.0/8".to_owned()),
        ],
        log: SERVER_LOG,
        ..fixture.routes()
    })?;
    let sender = Sender::new(fixture, &server, &account)?;
    let endpoint = json!({ "name": "Queues", "url": format!("{}/queues", simulator.receiver), "events": ["*"] });
    sender.post(201, "/api/webhooks", &endpoint)?;
    let mut without = Vec::new();
    for queue in &QUEUES {
        without.push(pages_per_row(&mut client, queue, &account)?);
    }
    let mut holder = connect(&fixture.database())?;
    batch(
        &mut holder,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM accounts",
    )?;
    let mut results = Vec::new();
    for (queue, without) in QUEUES.iter().zip(without) {
        println!("{}: {DEAD_ROWS} dead rows", queue.name);
        batch(
            &mut client,
            &format!("BEGIN; {}; COMMIT", text(queue.dead, DEAD_ROWS, &account)),
        )?;
        sleep(SETTLE);
        let with = pages_per_row(&mut client, queue, &account)?;
        let ratio = with / without;
        println!(
            "{}: {with:.1} pages a row with the snapshot, {without:.1} without",
            queue.name
        );
        results.push(
            BenchResult::less(
                format!(
                    "snapshot-queues: pages per row with a snapshot / without, {}",
                    queue.name
                ),
                ratio,
                "",
                2,
            )
            .target(1.2)
            .count(),
        );
    }
    drop(holder);
    Ok(results)
}

fn text(statement: &str, rows: u32, account: &str) -> String {
    statement
        .replace("{rows}", &rows.to_string())
        .replace("{account}", account)
}

fn batch(client: &mut Client, statement: &str) -> Result<()> {
    client
        .batch_execute(statement)
        .with_context(|| format!("cannot execute {statement}"))
}

fn number(client: &mut Client, query: &str) -> Result<i64> {
    let row = client.query_one(query, &[]).and_then(|row| row.try_get(0));
    row.with_context(|| format!("cannot read {query}"))
}

/// Pages of the table and its indexes that were read so far.
fn pages(client: &mut Client, table: &str) -> Result<f64> {
    let query = format!(
        "SELECT (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::float8
         FROM pg_statio_user_tables WHERE relname = '{table}'"
    );
    batch(client, "SELECT pg_stat_force_next_flush()")?;
    let row = client.query_one(&query, &[]).and_then(|row| row.try_get(0));
    row.with_context(|| format!("cannot read the statistics of {table}"))
}

/// Inserts the rows of a measurement, waits until the server is done with them, and returns the pages of the median
/// second for each row. A full read of the queue, at most one a minute, does not count: it passes all dead rows.
fn pages_per_row(client: &mut Client, queue: &Queue, account: &str) -> Result<f64> {
    let done = format!(
        "SELECT {} FROM pg_stat_user_tables WHERE relname = '{}'",
        queue.done, queue.table
    );
    let done_before = number(client, &done)?;
    batch(client, "SELECT pg_stat_statements_reset()")?;
    let mut seconds = Vec::new();
    for _ in 0..SECONDS {
        let before = pages(client, queue.table)?;
        for _ in 0..STEPS {
            batch(client, &text(queue.insert, STEP_ROWS, account))?;
            sleep(STEP_PAUSE);
        }
        seconds.push((pages(client, queue.table)? - before) / f64::from(STEPS * STEP_ROWS));
    }
    let began = Instant::now();
    while number(client, &done)? < done_before + i64::from(SECONDS * STEPS * STEP_ROWS) {
        if began.elapsed() > TIMEOUT || signals::received() {
            bail!("rows of {} remained in the queue", queue.table);
        }
        sleep(Duration::from_millis(200));
    }
    sleep(SETTLE);
    println!(
        "{}: {:.1} pages a row on average",
        queue.name,
        seconds.iter().sum::<f64>() / f64::from(SECONDS)
    );
    print_readers(client)?;
    Ok(median_and_spread(&seconds).0)
}

/// Prints the statements that read the most pages, of any table.
fn print_readers(client: &mut Client) -> Result<()> {
    let readers = client
        .query(
            "SELECT shared_blks_hit + shared_blks_read AS pages, calls, left(regexp_replace(query, '\\s+', ' ', 'g'), 120)
             FROM pg_stat_statements ORDER BY 1 DESC LIMIT 4",
            &[],
        )
        .context("cannot read the statistics of statements")?;
    for row in readers {
        let (pages, calls, query): (i64, i64, String) = (row.get(0), row.get(1), row.get(2));
        println!("  {pages} pages in {calls} calls: {query}");
    }
    Ok(())
}
