//! The database's work to freeze a large audience, compared with a plain `INSERT ... SELECT` of as many rows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postgres::Client;
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Sender, WhatsappSimulator, create_contacts, create_frozen_run};

const CONTACTS: u32 = 200_000;
const NUMBER: &str = "106540352242927";

/// Time limit for the last row.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    if !fixture.cluster.has_statement_statistics() {
        println!("this PostgreSQL does not count statements (pg_stat_statements is not installed)");
        return Ok(Vec::new());
    }
    // No other bench sends from this account, so its number stays connected.
    let account = accounts().into_iter().nth(10).unwrap_or_default();
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    // One message per second, so that sending does not slow down the creation of rows.
    sender.connect_number(NUMBER, Some(1))?;
    create_contacts(fixture, &account, CONTACTS)?;
    let mut client = connect(&fixture.database())?;
    let mut shares = Vec::new();
    for number in 1..=options.pairs {
        let freeze = freeze_time(&mut client, &sender)?;
        let plain = timed(&mut client, |_| create_frozen_run(fixture, &account, true).map(drop))?;
        println!(
            "{number}/{}: {freeze:.2} s; INSERT ... SELECT {plain:.2} s",
            options.pairs
        );
        shares.push(plain / freeze);
    }
    let (share, spread) = median_and_spread(&shares);
    Ok(vec![
        BenchResult::more("audience: row throughput / INSERT ... SELECT", share, "", 2)
            .spread(spread)
            .target(0.90),
    ])
}

/// Seconds of PostgreSQL's work for a campaign to all contacts, until its last send row exists.
fn freeze_time(client: &mut Client, sender: &Sender) -> Result<f64> {
    let campaign = sender.campaign()?;
    let took = timed(client, |client| {
        sender.begin(&campaign)?;
        let began = Instant::now();
        while !is_frozen(client, &campaign)? {
            if began.elapsed() > FREEZE_TIMEOUT || signals::received() {
                bail!("the audience was not frozen in time");
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    })?;
    sender.cancel(&campaign)?;
    Ok(took)
}

/// Whether all send rows exist. The first send rows and the batches of the other recipients commit together.
fn is_frozen(client: &mut Client, campaign: &str) -> Result<bool> {
    let row = client.query_one(
        "SELECT EXISTS (SELECT 1 FROM campaign_sends WHERE campaign_id = $1::text::uuid LIMIT 1)
           AND NOT EXISTS (SELECT 1 FROM campaign_recipient_batches WHERE campaign_id = $1::text::uuid)",
        &[&campaign],
    );
    row.and_then(|row| row.try_get(0)).context("cannot read the audience")
}

/// Seconds that PostgreSQL spends on statements that insert sends while `work` runs. Deletes the usage of the month
/// first, because the bench exceeds the quota of every plan.
fn timed(client: &mut Client, work: impl FnOnce(&mut Client) -> Result<()>) -> Result<f64> {
    for statement in [
        "DELETE FROM message_usage_slots",
        "VACUUM campaign_sends",
        "SELECT pg_stat_statements_reset()",
    ] {
        client
            .batch_execute(statement)
            .with_context(|| format!("cannot prepare: {statement}"))?;
    }
    work(client)?;
    let row = client.query_one(
        "SELECT coalesce(sum(total_exec_time), 0)::float8 / 1000 FROM pg_stat_statements
         WHERE query LIKE '%INSERT INTO campaign_sends%'",
        &[],
    );
    row.and_then(|row| row.try_get(0))
        .context("cannot read pg_stat_statements")
}
