//! The cost of rollups for a run: its statement with and without the parts that count. At the end the rollups must
//! equal their source rows.

use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::process;
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;

use super::Options;
use super::data::accounts;
use super::dispatch::{CAMPAIGN_TIMEOUT, RECORD_AND_START, message_rate, replay};
use super::fixture::Fixture;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Sender, WhatsappSimulator, create_contacts};

const CONTACTS: u32 = 20_000;
const NUMBERS: [&str; 2] = ["106540352242931", "106540352242932"];

/// Delimiters of the part of the statement that counts.
const COUNTS: [&str; 2] = ["), counted AS (", "), concurrent_runs AS MATERIALIZED ("];

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let without = without_counts(RECORD_AND_START)?;
    let mut accounts = accounts().into_iter().skip(14);
    let (counting, uncounted) = (accounts.next().unwrap_or_default(), accounts.next().unwrap_or_default());
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    for (account, number) in [&counting, &uncounted].into_iter().zip(NUMBERS) {
        create_contacts(fixture, account, CONTACTS)?;
        Sender::new(fixture, &server, account)?.connect_number(number, None)?;
    }
    let sender = Sender::new(fixture, &server, &counting)?;
    // SQL created the contacts without rollups, so rebuild them first.
    process::quietly(&mut task(fixture, "rebuild", &counting), "recado rollups rebuild")?;
    // Give the planner statistics of both accounts before the measurement: the statement is prepared each time.
    replay(fixture, &counting, RECORD_AND_START, CONTACTS)?;
    replay(fixture, &uncounted, &without, CONTACTS)?;
    connect(&fixture.database())?
        .batch_execute("ANALYZE campaign_sends")
        .context("cannot analyze the sends")?;
    sender.send(CAMPAIGN_TIMEOUT)?;
    let (mut runs, mut statements) = (Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let whole = message_rate(fixture, &sender.send(CAMPAIGN_TIMEOUT)?)?;
        let with = replay(fixture, &counting, RECORD_AND_START, CONTACTS)?;
        let alone = replay(fixture, &uncounted, &without, CONTACTS)?;
        println!(
            "{number}/{}: {whole:.0} messages per second; the statement {with:.0}, {alone:.0} without counting",
            options.pairs
        );
        statements.push(with / alone);
        // A run without counting would save the difference of the statements for each message.
        runs.push(1.0 - whole * (1.0 / with - 1.0 / alone));
    }
    let (run, spread) = median_and_spread(&runs);
    let (statement, _) = median_and_spread(&statements);
    let differing = verify(fixture, &counting)?;
    Ok(vec![
        BenchResult::more("rollups: run throughput with rollups / without", run, "", 2)
            .spread(spread)
            .target(0.97),
        BenchResult::more("rollups: statement throughput with rollups / without", statement, "", 2),
        BenchResult::less("rollups: rollups that differ from their source rows", differing, "", 0)
            .count()
            .target(0.0),
    ])
}

/// Removes the part of the statement that counts.
fn without_counts(statement: &str) -> Result<String> {
    let [begin, end] = COUNTS;
    let parts = statement
        .split_once(begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    match parts {
        Some((before, after)) => Ok(format!("{before}{end}{after}")),
        None => bail!("the statement of a run has changed: update COUNTS in bench/rollups.rs"),
    }
}

/// Runs `recado rollups verify`. Returns 1 and prints its output if it finds differences, else 0.
fn verify(fixture: &Fixture, account: &str) -> Result<f64> {
    match process::quietly(&mut task(fixture, "verify", account), "recado rollups verify") {
        Ok(_) => Ok(0.0),
        Err(report) => {
            println!("{report}");
            Ok(1.0)
        }
    }
}

fn task(fixture: &Fixture, name: &str, account: &str) -> Command {
    let mut command = Command::new(fixture.program("recado"));
    command
        .args(["rollups", name, "--account", account])
        .env("DATABASE_URL", fixture.database());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_counts_removes_only_the_counting() {
        let text = without_counts(RECORD_AND_START).unwrap();
        assert!(!text.contains("campaign_counter_slots") && !text.contains("message_usage_slots"));
        assert!(text.contains("sent_messages") && text.contains("concurrent_runs AS MATERIALIZED ("));
        assert!(without_counts("SELECT 1").is_err());
    }
}
