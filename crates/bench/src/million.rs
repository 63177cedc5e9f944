//! A campaign to a million contacts: its memory, its effect on a small account that sends ten messages during the run,
//! and the latency of its statistics.
//!
//! No plan allows a million messages per month, so SQL creates the run. The time to the first message is measured with
//! as many contacts as the largest plan allows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use recado_testkit::memory;
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::signals;

use super::Options;
use super::data::accounts;
use super::fixture::{Fixture, Server, port};
use super::load::Request;
use super::load_clients::LoadClients;
use super::results::BenchResult;
use super::sending::{Sender, WhatsappSimulator, create_contacts, create_frozen_run};
use super::times::alternately;

const MILLION: u32 = 1_000_000;

/// Audiences for which the time to the first message is measured.
const LARGE: u32 = 200_000;
const SMALL: u32 = 10_000;

const NUMBERS: [&str; 2] = ["106540352242925", "106540352242926"];

/// Time limit of each part.
const PART_TIMEOUT: Duration = Duration::from_secs(1800);

/// Duration of a rate measurement.
const WINDOW: Duration = Duration::from_secs(10);

/// The small account's reads: their rate, its duration, and the most in flight at a time.
const READS_PER_SECOND: f64 = 50.0;
const READ_SECONDS: u32 = 20;
const READERS: usize = 8;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let mut names = accounts().into_iter().skip(3);
    let (large, small) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let large_sender = Sender::new(fixture, &server, &large)?;
    let small_sender = Sender::new(fixture, &server, &small)?;
    large_sender.connect_number(NUMBERS[0], None)?;
    small_sender.connect_number(NUMBERS[1], None)?;
    create_contacts(fixture, &small, 10)?;
    let mut results = first_messages(fixture, &simulator, &large_sender)?;
    println!("a million contacts");
    create_contacts(fixture, &large, MILLION)?;
    let campaign = create_frozen_run(fixture, &large, false)?;
    results.extend(million_sends(
        fixture,
        &server,
        &simulator,
        [&large_sender, &small_sender],
        &campaign,
    )?);
    Ok(results)
}

/// Measures the time to the first message of a campaign for two sizes of the audience.
fn first_messages(fixture: &Fixture, simulator: &WhatsappSimulator, sender: &Sender) -> Result<Vec<BenchResult>> {
    let mut times = Vec::new();
    for contacts in [SMALL, LARGE] {
        println!("the first message to {contacts} contacts");
        create_contacts(fixture, &sender.account, contacts)?;
        let before = simulator.accepted()?;
        let campaign = sender.campaign()?;
        let began = Instant::now();
        sender.begin(&campaign)?;
        while simulator.accepted()? == before {
            if began.elapsed() > PART_TIMEOUT || signals::received() {
                bail!("no message was sent in time");
            }
            sleep(Duration::from_millis(5));
        }
        times.push(began.elapsed().as_secs_f64());
        println!("{:.2} s", began.elapsed().as_secs_f64());
        sender.cancel(&campaign)?;
    }
    let (small, large) = (
        times.first().copied().unwrap_or(f64::NAN),
        times.get(1).copied().unwrap_or(f64::NAN),
    );
    Ok(vec![
        BenchResult::less(
            "million: time to first message at 200,000 contacts / 10,000",
            large / small,
            "",
            1,
        )
        .target(1.3),
        BenchResult::less("million: time to first message at 200,000 contacts", large, " s", 2),
    ])
}

