//! Throughput of a campaign as a share of the limit, and its cost in the database.
//!
//! A message needs work in the simulator and in PostgreSQL, on the same processors. With the rate of each part alone,
//! the limit is 1 / (1 / simulator + 1 / statements).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::services::wrk_or_install;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::load::Wrk;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Sender, WhatsappSimulator, create_contacts, create_frozen_run};

const CONTACTS: u32 = 20_000;
const NUMBER: &str = "106540352242923";

/// Sends per statement, as in the server.
const BATCH: usize = 25;

/// The statement that a run executes repeatedly.
pub(super) const RECORD_AND_START: &str = include_str!("../../postgres/src/campaigns/record_and_start.sql");

/// Time limit of a campaign.
pub(super) const CAMPAIGN_TIMEOUT: Duration = Duration::from_secs(180);

/// Messages per second of one round.
struct Round {
    whole: f64,
    simulator: f64,
    statements: f64,
}

impl Round {
    fn share_of_limit(&self) -> f64 {
        self.whole * (1.0 / self.simulator + 1.0 / self.statements)
    }
}

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().nth(1).unwrap_or_default();
    create_contacts(fixture, &account, CONTACTS)?;
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    let number = sender.connect_number(NUMBER, None)?;
    let wrk = Wrk::posting(
        wrk_or_install()?,
        fixture.dir(),
        &format!("/v25.0/{NUMBER}/messages"),
        &message(),
    )?;
    println!("warming up");
    sender.send(CAMPAIGN_TIMEOUT)?;
    wrk.run(&simulator.base, 1)?;
    let mut results = cost(fixture, &sender, &simulator)?;
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let round = Round {
            whole: message_rate(fixture, &sender.send(CAMPAIGN_TIMEOUT)?)?,
            simulator: wrk.run(&simulator.base, options.seconds)?,
            statements: replay(fixture, &account, RECORD_AND_START, CONTACTS)?,
        };
        println!(
            "{number}/{}: {:.0} messages per second; simulator {:.0}; statements {:.0}; {:.2} of the limit",
            options.pairs,
            round.whole,
            round.simulator,
            round.statements,
            round.share_of_limit()
        );
        rounds.push(round);
    }
    sender.disconnect_number(&number)?;
    drop((server, simulator));
    results.extend(speeds(&rounds));
    Ok(results)
}

fn speeds(rounds: &[Round]) -> Vec<BenchResult> {
    let median = |value: &dyn Fn(&Round) -> f64| median_and_spread(&rounds.iter().map(value).collect::<Vec<_>>());
    let (ratio, spread) = median(&Round::share_of_limit);
    let rate = |name: &str, value: &dyn Fn(&Round) -> f64| {
        BenchResult::more(format!("dispatch: {name}"), median(value).0, "/s", 0)
    };
    vec![
        BenchResult::more("dispatch: share of the limit", ratio, "", 2)
            .spread(spread)
            .target(0.75),
        rate("message throughput", &|round| round.whole).target(3000.0),
        rate("simulator throughput", &|round| round.simulator),
        rate("statements throughput", &|round| round.statements),
    ]
}

/// A message as the server sends it.
fn message() -> String {
    serde_json::json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": "5511960000001", "type": "template",
        "biz_opaque_callback_data": "0193a6e2-0000-7000-8000-000000000001",
        "template": { "name": "oferta", "language": { "code": "pt_BR" }, "components": [
            { "type": "body", "parameters": [{ "type": "text", "text": "Contato" }] }] } })
    .to_string()
}

/// Messages per second from the freeze of the audience to the end.
pub(super) fn message_rate(fixture: &Fixture, campaign: &str) -> Result<f64> {
    let row = connect(&fixture.database())?
        .query_one(
            "SELECT (total_recipients / extract(epoch FROM completed_at - executed_at))::float8 FROM campaigns
             WHERE id::text = $1",
            &[&campaign],
        )
        .and_then(|row| row.try_get(0));
    row.context("cannot read the duration of the campaign")
}

/// Cumulative counters of the database.
struct DbCounters {
    statements: Option<f64>,
    wal_bytes: f64,
    updates: f64,
    hot_updates: f64,
}

impl DbCounters {
    fn read(fixture: &Fixture) -> Result<Self> {
        let mut client = connect(&fixture.database())?;
        let mut number = |query: &str| -> Result<f64> {
            let row = client.query_one(query, &[]).and_then(|row| row.try_get::<_, f64>(0));
            row.with_context(|| format!("cannot count: {query}"))
        };
        let statements = match fixture.cluster.has_statement_statistics() {
            true => Some(number("SELECT sum(calls)::float8 FROM pg_stat_statements")?),
            false => None,
        };
        let of_sends = |column: &str| {
            format!("SELECT sum({column})::float8 FROM pg_stat_user_tables WHERE relname LIKE 'campaign\\_sends%'")
        };
        Ok(Self {
            statements,
            wal_bytes: number("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8")?,
            updates: number(&of_sends("n_tup_upd"))?,
            hot_updates: number(&of_sends("n_tup_hot_upd"))?,
        })
    }
}

