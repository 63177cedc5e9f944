//! Webhook deliveries to a receiver that answers at once, in times of what they cannot do without; and what is left of
//! that when another account's receiver never answers.

use std::net::TcpListener;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::load::Wrk;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Platform, Sender};
use crate::error::{Context, Result, fail};
use crate::http::Client;
use crate::scratch::{OTHER_LOG, SERVER_LOG};
use crate::services::postgres::connect;
use crate::services::wrk_or_install;
use crate::signals;

/// Events of one round, and how many of them one change made: as many as a turn of a campaign.
const EVENTS: u32 = 20_000;
const TOGETHER: u32 = 25;

/// The longest that a round may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Deliveries a second: the server's, the receiver's alone, and those that the statements alone would take.
struct Round {
    whole: f64,
    receiver: f64,
    statements: Option<f64>,
}

impl Round {
    fn of_the_limit(&self) -> Option<f64> {
        Some(self.whole * (1.0 / self.receiver + 1.0 / self.statements?))
    }
}

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let mut names = accounts().into_iter().skip(6);
    let (quick, hanging) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let platform = Platform::start(fixture, OTHER_LOG)?;
    let server = platform.serve(fixture, SERVER_LOG)?;
    let receiver = Client::new(&platform.receiver, Vec::new());
    let sender = Sender::new(fixture, &server, &quick)?;
    endpoint(&sender, &format!("{}/quick", platform.receiver))?;
    let wrk = Wrk::posting(wrk_or_install()?, fixture.dir(), "/alone", &body(&quick))?;
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let receiver_alone = wrk.run(&platform.receiver, options.seconds)?;
        receiver.post("/_sim/reset", &json!({}))?;
        let before = Statements::so_far(fixture)?;
        let whole = delivered(fixture, &receiver, &quick)?;
        let round = Round {
            whole,
            receiver: receiver_alone,
            statements: Statements::so_far(fixture)?
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
    let hung = beside_a_hanging_one(fixture, &server.base, &receiver, [&quick, &hanging], options)?;
    Ok(results(&rounds, &hung))
}

fn results(rounds: &[Round], hung: &[f64]) -> Vec<BenchResult> {
    let median = |of: fn(&Round) -> f64| median_and_spread(&rounds.iter().map(of).collect::<Vec<_>>()).0;
    let shares: Vec<f64> = rounds.iter().filter_map(Round::of_the_limit).collect();
    let mut results = Vec::new();
    if !shares.is_empty() {
        let (share, spread) = median_and_spread(&shares);
        let result = BenchResult::more("webhooks: share of the limit", share, "", 2).spread(spread);
        results.push(result.floor(0.45).target(0.70));
    }
    let whole = median(|round| round.whole);
    results.push(BenchResult::more("webhooks: deliveries", whole, "/s", 0));
    results.push(BenchResult::more(
        "webhooks: the receiver alone",
        median(|round| round.receiver),
        "/s",
        0,
    ));
    results.push(BenchResult::more(
        "webhooks: the statements alone",
        median(|round| round.statements.unwrap_or(f64::NAN)),
        "/s",
        0,
    ));
    let (beside, spread) = median_and_spread(hung);
    let kept = BenchResult::more(
        "webhooks: speed beside a receiver that hangs, to that without",
        beside,
        "",
        2,
    );
    results.push(kept.spread(spread).floor(0.90).target(0.97));
    results
}

/// How fast it is while another account's receiver takes calls and never answers, in times of before; a round of each in
/// turn.
fn beside_a_hanging_one(
    fixture: &Fixture,
    server: &str,
    receiver: &Client,
    [quick, hanging]: [&str; 2],
    options: Options,
) -> Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0").context(|| "cannot listen".to_owned())?;
    let address = listener.local_addr().context(|| "cannot listen".to_owned())?;
    spawn(move || {
        // Held, so that nobody hears of an end.
        let _held: Vec<_> = listener.incoming().collect();
    });
    let client = Client::new(server, fixture.headers(hanging)?);
    let body = json!({ "name": "Hanging", "url": format!("http://{address}/"), "events": ["*"], "is_active": false });
    let made = client.post("/api/webhooks", &body)?;
    let id = made
        .body
        .pointer("/data/id")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let path = format!("/api/webhooks/{id}");
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let without = delivered(fixture, receiver, quick)?;
        client.put(&path, &json!({ "is_active": true }))?;
        events(fixture, hanging)?;
        in_line(fixture)?;
        let with = delivered(fixture, receiver, quick)?;
        client.put(&path, &json!({ "is_active": false }))?;
        println!(
            "{number}/{}: {without:.0}/s alone, {with:.0}/s beside one that hangs",
            options.pairs
        );
        rounds.push(with / without);
    }
    Ok(rounds)
}

/// Waits until nothing is left in the outbox: what was in it waits for its endpoint then.
fn in_line(fixture: &Fixture) -> Result<()> {
    let mut client = connect(&fixture.database())?;
    let began = Instant::now();
    loop {
        let row = client.query_one("SELECT NOT EXISTS (SELECT FROM outbox_events)", &[]);
        let empty = row.and_then(|row| row.try_get(0));
        if empty.context(|| "cannot look into the outbox".to_owned())? {
            return Ok(());
        }
        if began.elapsed() > PATIENCE || signals::received() {
            return fail("the outbox is never empty");
        }
        sleep(Duration::from_millis(50));
    }
}

fn endpoint(sender: &Sender, url: &str) -> Result<()> {
    let body = json!({ "name": "Bench", "url": url, "events": ["*"] });
    let made = sender.client.post("/api/webhooks", &body)?;
    if made.status == 201 {
        return Ok(());
    }
    fail(format!("no endpoint was made: {}", made.body))
}

/// A delivery as the server writes it.
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

/// Leaves a round of events behind, as changes do.
fn events(fixture: &Fixture, account: &str) -> Result<()> {
    let mut client = connect(&fixture.database())?;
    let sql = format!(
        "INSERT INTO outbox_events (account_id, payload)
         SELECT '{account}', jsonb_build_object('kind', 'webhook', 'type', 'message.sent', 'items', items)
         FROM generate_series(1, {}) CROSS JOIN (SELECT jsonb_agg('{}'::jsonb) AS items FROM generate_series(1, {TOGETHER})) i",
        EVENTS / TOGETHER,
        item("n"),
    );
    client
        .batch_execute(&sql)
        .context(|| "cannot leave events behind".to_owned())
}

/// Deliveries a second, from the moment that the events are there to the last delivery.
fn delivered(fixture: &Fixture, receiver: &Client, account: &str) -> Result<f64> {
    receiver.post("/_sim/reset", &json!({}))?;
    let began = Instant::now();
    events(fixture, account)?;
    loop {
        let count = receiver.get("/_sim/count")?.body;
        let count = count.get("count").and_then(Value::as_u64).unwrap_or_default();
        if count >= u64::from(EVENTS) {
            return Ok(f64::from(EVENTS) / began.elapsed().as_secs_f64());
        }
        if began.elapsed() > PATIENCE || signals::received() {
            return fail(format!("only {count} of {EVENTS} deliveries arrived"));
        }
        sleep(Duration::from_millis(20));
    }
}

/// How long the database has worked on statements, in seconds, where it says so.
struct Statements(Option<f64>);

impl Statements {
    fn so_far(fixture: &Fixture) -> Result<Self> {
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
        Ok(Self(Some(
            row.context(|| "cannot read the statements' time".to_owned())?,
        )))
    }

    fn since(self, before: Self) -> Option<f64> {
        Some(self.0? - before.0?)
    }
}
