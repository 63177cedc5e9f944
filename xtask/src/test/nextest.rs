//! Runs the tests with cargo-nextest, a process for each test. `.config/nextest.toml` configures it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use std::{fmt, fs};

use anyhow::{Context, Result};
use recado_testkit::{paths, process};

/// The version that is installed if the machine has none.
const VERSION: &str = "0.9.143";

/// Tests at a time for each processor, because a test mostly waits for its server and its database.
const TESTS_PER_PROCESSOR: usize = 2;

/// How many of the slowest tests are listed.
const SLOWEST: usize = 20;

/// A test that ran.
#[derive(Debug, PartialEq)]
struct TestResult {
    /// The package, and after `::` the target if it is not the library.
    binary: String,
    name: String,
    seconds: f64,
    passed: bool,
}

/// The tests of a run, from the JUnit report of nextest.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Report {
    tests: Vec<TestResult>,
    pub(crate) ignored: usize,
}

impl Report {
    pub(crate) fn passed(&self) -> usize {
        self.tests.iter().filter(|test| test.passed).count()
    }

    pub(crate) fn failed(&self) -> usize {
        self.tests.len() - self.passed()
    }

    /// nextest escapes `<` in names and output, so that each of them starts an element.
    fn read(xml: &str) -> Self {
        let mut tests: Vec<TestResult> = Vec::new();
        for element in xml.split('<') {
            if element.starts_with("testcase ") {
                tests.push(TestResult {
                    binary: attribute(element, "classname").to_owned(),
                    name: attribute(element, "name").to_owned(),
                    seconds: attribute(element, "time").parse().unwrap_or(0.0),
                    passed: true,
                });
            } else if element.starts_with("failure") || element.starts_with("error") {
                tests.iter_mut().last().into_iter().for_each(|test| test.passed = false);
            }
        }
        Self { tests, ignored: 0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tests: Vec<&TestResult> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        writeln!(f, "slowest tests:")?;
        for test in tests.into_iter().take(SLOWEST) {
            writeln!(f, "{:>6.1} s  {} {}", test.seconds, test.binary, test.name)?;
        }
        let mut crates: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
        for test in &self.tests {
            let name = test.binary.split("::").next().unwrap_or_default();
            let (count, seconds) = crates.entry(name).or_default();
            *count += 1;
            *seconds += test.seconds;
        }
        writeln!(f, "tests of each crate, and the sum of their times:")?;
        for (name, (count, seconds)) in crates {
            writeln!(f, "{count:>6}  {name:<20}{seconds:>8.1} s")?;
        }
        Ok(())
    }
}

/// The value of an attribute of an XML element, empty if there is none.
fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    let value = element.split_once(&format!(" {name}=\""));
    value.and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default()
}

/// Runs all tests with these variables. The report also has the tests of a run that failed.
pub(crate) fn run(environment: &[(&'static str, String)]) -> Result<(Report, Result<()>)> {
    let program = install()?;
    let nextest = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .arg("nextest")
            .args(arguments)
            .arg("--workspace")
            .current_dir(paths::root());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command
    };
    let file = paths::target().join("nextest").join("default").join("junit.xml");
    let _ = fs::remove_file(&file);
    let threads = available_parallelism().map_or(1, usize::from) * TESTS_PER_PROCESSOR;
    let mut tests = nextest(&["run"]);
    let result = process::run(
        tests.args(["--test-threads", &threads.to_string()]),
        "cargo nextest run",
    );
    if result.is_err() && !file.is_file() {
        return Ok((Report::default(), result));
    }
    let xml = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let list = process::quietly(
        &mut nextest(&["list", "--message-format", "json"]),
        "cargo nextest list",
    )?;
    let report = Report {
        ignored: list.matches("\"ignored\":true").count(),
        ..Report::read(&xml)
    };
    Ok((report, result))
}

/// Returns cargo-nextest: an installed program, else one that is built below the target directory.
fn install() -> Result<PathBuf> {
    let home = paths::target().join(format!("cargo-nextest-{VERSION}"));
    let programs = [PathBuf::from("cargo-nextest"), home.join("bin").join("cargo-nextest")];
    if let Some(program) = programs.iter().find(|program| is_installed(program)) {
        return Ok(program.clone());
    }
    println!("installing cargo-nextest {VERSION} (cargo install)");
    let mut install = paths::cargo();
    install.args([
        "install",
        "--quiet",
        "--locked",
        "cargo-nextest",
        "--version",
        VERSION,
        "--root",
    ]);
    process::run(install.arg(&home), "cargo install cargo-nextest")?;
    let [_, built] = programs;
    Ok(built)
}

fn is_installed(program: &Path) -> bool {
    let status = Command::new(program)
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" skipped="0" failures="2" errors="0" time="3.5">
    <testsuite name="recado-server::it" tests="3" skipped="0" errors="0" failures="2">
        <testcase name="a::quick" classname="recado-server::it" timestamp="2026-11-28T05:46:00.814+00:00" time="0.084"/>
        <testcase name="a::broken" classname="recado-server::it" timestamp="2026-11-28T05:46:00.814+00:00" time="17.116">
            <failure type="test failure with exit code 101">thread panicked: &lt;testcase name="x"/&gt;</failure>
            <system-out>running 1 test</system-out>
        </testcase>
        <testcase name="a::hangs" classname="recado-server::it" timestamp="2026-11-28T05:46:00.814+00:00" time="600.0">
            <failure type="test timeout"/>
        </testcase>
    </testsuite>
    <testsuite name="recado-domain" tests="1" skipped="0" errors="0" failures="0">
        <testcase name="phone::tests::parses" classname="recado-domain" timestamp="2026-11-28T05:46:00.814+00:00" time="0.01"/>
    </testsuite>
</testsuites>"#;

    #[test]
    fn report_counts_passed_and_failed_tests() {
        let report = Report::read(XML);
        assert_eq!((report.passed(), report.failed()), (2, 2));
        let failed: Vec<&str> = report
            .tests
            .iter()
            .filter(|test| !test.passed)
            .map(|test| &*test.name)
            .collect();
        assert_eq!(failed, ["a::broken", "a::hangs"]);
    }

    #[test]
    fn report_lists_slowest_tests_first_and_sums_by_crate() {
        let text = Report::read(XML).to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.get(1), Some(&"600.0 s  recado-server::it a::hangs"), "{text}");
        assert_eq!(lines.get(2), Some(&"17.1 s  recado-server::it a::broken"), "{text}");
        assert!(lines.contains(&"3  recado-server          617.2 s"), "{text}");
        assert!(lines.contains(&"1  recado-domain            0.0 s"), "{text}");
    }
}