/// Measures the cost of a campaign in the database, from its freeze to its end.
fn cost(fixture: &Fixture, sender: &Sender, simulator: &WhatsappSimulator) -> Result<Vec<BenchResult>> {
    let mut client = connect(&fixture.database())?;
    let mut setting = |value: &str| {
        client
            .batch_execute(&format!("ALTER SYSTEM SET full_page_writes = {value}"))
            .and_then(|()| client.batch_execute("SELECT pg_reload_conf(); CHECKPOINT"))
            .context("cannot set full_page_writes")
    };
    // The full pages in the WAL depend on the time of the last checkpoint, not on the campaign.
    setting("off")?;
    wait_for_statistics();
    connect(&fixture.database())?.batch_execute("SELECT pg_stat_statements_reset()")?;
    let before = DbCounters::read(fixture)?;
    let accepted = simulator.accepted()?;
    let campaign = sender.campaign()?;
    sender.begin(&campaign)?;
    // Poll the simulator: reading the campaign would add statements.
    let began = Instant::now();
    while simulator.accepted()? < accepted + CONTACTS && began.elapsed() < CAMPAIGN_TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
    }
    sender.wait_for_end(&campaign, CAMPAIGN_TIMEOUT)?;
    let statements = DbCounters::read(fixture)?.statements;
    wait_for_statistics();
    let after = DbCounters::read(fixture)?;
    setting("on")?;
    let messages = f64::from(CONTACTS);
    let mut results = Vec::new();
    if let (Some(before), Some(after)) = (before.statements, statements) {
        let each = (after - before) * 1000.0 / messages;
        let result = BenchResult::less("dispatch: statements per 1,000 messages", each, "", 0);
        results.push(result.target(15.0).count());
    }
    let wal = (after.wal_bytes - before.wal_bytes) / messages;
    results.push(
        BenchResult::less("dispatch: WAL per message", wal, " bytes", 0)
            .count()
            .target(1000.0),
    );
    let hot_updates = (after.hot_updates - before.hot_updates) / (after.updates - before.updates);
    results.push(
        BenchResult::more("dispatch: share of HOT updates", hot_updates, "", 2)
            .count()
            .target(0.95),
    );
    Ok(results)
}

/// PostgreSQL publishes its statistics once a second.
fn wait_for_statistics() {
    std::thread::sleep(Duration::from_millis(2500));
}

/// Messages per second of the statements of a run alone, in the order of a run, without calls to WhatsApp.
pub(super) fn replay(fixture: &Fixture, account: &str, statement: &str, contacts: u32) -> Result<f64> {
    let mut client = connect(&fixture.database())?;
    let campaign = create_frozen_run(fixture, account, true)?;
    let sends = client.query(
        "SELECT id::text FROM campaign_sends WHERE account_id::text = $1 AND campaign_id::text = $2
         ORDER BY (row_number() OVER (ORDER BY contact_id) - 1) / 500, id",
        &[&account, &campaign],
    );
    let sends: Vec<String> = sends
        .context("cannot read the sends")?
        .iter()
        .map(|row| row.get(0))
        .collect();
    let smallest = sends.iter().min().cloned().unwrap_or_default();
    let statement = client
        .prepare(&typed(statement, &smallest))
        .context("cannot prepare the statement of a run")?;
    let (mut last, mut named): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for batch in sends.chunks(BATCH) {
        let next = batch.to_vec();
        let started = client
            .query_one(&statement, &[&account, &campaign, &campaign, &next, &last, &named])
            .and_then(|row| row.try_get::<_, i64>("started"));
        match started {
            Ok(started) if usize::try_from(started) == Ok(batch.len()) => {}
            result => bail!("the statement of a run did not start all sends: {result:?}"),
        }
        named = next.iter().map(|send| format!("wamid.{send}")).collect();
        last = next;
    }
    let took = began.elapsed().as_secs_f64();
    let done = client.batch_execute(&format!(
        "DELETE FROM campaign_queue WHERE campaign_id = '{campaign}';
         UPDATE campaigns SET status = 'cancelled' WHERE id = '{campaign}'"
    ));
    done.context("cannot remove the run")?;
    Ok(f64::from(contacts) / took)
}

/// Changes the statement to take text parameters and to return the number of started sends. `smallest` is the smallest
/// of their ids.
fn typed(statement: &str, smallest: &str) -> String {
    let mut text = statement
        .replace("$9", "false")
        .replace("$8", &format!("'{smallest}'::uuid"))
        .replace("$7", "6000000::bigint")
        .replace("$6", "$6::text[]");
    for parameter in ["$1", "$2", "$3"] {
        text = text.replace(parameter, &format!("{parameter}::text::uuid"));
    }
    for parameter in ["$4", "$5"] {
        text = text.replace(parameter, &format!("{parameter}::text[]::uuid[]"));
    }
    text.replace("ARRAY (SELECT id FROM started) AS", "(SELECT count(*) FROM started) AS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_limit_adds_the_costs() {
        let round = Round {
            whole: 10.0,
            simulator: 60.0,
            statements: 30.0,
        };
        assert!((round.share_of_limit() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn typed_statement_casts_text_parameters() {
        let text = typed(RECORD_AND_START, "0193a6e2-0000-7000-8000-000000000000");
        assert!(text.contains("(SELECT count(*) FROM started) AS started"));
        assert!(text.contains("s.id >= '0193a6e2-0000-7000-8000-000000000000'::uuid"));
        assert!(["$7", "$8", "$9"].iter().all(|parameter| !text.contains(parameter)));
        assert!(text.contains("= $1::text::uuid") && text.contains("$4::text[]::uuid[]"));
    }
}
