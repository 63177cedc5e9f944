//! The share of a read's instructions that verifies the caller. Instructions do not depend on the load of the machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use recado_testkit::process;
use recado_testkit::services::find::on_path;

use super::Options;
use super::fixture::{Fixture, Launch};
use super::results::BenchResult;

/// The functions that a cached token costs: reading it from the request and finding it in the cache.
const FUNCTIONS: [&str; 2] = ["Authenticator::credential", "Authenticator::cached_session"];

const SHARE: &str = "auth: share of instructions for a cached token";
const TARGET: f64 = 3.0;

const REQUESTS: u16 = 1000;

/// Requests of both runs. The difference of the runs excludes one-time work such as gathering random numbers.
const FIRST: u16 = 200;

/// Instructions of one run of the server.
struct Count {
    all: u64,
    verifying: u64,
}

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let (Some(valgrind), Some(annotate)) = (on_path("valgrind"), on_path("callgrind_annotate")) else {
        let share = BenchResult::less(SHARE, f64::NAN, " %", 1).target(TARGET);
        return Ok(vec![share.inconclusive("valgrind is not installed")]);
    };
    let counted = |requests: u16| {
        let file = fixture.dir().join(format!("callgrind.{requests}"));
        let server = fixture.launch(&Launch {
            under: vec![
                valgrind.clone().into(),
                "--tool=callgrind".into(),
                format!("--callgrind-out-file={}", file.display()).into(),
            ],
            ..fixture.routes()
        })?;
        fixture.read(&server, requests.into())?;
        // valgrind writes the counts when the server ends.
        drop(server);
        read(&annotate, &file)
    };
    let (without, with) = (counted(FIRST)?, counted(FIRST + REQUESTS)?);
    let all = with.all.saturating_sub(without.all);
    let verifying = with.verifying.saturating_sub(without.verifying);
    println!("{REQUESTS} reads: {all} instructions, {verifying} of them for the token");
    let share = BenchResult::less(SHARE, percent(verifying, all)?, " %", 1);
    // Without a target: compare it with the result of the last release.
    let each = f64::from(u32::try_from(all / 1000).unwrap_or(u32::MAX)) / f64::from(REQUESTS);
    let each = BenchResult::less("auth: instructions per read", each, " thousand", 1);
    Ok(vec![share.target(TARGET).count(), each])
}

fn percent(part: u64, whole: u64) -> Result<f64> {
    match (u32::try_from(part / 1000), u32::try_from(whole / 1000)) {
        (Ok(part @ 1..), Ok(whole @ 1..)) => Ok(100.0 * f64::from(part) / f64::from(whole)),
        _ => bail!("{part} of {whole} instructions give no percentage"),
    }
}

/// Reads inclusive counts: with everything that the functions call.
fn read(annotate: &Path, file: &Path) -> Result<Count> {
    let mut command = Command::new(annotate);
    command.args(["--inclusive=yes", "--threshold=100", "--show-percs=no"]);
    let text = process::quietly(command.arg(file), "callgrind_annotate")?;
    parse(&text)
}

fn parse(text: &str) -> Result<Count> {
    let number = |line: &str| -> Option<u64> { line.split_whitespace().next()?.replace(',', "").parse().ok() };
    let total = text
        .lines()
        .find(|line| line.contains("PROGRAM TOTALS"))
        .and_then(number);
    let inclusive = |function: &&str| -> u64 {
        let found = text.lines().find(|line| line.contains(function)).and_then(number);
        found.unwrap_or_default()
    };
    match total {
        Some(all) => Ok(Count {
            all,
            verifying: FUNCTIONS.iter().map(inclusive).sum(),
        }),
        None => bail!("callgrind_annotate printed no total"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_counts_are_parsed() {
        let text = "--------\nIr\n--------\n1,234,567 PROGRAM TOTALS\n\n\
            1,000,000  ???:main [/x/recado]\n   12,345  ???:recado_api::web::auth::Authenticator::cached_session [/x]\n\
            \x20     5  ???:recado_api::web::auth::Authenticator::credential [/x]\n";
        let count = parse(text).unwrap();
        assert_eq!((count.all, count.verifying), (1_234_567, 12_350));
        assert!(parse("nothing").is_err());
    }

    #[test]
    fn percent_requires_two_positive_counts() {
        assert!((percent(100_000, 1_000_000).unwrap() - 10.0).abs() < 1e-9);
        assert!(percent(0, 1_000_000).is_err() && percent(1000, 0).is_err());
    }
}
