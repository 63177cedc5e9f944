//! A campaign to a million contacts: what memory it takes from its beginning to its end, what it costs a small account
//! that sends ten messages meanwhile, and whether its statistics take longer to read.
//!
//! No plan allows a million messages a month, so that the run is made by hand; the time to the first message is measured
//! with as many as the largest plan allows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Options;
use super::data::accounts;
use super::fixture::{Fixture, Server};
use super::memory;
use super::results::BenchResult;
use super::sending::{Platform, Sender, frozen, people};
use super::times::in_turns;
use crate::error::{Result, fail};
use crate::scratch::{OTHER_LOG, SERVER_LOG};
use crate::signals;

const MILLION: u32 = 1_000_000;

/// The largest and a small audience of which the first message is waited for.
const LARGE: u32 = 200_000;
const SMALL: u32 = 10_000;

const NUMBERS: [&str; 2] = ["106540352242925", "106540352242926"];

/// The longest that each part may take.
const PATIENCE: Duration = Duration::from_secs(1800);

/// A rate is taken over so long.
const WINDOW: Duration = Duration::from_secs(10);

/// Reads whose times are compared.
const READS: usize = 400;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let mut names = accounts().into_iter().skip(3);
    let (large, small) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let platform = Platform::start(fixture, OTHER_LOG)?;
    let server = platform.serve(fixture, SERVER_LOG)?;
    let load_clients = Sender::new(fixture, &server, &large)?;
    let few = Sender::new(fixture, &server, &small)?;
    load_clients.connect_number(NUMBERS[0], None)?;
    few.connect_number(NUMBERS[1], None)?;
    people(fixture, &small, 10)?;
    let mut results = first_messages(fixture, &platform, &load_clients)?;
    println!("a million contacts");
    people(fixture, &large, MILLION)?;
    let campaign = frozen(fixture, &large, false)?;
    results.extend(a_million(&server, &platform, [&load_clients, &few], &campaign)?);
    Ok(results)
}

/// How long the first message of a campaign takes, by the size of its audience.
fn first_messages(fixture: &Fixture, platform: &Platform, sender: &Sender) -> Result<Vec<BenchResult>> {
    let mut times = Vec::new();
    for contacts in [SMALL, LARGE] {
        println!("the first message to {contacts} contacts");
        people(fixture, &sender.account, contacts)?;
        let before = platform.accepted()?;
        let campaign = sender.campaign()?;
        let began = Instant::now();
        sender.begin(&campaign)?;
        while platform.accepted()? == before {
            if began.elapsed() > PATIENCE || signals::received() {
                return fail("no message left");
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
            "million: time to the first of 200,000 messages, in times of 10,000",
            large / small,
            "",
            1,
        )
        .floor(3.0)
        .target(1.3),
        BenchResult::less("million: time to the first of 200,000 messages", large, " s", 2),
    ])
}

fn a_million(
    server: &Server,
    platform: &Platform,
    [load_clients, few]: [&Sender; 2],
    campaign: &str,
) -> Result<Vec<BenchResult>> {
    let alone = Small::measure(few)?;
    let idle = memory::of(server.process.id())?.now;
    let run = Watched { server, platform };
    run.until_share(load_clients, campaign, 0.05)?;
    let (early_rate, early) = (run.rate()?, memory::of(server.process.id())?.now);
    let meanwhile = Small::measure(few)?;
    if load_clients.left(campaign)? >= f64::from(MILLION) {
        return fail("the million was sent before its end could be measured: this machine is faster than this bench");
    }
    run.until_share(load_clients, campaign, 0.9)?;
    let late = memory::of(server.process.id())?.now;
    load_clients.wait_for_end(campaign, PATIENCE)?;
    let peak = memory::of(server.process.id())?.peak;
    let statistics = |id: &str| format!("/api/campaigns/{id}/stats");
    let ten = few.send(PATIENCE)?;
    let (of_ten, of_million) = in_turns(
        (&few.client, &statistics(&ten)),
        (&load_clients.client, &statistics(campaign)),
    )?;
    Ok(vec![
        BenchResult::less("million: memory beyond idle", peak - idle, " MiB", 1)
            .floor(48.0)
            .target(16.0),
        BenchResult::less("million: memory at 90 % in times of that at 5 %", late / early, "", 2)
            .floor(1.10)
            .target(1.02),
        BenchResult::less("million: most memory", peak, " MiB", 1)
            .floor(128.0)
            .target(57.0),
        BenchResult::more("million: messages a second at the beginning", early_rate, "", 0),
        BenchResult::less(
            "million: its statistics, in times of those of ten messages",
            of_million.at(50) / of_ten.at(50),
            "",
            2,
        )
        .floor(1.5)
        .target(1.1),
        BenchResult::less(
            "million: ten messages of another account, in times of alone",
            meanwhile.campaign / alone.campaign,
            "",
            1,
        )
        .floor(4.0)
        .target(2.0),
        BenchResult::less(
            "million: slowest 1 % of its reads, in times of alone",
            meanwhile.read / alone.read,
            "",
            1,
        )
        .floor(3.0)
        .target(1.5),
    ])
}

/// What a small account sees, in seconds.
struct Small {
    campaign: f64,
    /// No more than one in a hundred reads takes longer.
    read: f64,
}

impl Small {
    fn measure(few: &Sender) -> Result<Self> {
        let mut campaigns = Vec::new();
        for number in 0..3 {
            if number > 0 {
                // A recipient is written to once in six seconds, and an account begins five campaigns a minute.
                sleep(Duration::from_secs(15));
            }
            let began = Instant::now();
            few.send(PATIENCE)?;
            campaigns.push(began.elapsed().as_secs_f64());
        }
        campaigns.sort_by(f64::total_cmp);
        let id = few.campaign()?;
        let mut reads = Vec::new();
        for _ in 0..READS {
            let began = Instant::now();
            let reply = few.client.get(&format!("/api/campaigns/{id}"))?;
            if reply.status != 200 {
                return fail(format!("a read answered {}", reply.status));
            }
            reads.push(began.elapsed().as_secs_f64());
        }
        reads.sort_by(f64::total_cmp);
        Ok(Self {
            campaign: campaigns.get(1).copied().unwrap_or(f64::NAN),
            read: reads.get(READS * 99 / 100).copied().unwrap_or(f64::NAN),
        })
    }
}

/// A run under way.
struct Watched<'a> {
    server: &'a Server,
    platform: &'a Platform,
}

impl Watched<'_> {
    fn until_share(&self, sender: &Sender, campaign: &str, share: f64) -> Result<()> {
        let began = Instant::now();
        loop {
            let left = sender.left(campaign)? / f64::from(MILLION);
            if left >= share {
                return Ok(());
            }
            if began.elapsed() > PATIENCE || signals::received() {
                return fail(format!("only {left} of the campaign is sent"));
            }
            println!(
                "{:.0} %, {:.1} MiB",
                left * 100.0,
                memory::of(self.server.process.id())?.now
            );
            sleep(Duration::from_secs(2));
        }
    }

    /// Messages a second, now.
    fn rate(&self) -> Result<f64> {
        let (began, before) = (Instant::now(), self.platform.accepted()?);
        sleep(WINDOW);
        Ok(f64::from(self.platform.accepted()? - before) / began.elapsed().as_secs_f64())
    }
}
