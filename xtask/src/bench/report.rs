//! The result as a piece of `docs/performance.md`, between two marks.

use std::fs;
use std::process::Command;

use super::Options;
use super::figures::{Figure, table};
use super::stage::{Stage, threads_and_connections};
use crate::error::{Context, Result, fail};
use crate::{paths, process};

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- written by cargo xtask bench -->\n";
const END: &str = "<!-- until here -->\n";

pub(super) fn page(figures: &[Figure], options: Options, stage: &Stage, stolen: u64) -> String {
    let (threads, connections) = threads_and_connections();
    let Options { seconds, pairs } = options;
    let postgres = stage.cluster.program("postgres").unwrap_or_else(|| "postgres".into());
    format!(
        "{}\nOf {}, on {threads} × {}; {}; {}; durable commits. Reads: {pairs} rounds of {seconds} s each, 32 HTTP \
         connections, {connections} to the database. {stolen} % of the processors' time was stolen by other \
         machines.\n",
        table(figures),
        said(Command::new("date").arg("+%F")),
        processor(),
        said(Command::new(postgres).arg("--version")),
        said(Command::new("rustc").arg("--version")),
    )
}

/// Puts the result in the place of the last one.
pub(super) fn write(page: &str) -> Result<()> {
    let file = paths::root().join(PAGE);
    let text = fs::read_to_string(&file).context(|| format!("cannot read {PAGE}"))?;
    let Some(text) = replaced(&text, page) else {
        return fail(format!("{PAGE} has no place for the result"));
    };
    fs::write(&file, text).context(|| format!("cannot write {PAGE}"))
}

fn replaced(text: &str, page: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{page}\n{END}{after}"))
}

/// What a program says of itself, in one line.
fn said(command: &mut Command) -> String {
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
    fn only_what_lies_between_the_marks_is_replaced() {
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let once = replaced(&text, "| new |\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n| new |\n\n{END}after\n"));
        assert_eq!(replaced(&once, "| new |\n").unwrap(), once);
        assert_eq!(replaced("no marks", ""), None);
    }
}
