//! Whether sending goes on as it began while somebody holds an old snapshot: for ten minutes no version of a row that was
//! changed meanwhile can be removed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::sending::{Platform, Sender, frozen, people};
use crate::error::{Context, Result, fail};
use crate::scratch::{OTHER_LOG, SERVER_LOG};
use crate::services::postgres::connect;
use crate::signals;

/// More than can be sent meanwhile.
const CONTACTS: u32 = 10_000_000;

/// How long the snapshot is held before it is looked again.
const HELD: Duration = Duration::from_secs(10 * 60);

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().nth(11).unwrap_or_default();
    let platform = Platform::start(fixture, OTHER_LOG)?;
    let server = platform.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    sender.connect_number("106540352242928", None)?;
    println!("{CONTACTS} contacts");
    people(fixture, &account, CONTACTS)?;
    let mut holder = connect(&fixture.database())?;
    let campaign = frozen(fixture, &account, false)?;
    let patience = Instant::now() + MINUTE;
    while platform.accepted()? == 0 {
        if Instant::now() > patience || signals::received() {
            return fail("no message left");
        }
        sleep(Duration::from_millis(100));
    }
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM accounts")
        .context(|| "cannot hold a snapshot".to_owned())?;
    let began = Instant::now();
    let mut rates = Vec::new();
    while began.elapsed() < HELD + MINUTE {
        let (at, before) = (Instant::now(), platform.accepted()?);
        sleep(MINUTE);
        if signals::received() {
            return fail("stopped");
        }
        let rate = f64::from(platform.accepted()? - before) / at.elapsed().as_secs_f64();
        println!("minute {}: {rate:.0}/s", rates.len() + 1);
        rates.push(rate);
    }
    drop(holder);
    if sender.left(&campaign)? >= f64::from(CONTACTS) {
        return fail("everything was sent before the end could be measured: this machine is faster than this bench");
    }
    let (first, last) = (rates.first(), rates.last());
    let (first, last) = (first.copied().unwrap_or(f64::NAN), last.copied().unwrap_or(f64::NAN));
    Ok(vec![
        BenchResult::more(
            "snapshot: speed after ten minutes of it, to that of the first",
            last / first,
            "",
            2,
        )
        .floor(0.85)
        .target(0.97),
        BenchResult::more("snapshot: messages a second in the first minute", first, "", 0),
    ])
}
