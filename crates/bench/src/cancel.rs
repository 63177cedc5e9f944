//! Cancel of a campaign of ten million messages, compared with one of a thousand. SQL makes the large one by its
//! counters: a cancel reads these and the sends of the latest claim, fifty of which are in flight.

use anyhow::{Context, Result, bail};
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::sending::{Sender, WhatsappSimulator, create_contacts, create_frozen_run};
use super::times::Latencies;

const SENDS: u32 = 1000;
const LARGE: u32 = 10_000_000;
const IN_FLIGHT: u32 = 50;
const WARM_UP: usize = 3;
const MEASURED: usize = 30;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().nth(13).unwrap_or_default();
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    sender.connect_number("106540352242929", None)?;
    create_contacts(fixture, &account, SENDS)?;
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + MEASURED {
        for (size, times) in [(SENDS, &mut small), (LARGE, &mut large)] {
            let campaign = create_frozen_run(fixture, &account, true)?;
            put_in_flight(fixture, &account, &campaign, size - SENDS)?;
            let elapsed = sender.cancel(&campaign)?;
            if round >= WARM_UP {
                times.push(elapsed);
            }
        }
        if signals::received() {
            bail!("interrupted");
        }
    }
    let (small, large) = (Latencies::of(&small)?, Latencies::of(&large)?);
    Ok(vec![
        BenchResult::less(
            "cancel: p50 of a campaign of 10,000,000 / of 1,000",
            large.p50() / small.p50(),
            "",
            2,
        )
        .target(1.5),
        BenchResult::less("cancel: p99 of a campaign of 10,000,000", large.p99(), " ms", 1).target(300.0),
    ])
}

/// Stores a claim of all sends, puts some of them in flight, and adds `more` pending messages to the counters.
fn put_in_flight(fixture: &Fixture, account: &str, campaign: &str, more: u32) -> Result<()> {
    let key = format!("account_id = '{account}' AND campaign_id = '{campaign}'");
    let sends = format!(
        "{key} AND id BETWEEN (SELECT first_id(frozen_at) FROM campaigns WHERE id = '{campaign}')
           AND (SELECT last_id(frozen_at) FROM campaigns WHERE id = '{campaign}')"
    );
    let sql = format!(
        "INSERT INTO campaign_claims (account_id, campaign_id, send_ids)
           SELECT '{account}', '{campaign}', array_agg(id) FROM campaign_sends WHERE {sends};
         UPDATE campaign_sends SET started_at = now()
           WHERE {sends} AND id IN (SELECT id FROM campaign_sends WHERE {sends} ORDER BY id LIMIT {IN_FLIGHT});
         UPDATE campaign_counter_slots SET total = total + {more}, pending = pending + {more} WHERE {key};
         UPDATE message_usage_slots SET reserved = reserved + {more} WHERE account_id = '{account}' AND slot = 0"
    );
    connect(&fixture.database())?
        .batch_execute(&sql)
        .context("cannot put sends in flight")
}
