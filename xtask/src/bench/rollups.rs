//! What keeping sums costs those who send: the statement of a run with and without what it counts, and whether the sums
//! are right in the end.

use std::process::Command;

use super::Options;
use super::data::accounts;
use super::dispatch::{PATIENCE, RECORD_AND_START, rate, replayed};
use super::fixture::Fixture;
use super::results::{BenchResult, median_and_spread};
use super::sending::{Platform, Sender, people};
use crate::error::{Context, Result, fail};
use crate::scratch::{OTHER_LOG, SERVER_LOG};
use crate::services::postgres::connect;
use crate::{paths, process};

const CONTACTS: u32 = 20_000;
const NUMBERS: [&str; 2] = ["106540352242931", "106540352242932"];

/// Between these the statement counts.
const COUNTS: [&str; 2] = ["), counted AS (", "), rivals AS MATERIALIZED ("];

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let without = without_counts(RECORD_AND_START)?;
    let mut names = accounts().into_iter().skip(14);
    let (counting, silent) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let platform = Platform::start(fixture, OTHER_LOG)?;
    let server = platform.serve(fixture, SERVER_LOG)?;
    for (account, number) in [&counting, &silent].into_iter().zip(NUMBERS) {
        people(fixture, account, CONTACTS)?;
        Sender::new(fixture, &server, account)?.connect_number(number, None)?;
    }
    let sender = Sender::new(fixture, &server, &counting)?;
    // Contacts and numbers were made by SQL and by a server: counted from here on.
    process::quietly(&mut task(fixture, "rebuild", &counting), "recado rollups rebuild")?;
    // Both accounts are known to the planner before anything is measured: the statement is prepared anew each time.
    replayed(fixture, &counting, RECORD_AND_START, CONTACTS)?;
    replayed(fixture, &silent, &without, CONTACTS)?;
    connect(&fixture.database())?
        .batch_execute("ANALYZE campaign_sends")
        .context(|| "cannot look at the sends".to_owned())?;
    sender.send(PATIENCE)?;
    let (mut runs, mut statements) = (Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let whole = rate(fixture, &sender.send(PATIENCE)?)?;
        let with = replayed(fixture, &counting, RECORD_AND_START, CONTACTS)?;
        let alone = replayed(fixture, &silent, &without, CONTACTS)?;
        println!(
            "{number}/{}: {whole:.0} messages a second; the statement {with:.0}, {alone:.0} without counting",
            options.pairs
        );
        statements.push(with / alone);
        // A run without counting would save for each message what its statement does.
        runs.push(1.0 - whole * (1.0 / with - 1.0 / alone));
    }
    let (run, spread) = median_and_spread(&runs);
    let (statement, _) = median_and_spread(&statements);
    let differing = differences(fixture, &counting)?;
    Ok(vec![
        BenchResult::more("rollups: a run, to one without counting", run, "", 2)
            .spread(spread)
            .floor(0.90)
            .target(0.97),
        BenchResult::more(
            "rollups: statement of a run, to that without counting",
            statement,
            "",
            2,
        ),
        BenchResult::less("rollups: sums that differ from their rows", differing, "", 0)
            .floor(0.0)
            .target(0.0),
    ])
}

/// The statement without what it counts.
fn without_counts(statement: &str) -> Result<String> {
    let [begin, end] = COUNTS;
    let parts = statement
        .split_once(begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    match parts {
        Some((before, after)) => Ok(format!("{before}{end}{after}")),
        None => fail("the statement of a run counts otherwise than it did"),
    }
}

/// None, or one or more: the command names them.
fn differences(fixture: &Fixture, account: &str) -> Result<f64> {
    match process::quietly(&mut task(fixture, "verify", account), "recado rollups verify") {
        Ok(_) => Ok(0.0),
        Err(told) => {
            println!("{told}");
            Ok(1.0)
        }
    }
}

fn task(fixture: &Fixture, name: &str, account: &str) -> Command {
    let mut command = Command::new(paths::released("recado"));
    command
        .args(["rollups", name, "--account", account])
        .env("DATABASE_URL", fixture.database());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_counts_is_left_out() {
        let text = without_counts(RECORD_AND_START).unwrap();
        assert!(!text.contains("campaign_counter_slots") && !text.contains("message_usage_slots"));
        assert!(text.contains("sent_messages") && text.contains("rivals AS MATERIALIZED ("));
        assert!(without_counts("SELECT 1").is_err());
    }
}
