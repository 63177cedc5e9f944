//! Throughput of webhook deliveries to a receiver that responds at once, as a share of the limit; and the throughput
//! while the receiver of another account never responds.

use std::net::TcpListener;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::services::wrk_or_install;
use recado_testkit::signals;
use serde_json::{Value, json};

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::load::Wrk;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Sender, WhatsappSimulator};

/// Events per round, and events per outbox row: as many as a statement of a run appends.
const EVENTS: u32 = 20_000;
const EVENTS_PER_ROW: u32 = 25;

/// Time limit of a round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(180);

/// Deliveries per second: of the server, of the receiver alone, and of the statements alone.
struct Round {
    whole: f64,
    receiver: f64,
    statements: Option<f64>,
}

impl Round {
    fn share_of_limit(&self) -> Option<f64> {
        Some(self.whole * (1.0 / self.receiver + 1.0 / self.statements?))
    }
}

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let mut accounts = accounts().into_iter().skip(6);
    let (quick, hanging) = (accounts.next().unwrap_or_default(), accounts.next().unwrap_or_default());
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let receiver = Client::new(&simulator.receiver, Vec::new());
    let sender = Sender::new(fixture, &server, &quick)?;
    create_endpoint(&sender, &format!("{}/quick", simulator.receiver))?;
    let wrk = Wrk::posting(wrk_or_install()?, fixture.dir(), "/alone", &body(&quick))?;
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let receiver_alone = wrk.run(&simulator.receiver, options.seconds)?;
        receiver.post("/_sim/reset", &json!({}))?;
        let before = Statements::read(fixture)?;
        let whole = delivery_rate(fixture, &receiver, &quick)?;
        let round = Round {
            whole,
            receiver: receiver_alone,
            statements: Statements::read(fixture)?
                .since(before)
                .map(|time| f64::from(EVENTS) / time),
        };
        println!(
            "{number}/{}: {:.0}/s, the receiver alone {:.0}/s, the statements alone {:.0}/s",
            options.pairs,
            round.whole,
            round.receiver,
            round.statements.unwrap_or(f64::NAN)
        );
        rounds.push(round);
    }
    let ratios = with_hanging_receiver(fixture, &server.base, &receiver, [&quick, &hanging], options)?;
    Ok(results(&rounds, &ratios))
}

fn results(rounds: &[Round], hanging_ratios: &[f64]) -> Vec<BenchResult> {
    let median = |of: fn(&Round) -> f64| median_and_spread(&rounds.iter().map(of).collect::<Vec<_>>()).0;
    let shares: Vec<f64> = rounds.iter().filter_map(Round::share_of_limit).collect();
    let mut results = Vec::new();
    let (share, spread) = median_and_spread(&shares);
    let result = BenchResult::more("webhooks: share of the limit", share, "", 2).spread(spread);
    results.push(result.target(0.70));
    let whole = median(|round| round.whole);
    results.push(BenchResult::more("webhooks: delivery throughput", whole, "/s", 0));
    results.push(BenchResult::more(
        "webhooks: receiver throughput",
        median(|round| round.receiver),
        "/s",
        0,
    ));
    results.push(BenchResult::more(
        "webhooks: statements throughput",
        median(|round| round.statements.unwrap_or(f64::NAN)),
        "/s",
        0,
    ));
    let (ratio, spread) = median_and_spread(hanging_ratios);
    let result = BenchResult::more("webhooks: throughput with a hanging receiver / without", ratio, "", 2);
    results.push(result.spread(spread).target(0.97));
    results
}

/// Ratios of the delivery rate while the receiver of another account accepts calls and never responds to the rate
/// without it. The two alternate.
fn with_hanging_receiver(
    fixture: &Fixture,
    server: &str,
    receiver: &Client,
    [quick, hanging]: [&str; 2],
    options: Options,
) -> Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    let address = listener.local_addr().context("cannot listen")?;
    spawn(move || {
        // Keep the connections open: the clients must not see them end.
        let _open: Vec<_> = listener.incoming().collect();
    });
    let client = Client::new(server, fixture.headers(hanging)?);
    let body = json!({ "name": "Hanging", "url": format!("http://{address}/"), "events": ["*"], "is_active": false });
    let created = client.post("/api/webhooks", &body)?;
    let id = created
        .body
        .pointer("/data/id")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let path = format!("/api/webhooks/{id}");
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let without = delivery_rate(fixture, receiver, quick)?;
        client.put(&path, &json!({ "is_active": true }))?;
        append_events(fixture, hanging)?;
        wait_for_empty_outbox(fixture)?;
        let with = delivery_rate(fixture, receiver, quick)?;
        client.put(&path, &json!({ "is_active": false }))?;
        println!(
            "{number}/{}: {without:.0}/s alone, {with:.0}/s with a hanging receiver",
            options.pairs
        );
        rounds.push(with / without);
    }
    Ok(rounds)
}

