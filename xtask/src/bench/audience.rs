//! What fixing a large audience costs the database, in times of one plain `INSERT ... SELECT` of as many rows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres::Client;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Platform, Sender, frozen, people};
use crate::error::{Context, Result, fail};
use crate::scratch::{OTHER_LOG, SERVER_LOG};
use crate::services::postgres::connect;
use crate::signals;

const CONTACTS: u32 = 200_000;
const NUMBER: &str = "106540352242927";

/// The longest that the last row is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    if !fixture.cluster.has_statement_statistics() {
        println!("this PostgreSQL does not count statements (pg_stat_statements is not installed)");
        return Ok(Vec::new());
    }
    // Nobody else sends from this one: its number stays.
    let account = accounts().into_iter().nth(10).unwrap_or_default();
    let platform = Platform::start(fixture, OTHER_LOG)?;
    let server = platform.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    // One message a second: sending them takes nothing from the rows that are made.
    sender.connect_number(NUMBER, Some(1))?;
    people(fixture, &account, CONTACTS)?;
    let mut client = connect(&fixture.database())?;
    let mut shares = Vec::new();
    for number in 1..=options.pairs {
        let ours = made_by_us(&mut client, &sender)?;
        let plain = timed(&mut client, |_| frozen(fixture, &account, true).map(drop))?;
        println!(
            "{number}/{}: {ours:.2} s; INSERT ... SELECT {plain:.2} s",
            options.pairs
        );
        shares.push(plain / ours);
    }
    let (share, spread) = median_and_spread(&shares);
    Ok(vec![
        BenchResult::more("audience: rows a second, to INSERT ... SELECT", share, "", 2)
            .spread(spread)
            .floor(0.70)
            .target(0.90),
    ])
}

/// What PostgreSQL works for a campaign to everybody, until the last of its sends is there.
fn made_by_us(client: &mut Client, sender: &Sender) -> Result<f64> {
    let campaign = sender.campaign()?;
    let took = timed(client, |client| {
        sender.begin(&campaign)?;
        let began = Instant::now();
        while !is_made(client, &campaign)? {
            if began.elapsed() > PATIENCE || signals::received() {
                return fail("the audience is not made");
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    })?;
    sender.cancel(&campaign)?;
    Ok(took)
}

/// Whether nothing of its audience is left to be made. Its first sends and the lists of the others come together.
fn is_made(client: &mut Client, campaign: &str) -> Result<bool> {
    let row = client.query_one(
        "SELECT EXISTS (SELECT 1 FROM campaign_sends WHERE campaign_id = $1::text::uuid LIMIT 1)
           AND NOT EXISTS (SELECT 1 FROM campaign_recipient_batches WHERE campaign_id = $1::text::uuid)",
        &[&campaign],
    );
    row.and_then(|row| row.try_get(0))
        .context(|| "cannot look at the audience".to_owned())
}

/// Seconds that PostgreSQL works on statements that make sends meanwhile. What the account used of its month is
/// forgotten first: it is asked for more than a plan allows.
fn timed(client: &mut Client, work: impl FnOnce(&mut Client) -> Result<()>) -> Result<f64> {
    for before in [
        "DELETE FROM message_usage_slots",
        "VACUUM campaign_sends",
        "SELECT pg_stat_statements_reset()",
    ] {
        client
            .batch_execute(before)
            .context(|| format!("cannot begin: {before}"))?;
    }
    work(client)?;
    let row = client.query_one(
        "SELECT coalesce(sum(total_exec_time), 0)::float8 / 1000 FROM pg_stat_statements
         WHERE query LIKE '%INSERT INTO campaign_sends%'",
        &[],
    );
    row.and_then(|row| row.try_get(0))
        .context(|| "cannot read pg_stat_statements".to_owned())
}
