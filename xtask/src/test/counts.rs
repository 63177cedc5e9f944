//! Counts of passed and failed tests, from the output of cargo test.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Result, anyhow, bail};
use recado_testkit::process;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    /// Adds a line such as `test result: ok. 12 passed; 0 failed; 0 ignored; ...`. Ignores other lines.
    pub(crate) fn add(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else {
            return;
        };
        self.passed += before(result, " passed;");
        self.failed += before(result, " failed;");
    }
}

/// The number before a word.
fn before(text: &str, word: &str) -> u64 {
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

    #[test]
    fn test_counts_add_up() {
        let mut counts = Counts::default();
        counts.add("running 3 tests");
        counts.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s");
        counts.add("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        assert_eq!(counts, Counts { passed: 15, failed: 2 });
    }
}
