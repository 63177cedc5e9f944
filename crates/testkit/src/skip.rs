//! Tests that cannot run on a machine, because they lack a right or a program.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::thread;

/// A file to which tests that cannot run append their name and reason. `cargo xtask test` sets it and reports the lines.
pub const LIST_VARIABLE: &str = "RECADO_SKIPPED_TESTS";

/// Whether every check must run (`CI=true`): a skip is then a failure.
pub fn is_failure() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Records that the current test cannot run; the test MUST return then. Panics if a skip is a failure, or if
/// [`LIST_VARIABLE`] names no file: a test that did not run must not look like one that passed.
#[track_caller]
pub fn skip(reason: &str) {
    let list = std::env::var_os(LIST_VARIABLE).filter(|_| !is_failure());
    assert!(
        list.is_some_and(|list| record(&list, reason)),
        "cannot run: {reason} ({LIST_VARIABLE}=FILE records it as skipped)"
    );
}

/// Appends a line to the list, in one write because tests run concurrently.
fn record(list: &OsStr, reason: &str) -> bool {
    let line = format!("{}: {reason}\n", thread::current().name().unwrap_or("test"));
    let file = OpenOptions::new().append(true).create(true).open(list);
    file.is_ok_and(|mut file| file.write_all(line.as_bytes()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_appended_to_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        assert!(record(list.as_os_str(), "no disk") && record(list.as_os_str(), "no pooler"));
        let lines = std::fs::read_to_string(&list).unwrap();
        assert!(
            lines.contains(": no disk\n") && lines.ends_with(": no pooler\n"),
            "{lines}"
        );
        assert!(!record(dir.path().as_os_str(), "the list is a directory"));
    }
}