fn million_sends(
    fixture: &Fixture,
    server: &Server,
    simulator: &WhatsappSimulator,
    [large_sender, small_sender]: [&Sender; 2],
    campaign: &str,
) -> Result<Vec<BenchResult>> {
    let alone = SmallAccountTimes::measure(fixture, server, small_sender)?;
    let idle = memory::of(server.process.id())?.now;
    let run = ObservedRun { server, simulator };
    run.until_share(large_sender, campaign, 0.05)?;
    let (early_rate, early) = (run.rate()?, memory::of(server.process.id())?.now);
    let during = SmallAccountTimes::measure(fixture, server, small_sender)?;
    if large_sender.processed(campaign)? >= f64::from(MILLION) {
        bail!("the million was sent before its end could be measured: this machine is faster than this bench");
    }
    run.until_share(large_sender, campaign, 0.9)?;
    let late = memory::of(server.process.id())?.now;
    large_sender.wait_for_end(campaign, PART_TIMEOUT)?;
    let peak = memory::of(server.process.id())?.peak;
    let statistics = |id: &str| format!("/api/campaigns/{id}/stats");
    let ten = small_sender.send(PART_TIMEOUT)?;
    let (of_ten, of_million) = alternately(
        (&small_sender.client, &statistics(&ten)),
        (&large_sender.client, &statistics(campaign)),
    )?;
    Ok(vec![
        BenchResult::less("million: peak memory increase", peak - idle, " MiB", 1)
            .count()
            .target(16.0),
        BenchResult::less("million: memory at 90 % progress / 5 %", late / early, "", 2)
            .count()
            .target(1.02),
        BenchResult::less("million: peak memory", peak, " MiB", 1)
            .count()
            .target(57.0),
        BenchResult::more("million: messages per second at 5 % progress", early_rate, "", 0),
        BenchResult::less(
            "million: statistics p50 at 1,000,000 sends / 10",
            of_million.p50() / of_ten.p50(),
            "",
            2,
        )
        .target(1.1),
        BenchResult::less(
            "million: duration of another account's campaign during the run / alone",
            during.campaign / alone.campaign,
            "",
            1,
        )
        .target(2.0),
        BenchResult::less(
            "million: p99 of another account's reads during the run / alone",
            during.read / alone.read,
            "",
            1,
        )
        .target(1.5),
    ])
}

/// Durations that a small account observes.
struct SmallAccountTimes {
    /// Seconds of a campaign.
    campaign: f64,
    /// p99 of a read (open loop), in milliseconds.
    read: f64,
}

impl SmallAccountTimes {
    fn measure(fixture: &Fixture, server: &Server, small_sender: &Sender) -> Result<Self> {
        let mut campaigns = Vec::new();
        for number in 0..3 {
            if number > 0 {
                // A recipient gets one message in six seconds, and an account starts at most five campaigns per minute.
                sleep(Duration::from_secs(15));
            }
            let began = Instant::now();
            small_sender.send(PART_TIMEOUT)?;
            campaigns.push(began.elapsed().as_secs_f64());
        }
        campaigns.sort_by(f64::total_cmp);
        let id = small_sender.campaign()?;
        let read = Request {
            path: format!("/api/campaigns/{id}"),
            headers: fixture.headers(&small_sender.account)?,
            body: None,
        };
        let reads = LoadClients::new(port(&server.base)?, &[read]).at_rate(READERS, READS_PER_SECOND, READ_SECONDS)?;
        Ok(Self {
            campaign: campaigns.get(1).copied().unwrap_or(f64::NAN),
            read: reads.since_due.p99(),
        })
    }
}

/// A run in progress, with its server and simulator.
struct ObservedRun<'a> {
    server: &'a Server,
    simulator: &'a WhatsappSimulator,
}

impl ObservedRun<'_> {
    fn until_share(&self, sender: &Sender, campaign: &str, share: f64) -> Result<()> {
        let began = Instant::now();
        loop {
            let progress = sender.processed(campaign)? / f64::from(MILLION);
            if progress >= share {
                return Ok(());
            }
            if began.elapsed() > PART_TIMEOUT || signals::received() {
                bail!("only {progress} of the campaign is sent");
            }
            println!(
                "{:.0} %, {:.1} MiB",
                progress * 100.0,
                memory::of(self.server.process.id())?.now
            );
            sleep(Duration::from_secs(2));
        }
    }

    /// Messages per second over `WINDOW`.
    fn rate(&self) -> Result<f64> {
        let (began, before) = (Instant::now(), self.simulator.accepted()?);
        sleep(WINDOW);
        Ok(f64::from(self.simulator.accepted()? - before) / began.elapsed().as_secs_f64())
    }
}
