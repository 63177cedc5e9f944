//! The recorded results in `docs/performance.md`, between two markers: compared with those of a run, and replaced by
//! them on request.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::process;

use super::Options;
use super::fixture::{Fixture, threads_and_connections};
use super::results::{self, BenchResult};

pub(super) const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- written by cargo xtask bench --write -->\n";
const END: &str = "<!-- until here -->\n";

pub(super) struct Run {
    pub(super) names: Vec<&'static str>,
    /// All benches were run: the rows of earlier runs are dropped.
    pub(super) everything: bool,
    pub(super) options: Options,
    pub(super) stolen_percent: f64,
}

/// The results, and how they differ from the recorded ones. `closing`: also replaces the recorded rows of the benches
/// that ran. The other rows stay, with their dates.
pub(super) fn report(page: &Path, results: &[BenchResult], everything: bool, closing: Option<&str>) -> Result<String> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let recorded = rows(&text);
    let report = format!(
        "{}\n{}",
        results::results_table(results),
        comparison(&recorded, results)
    );
    let Some(closing) = closing else {
        return Ok(report);
    };
    let today = output_line(Command::new("date").arg("+%F"));
    let kept = if everything { Vec::new() } else { recorded };
    match replaced(&text, &format!("{}\n{closing}", table(&merged(kept, results, &today)))) {
        Some(text) => fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))?,
        None => bail!("{} has no markers for the results", page.display()),
    }
    Ok(report)
}

/// A table of the results that have a recorded value. For information: the two runs had different conditions.
fn comparison(recorded: &[Row], results: &[BenchResult]) -> String {
    let number = |cell: &str| cell.split(' ').next()?.parse::<f64>().ok();
    let row = |result: &BenchResult| {
        let old = recorded.iter().find(|row| row.first() == Some(&result.name))?;
        let [name, now, ..] = result.cells();
        let (before, date) = (old.get(1)?, old.last()?);
        let change = (number(&now)? / number(before)? - 1.0) * 100.0;
        let change = if change.is_finite() {
            format!("{change:+.0} %")
        } else {
            String::new()
        };
        Some(vec![name, before.clone(), date.clone(), now, change])
    };
    let rows: Vec<_> = results.iter().filter_map(row).collect();
    results::table(&["metric", "recorded", "date", "now", "change"], &rows)
}

pub(super) fn closing(run: &Run, fixture: &Fixture) -> String {
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
         {names}, {pairs} rounds of {seconds} s; {:.0} % of the processors' time was stolen by other machines.\n",
        processor(),
        output_line(Command::new(postgres).arg("--version")),
        output_line(Command::new("rustc").arg("--version")),
        run.stolen_percent
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
    results::table(&["metric", "value", "target", "target met", "date"], rows)
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
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn report_replaces_only_the_text_between_markers() {
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let once = replaced(&text, "| new |\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n| new |\n\n{END}after\n"));
        assert_eq!(replaced(&once, "| new |\n").unwrap(), once);
        assert_eq!(replaced("no markers", ""), None);
    }

    /// A page with two recorded rows, in a directory of its own.
    fn page() -> (tempfile::TempDir, PathBuf, String) {
        let rows = [
            ["read: a", "1.00 (IQR 0.10)", "≥ 2.00", "no"],
            ["idle: b (MiB)", "2", "", ""],
        ];
        let rows = rows.map(|row| {
            row.iter()
                .chain(&["2026-01-31"])
                .map(|cell| (*cell).to_owned())
                .collect()
        });
        let text = replaced(
            &format!("text\n{BEGIN}{END}text\n"),
            &format!("{}\nold\n", table(&rows)),
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("performance.md");
        fs::write(&file, &text).unwrap();
        (dir, file, text)
    }

    fn found() -> Vec<BenchResult> {
        ["read: a", "read: c"]
            .map(|name| BenchResult::more(name, 3.0, "", 0).target(2.0))
            .to_vec()
    }

    #[test]
    fn report_writes_nothing_unless_asked_to() {
        let (dir, file, text) = page();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        report(&file, &found(), true, None).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn written_report_keeps_rows_of_other_benches() {
        let (_dir, file, _) = page();
        report(&file, &found(), false, Some("On a machine.\n")).unwrap();
        let written = fs::read_to_string(&file).unwrap();
        let cells: Vec<String> = rows(&written).iter().map(|row| row[..4].join(" ")).collect();
        assert_eq!(cells, ["read: a 3 ≥ 2 yes", "read: c 3 ≥ 2 yes", "idle: b (MiB) 2  "]);
        let dates: Vec<bool> = rows(&written).iter().map(|row| row[4] == "2026-01-31").collect();
        assert_eq!(dates, [false, false, true]);
        assert!(written.contains("On a machine.") && !written.contains("old"));
        report(&file, &found(), true, Some("")).unwrap();
        assert_eq!(rows(&fs::read_to_string(&file).unwrap()).len(), 2);
    }

    #[test]
    fn report_compares_with_the_recorded_value() {
        let (_dir, file, _) = page();
        let text = report(&file, &found(), false, None).unwrap();
        let compared = "| read: a | 1.00 (IQR 0.10) | 2026-01-31 | 3 | +200 % |\n";
        assert!(text.ends_with(compared), "{text}");
        assert!(text.starts_with("| metric | value | target | target met |\n"));
    }
}
