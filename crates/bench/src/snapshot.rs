//! Throughput of a run while a transaction holds an old snapshot. For ten minutes PostgreSQL cannot remove the old
//! versions of rows that change meanwhile.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::sending::{Sender, WhatsappSimulator, create_contacts, create_frozen_run};

/// More than the server can send during the bench.
const CONTACTS: u32 = 10_000_000;

/// Age of the snapshot before the last measurement.
const SNAPSHOT_AGE: Duration = Duration::from_secs(10 * 60);

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().nth(11).unwrap_or_default();
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    sender.connect_number("106540352242928", None)?;
    println!("{CONTACTS} contacts");
    create_contacts(fixture, &account, CONTACTS)?;
    let mut holder = connect(&fixture.database())?;
    let campaign = create_frozen_run(fixture, &account, false)?;
    let deadline = Instant::now() + MINUTE;
    while simulator.accepted()? == 0 {
        if Instant::now() > deadline || signals::received() {
            bail!("no message was sent within a minute");
        }
        sleep(Duration::from_millis(100));
    }
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM accounts")
        .context("cannot open a snapshot")?;
    let began = Instant::now();
    let mut rates = Vec::new();
    while began.elapsed() < SNAPSHOT_AGE + MINUTE {
        let (at, before) = (Instant::now(), simulator.accepted()?);
        sleep(MINUTE);
        if signals::received() {
            bail!("interrupted");
        }
        let rate = f64::from(simulator.accepted()? - before) / at.elapsed().as_secs_f64();
        println!("minute {}: {rate:.0}/s", rates.len() + 1);
        rates.push(rate);
    }
    drop(holder);
    if sender.processed(&campaign)? >= f64::from(CONTACTS) {
        bail!("everything was sent before the end could be measured: this machine is faster than this bench");
    }
    let (first, last) = (rates.first(), rates.last());
    let (first, last) = (first.copied().unwrap_or(f64::NAN), last.copied().unwrap_or(f64::NAN));
    Ok(vec![
        BenchResult::more("snapshot: throughput in minute 11 / minute 1", last / first, "", 2).target(0.97),
        BenchResult::more("snapshot: messages per second in minute 1", first, "", 0),
    ])
}