/// Waits until the relay has moved all outbox events to the queues of their endpoints.
fn wait_for_empty_outbox(fixture: &Fixture) -> Result<()> {
    let mut client = connect(&fixture.database())?;
    let began = Instant::now();
    loop {
        let row = client.query_one("SELECT NOT EXISTS (SELECT FROM outbox_events)", &[]);
        let empty = row.and_then(|row| row.try_get(0));
        if empty.context("cannot read the outbox")? {
            return Ok(());
        }
        if began.elapsed() > ROUND_TIMEOUT || signals::received() {
            bail!("the outbox did not become empty");
        }
        sleep(Duration::from_millis(50));
    }
}

fn create_endpoint(sender: &Sender, url: &str) -> Result<()> {
    let body = json!({ "name": "Bench", "url": url, "events": ["*"] });
    let created = sender.client.post("/api/webhooks", &body)?;
    if created.status == 201 {
        return Ok(());
    }
    bail!("the endpoint was not created: {}", created.body)
}

/// A delivery as the server sends it.
fn body(account: &str) -> String {
    json!({ "id": account, "type": "message.sent", "timestamp": "2026-03-01T12:00:00.000Z", "account_id": account,
        "data": item("n") })
    .to_string()
}

fn item(id: &str) -> Value {
    json!({ "id": id, "campaign_id": "0199f0a2-0000-7000-8000-00000000000a", "conversation_id": null,
        "contact_id": "0199f0a2-0000-7000-8000-000000000002", "wa_message_id": "wamid.HBg", "status": "sent",
        "error_code": null, "error_message": null })
}

/// Appends the events of a round to the outbox, as changes do.
fn append_events(fixture: &Fixture, account: &str) -> Result<()> {
    let mut client = connect(&fixture.database())?;
    let sql = format!(
        "INSERT INTO outbox_events (account_id, payload)
         SELECT '{account}', jsonb_build_object('kind', 'webhook', 'type', 'message.sent', 'items', items)
         FROM generate_series(1, {}) CROSS JOIN (SELECT jsonb_agg('{}'::jsonb) AS items FROM generate_series(1, {EVENTS_PER_ROW})) i",
        EVENTS / EVENTS_PER_ROW,
        item("n"),
    );
    client.batch_execute(&sql).context("cannot append events to the outbox")
}

/// Deliveries per second, from the commit of the events to the last delivery.
fn delivery_rate(fixture: &Fixture, receiver: &Client, account: &str) -> Result<f64> {
    receiver.post("/_sim/reset", &json!({}))?;
    let began = Instant::now();
    append_events(fixture, account)?;
    loop {
        let count = receiver.get("/_sim/count")?.body;
        let count = count.get("count").and_then(Value::as_u64).unwrap_or_default();
        if count >= u64::from(EVENTS) {
            return Ok(f64::from(EVENTS) / began.elapsed().as_secs_f64());
        }
        if began.elapsed() > ROUND_TIMEOUT || signals::received() {
            bail!("only {count} of {EVENTS} deliveries arrived");
        }
        sleep(Duration::from_millis(20));
    }
}

/// Seconds that the database has spent on the statements. None: `pg_stat_statements` is not available.
struct Statements(Option<f64>);

impl Statements {
    fn read(fixture: &Fixture) -> Result<Self> {
        if !fixture.cluster.has_statement_statistics() {
            return Ok(Self(None));
        }
        let row = connect(&fixture.database())?
            .query_one(
                "SELECT coalesce(sum(total_exec_time), 0)::float8 / 1000 FROM pg_stat_statements
                 WHERE query LIKE '%webhook_%' AND query NOT LIKE '%jsonb_agg%'",
                &[],
            )
            .and_then(|row| row.try_get(0));
        Ok(Self(Some(row.context("cannot read the statements' time")?)))
    }

    fn since(self, before: Self) -> Option<f64> {
        Some(self.0? - before.0?)
    }
}
