//! Writes the results into `docs/performance.md`, between two markers.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process};

use super::Options;
use super::fixture::{Fixture, threads_and_connections};
use super::results::BenchResult;

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- written by cargo xtask bench -->\n";
const END: &str = "<!-- until here -->\n";

pub(super) struct Run {
    pub(super) names: Vec<&'static str>,
    /// All benches were run: the rows of earlier runs are dropped.
    pub(super) everything: bool,
    pub(super) options: Options,
    pub(super) stolen: u64,
}

/// Replaces the rows of the benches that ran. The other rows stay, with their dates.
pub(super) fn write(results: &[BenchResult], run: &Run, fixture: &Fixture) -> Result<()> {
    let file = paths::root().join(PAGE);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {PAGE}"))?;
    let today = output_line(Command::new("date").arg("+%F"));
    let rows = if run.everything { Vec::new() } else { rows(&text) };
    let page = format!("{}\n{}", table(&merged(rows, results, &today)), closing(run, fixture));
    match replaced(&text, &page) {
        Some(text) => fs::write(&file, text).with_context(|| format!("cannot write {PAGE}")),
        None => bail!("{PAGE} has no markers for the results"),
    }
}

fn closing(run: &Run, fixture: &Fixture) -> String {
    let (threads, connections) = threads_and_connections();
    let Options { seconds, pairs } = run.options;
    let postgres = fixture.cluster.program("postgres").unwrap_or_else(|| "postgres".into());
    let names = if run.everything {
        "everything".to_owned()
    } else {
        run.names.join(", ")
    };
    format!(
        "On {threads} × {}; {}; {}; durable commits; 32 HTTP connections, {connections} to the database. The last run: \
         {names}, {pairs} rounds of {seconds} s; {} % of the processors' time was stolen by other machines.\n",
        processor(),
        output_line(Command::new(postgres).arg("--version")),
        output_line(Command::new("rustc").arg("--version")),
        run.stolen
    )
}

/// A row's cells: the first is its name, the last its date.
type Row = Vec<String>;

/// Reads the rows of the last run from the page.
fn rows(text: &str) -> Vec<Row> {
    let between = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let lines = between.map_or("", |(lines, _)| lines).lines();
    lines
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
        .skip(2)
        .collect()
}

/// Replaces rows by name. A new name is inserted after the last row of the same bench.
fn merged(mut rows: Vec<Row>, results: &[BenchResult], today: &str) -> Vec<Row> {
    fn bench(name: &str) -> &str {
        name.split(':').next().unwrap_or_default()
    }
    for result in results {
        let mut row = result.cells().to_vec();
        row.push(today.to_owned());
        let is_same = |old: &Row| old.first() == Some(&result.name);
        let is_same_bench = |old: &Row| old.first().is_some_and(|name| bench(name) == bench(&result.name));
        if let Some(old) = rows.iter_mut().find(|old| is_same(old)) {
            *old = row;
        } else {
            let index = rows.iter().rposition(is_same_bench).map_or(rows.len(), |last| last + 1);
            rows.insert(index, row);
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let head = ["metric", "result", "floor", "target", "status", "date"].map(str::to_owned);
    let lines = [head.to_vec(), vec!["---".to_owned(); 6]];
    let lines = lines.iter().chain(rows);
    lines.map(|row| format!("| {} |\n", row.join(" | "))).collect()
}

fn replaced(text: &str, page: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{page}\n{END}{after}"))
}

/// The trimmed output of a program, or `unknown` if it fails.
fn output_line(command: &mut Command) -> String {
    process::quietly(command, "a program").map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown processor", |(_, name)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_replaces_only_the_text_between_markers() {
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let once = replaced(&text, "| new |\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n| new |\n\n{END}after\n"));
        assert_eq!(replaced(&once, "| new |\n").unwrap(), once);
        assert_eq!(replaced("no markers", ""), None);
    }

    #[test]
    fn report_keeps_rows_of_other_benches() {
        let old = [
            ["read: a", "1", "", "", "", "yesterday"],
            ["idle: b", "2", "", "", "", "yesterday"],
        ];
        let old: Vec<Row> = old.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let page = replaced(&format!("{BEGIN}{END}"), &format!("{}\nOn a machine.\n", table(&old))).unwrap();
        assert_eq!(rows(&page), old);
        let new = ["read: a", "read: c"].map(|name| BenchResult::more(name, 3.0, "", 0));
        let merged_rows: Vec<String> = merged(old, &new, "today")
            .iter()
            .map(|row| format!("{} {} {}", row[0], row[1], row[5]))
            .collect();
        assert_eq!(
            merged_rows,
            ["read: a 3 today", "read: c 3 today", "idle: b 2 yesterday"]
        );
    }
}
