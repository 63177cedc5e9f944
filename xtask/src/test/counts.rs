//! Results of tests, from the output of cargo test.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Result, anyhow, bail};
use recado_testkit::process;

use super::nextest::Report;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests that recorded that they cannot run here.
    pub(crate) skipped: usize,
    /// Tests that only `cargo xtask stress` runs.
    ignored: usize,
    /// The paths of the tests that passed.
    pub(crate) passed_tests: BTreeSet<String>,
    /// Whether a test program has started. Otherwise the build failed.
    pub(crate) has_run: bool,
    /// A test that has started and whose result is on a later line, because its output is in between.
    started: Option<String>,
}

impl Counts {
    /// Adds the tests of a report. Rust's test harness knows no skip, so the report has skipped tests as passed.
    pub(crate) fn add_report(&mut self, report: &Report, skipped: usize) {
        self.passed += report.passed().saturating_sub(skipped);
        self.failed += report.failed();
        self.ignored += report.ignored;
        self.skipped += skipped;
    }

    /// Adds a line such as `test result: ok. 12 passed; 0 failed; 1 ignored; ...` or `test a::b ... ok`. Ignores other
    /// lines.
    pub(crate) fn add(&mut self, line: &str) {
        if let Some((_, result)) = line.split_once("test result: ") {
            self.passed += before(result, " passed;");
            self.failed += before(result, " failed;");
            self.ignored += before(result, " ignored;");
        } else if let Some((test, result)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let path = test.split(' ').next().unwrap_or_default().to_owned();
            self.started = None;
            match result {
                "ok" => {
                    self.passed_tests.insert(path);
                }
                result if result.starts_with("FAILED") || result.starts_with("ignored") => {}
                _ => self.started = Some(path),
            }
        } else if line.starts_with("running ") && line.ends_with(" tests") || line == "running 1 test" {
            self.has_run = true;
        } else if line == "ok" {
            self.passed_tests.extend(self.started.take());
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ignored > 0 {
            writeln!(f, "{} tests are left to cargo xtask stress", self.ignored)?;
        }
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The number before a word.
fn before(text: &str, word: &str) -> usize {
    let number = text.split(word).next().and_then(|head| head.rsplit(' ').next());
    match text.contains(word) {
        true => number.and_then(|digits| digits.parse().ok()).unwrap_or(0),
        false => 0,
    }
}

/// Runs `cargo test`, prints its output and adds up its results.
pub(crate) fn counted(test: &mut Command, counts: &mut Counts) -> Result<()> {
    let mut child = process::start(test.stdout(Stdio::piped()), "cargo test")?;
    let Some(out) = child.stdout.take() else {
        bail!("cargo test has no output");
    };
    let reader = std::thread::scope(|scope| {
        // Read in a thread: this thread waits for the child and forwards signals.
        let reading = scope.spawn(|| {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                counts.add(&line);
            }
        });
        let finished = process::finish(&mut child, "cargo test");
        reading.join().map(|()| finished)
    });
    reader.map_err(|_| anyhow!("the reader of the output of cargo test panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.add(line));
        counts
    }

    #[test]
    fn test_counts_add_up() {
        let counts = counts(&[
            "running 3 tests",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ]);
        assert_eq!((counts.passed, counts.failed, counts.ignored), (15, 2, 1));
        assert!(counts.has_run);
        let text = counts.to_string();
        assert!(text.ends_with("\n15 passed, 2 failed, 0 skipped"), "{text}");
    }

    #[test]
    fn only_passed_tests_are_listed() {
        let counts = counts(&[
            "test a::one ... ok",
            "test a::two ... FAILED",
            "test a::three ... ignored, measures time: cargo xtask stress timing",
            "test a::four - should panic ... ok",
            "test a::five ... seed 7",
            "more output",
            "ok",
            "test a::six ... seed 7",
            "FAILED",
            "test a::seven ... ignored",
            "ok",
        ]);
        let passed: Vec<&str> = counts.passed_tests.iter().map(String::as_str).collect();
        assert_eq!(passed, ["a::five", "a::four", "a::one"]);
    }
}
