//! `cargo xtask fuzz`: searches for inputs that break the properties of `crates/fuzz`, with libFuzzer, guided by coverage.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process, signals};

/// What libFuzzer needs to see which code an input reaches and what it is compared with. These options work with a
/// stable compiler. The code of the product has no `unsafe`, so no sanitizer is needed.
const INSTRUMENTATION: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// The longest input. Longer ones are slower and reach hardly more code.
const MAX_INPUT_BYTES: u32 = 4096;

/// Time for one input before libFuzzer reports it as slow, and memory of the process.
const SLOW_INPUT_SECONDS: u32 = 10;
const MEMORY_MEBIBYTES: u32 = 2048;

pub(crate) const DEFAULT_SECONDS: u64 = 60;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The targets (all).
    targets: Vec<String>,
    /// How long each target is searched.
    #[arg(long, default_value_t = DEFAULT_SECONDS, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Add inputs that reach new code to the committed corpora.
    #[arg(long)]
    keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            seconds: DEFAULT_SECONDS,
            keep: false,
        }
    }
}

/// `cargo xtask fuzz`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    let targets = select(&targets()?, &options.targets)?;
    let program = FuzzProgram::build()?;
    let mut broken = Vec::new();
    for target in &targets {
        println!("\n== {target}");
        let searched = program.search(target, options.seconds, &mut 0);
        let merged = searched.and_then(|()| if options.keep { program.merge(target) } else { Ok(()) });
        if let Err(failure) = merged {
            println!("{failure:#}");
            broken.push(target.as_str());
        }
        if signals::received() {
            bail!("interrupted");
        }
    }
    match broken.is_empty() {
        true => Ok(()),
        false => bail!("broken: {}; the inputs are in crates/fuzz/corpus", broken.join(", ")),
    }
}

fn committed_corpora() -> PathBuf {
    paths::root().join("crates/fuzz/corpus")
}

/// The inputs that earlier searches found on this machine.
fn found_corpora() -> PathBuf {
    paths::target().join("fuzz/corpus")
}

/// The targets in alphabetical order: each has a corpus.
pub(crate) fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(committed_corpora())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn select(all: &[String], named: &[String]) -> Result<Vec<String>> {
    if let Some(name) = named.iter().find(|name| !all.contains(name)) {
        bail!("no fuzz target is named {name}; there are {}", all.join(", "));
    }
    Ok(if named.is_empty() { all } else { named }.to_vec())
}

/// The program that runs a target in libFuzzer.
pub(crate) struct FuzzProgram(PathBuf);

impl FuzzProgram {
    /// Builds the targets with instrumentation and optimization.
    pub(crate) fn build() -> Result<Self> {
        let host = host()?;
        let dir = paths::target().join("fuzz");
        let mut build = paths::cargo();
        build.args(["build", "--release", "--package", "recado-fuzz"]);
        build.args(["--features", "libfuzzer"]);
        // With a target, cargo does not instrument build scripts and macros.
        build.args(["--target", &host, "--target-dir"]).arg(&dir);
        build.env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\u{1f}"));
        build.env("CARGO_PROFILE_RELEASE_LTO", "off");
        process::run(&mut build, "cargo build of recado-fuzz")?;
        Ok(Self(dir.join(host).join("release/recado-fuzz")))
    }

    /// Searches a target, prints libFuzzer's output, and adds the number of inputs that were tried. An input that breaks
    /// a property is written to the committed corpus, and is an error.
    pub(crate) fn search(&self, target: &str, seconds: u64, inputs: &mut u64) -> Result<()> {
        let (committed, found) = (committed_corpora().join(target), found_corpora().join(target));
        fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
        let log = paths::target().join("fuzz").join(format!("{target}.log"));
        let mut search = self.command(target);
        search.stderr(File::create(&log).with_context(|| format!("cannot write {}", log.display()))?);
        search.arg(format!("-max_total_time={seconds}"));
        search.arg(format!("-artifact_prefix={}/", committed.display()));
        search.arg(format!("-timeout={SLOW_INPUT_SECONDS}"));
        search.args(["-verbosity=0", "-print_final_stats=1"]);
        let searched = process::run(search.arg(&found).arg(&committed), "the search");
        let output = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let output = String::from_utf8_lossy(&output);
        print!("{output}");
        *inputs += tried_inputs(&output);
        searched
    }

    /// Adds found inputs that reach new code to the committed corpus. Others, which differ in counts, would be thousands.
    fn merge(&self, target: &str) -> Result<()> {
        let mut merge = self.command(target);
        merge.args(["-set_cover_merge=1", "-use_counters=0"]);
        merge.arg(committed_corpora().join(target));
        merge.arg(found_corpora().join(target));
        process::run(&mut merge, "the merge")
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.env("RECADO_FUZZ_TARGET", target);
        command.arg(format!("-max_len={MAX_INPUT_BYTES}"));
        command.arg(format!("-rss_limit_mb={MEMORY_MEBIBYTES}"));
        command
    }
}

/// The platform that the compiler builds for.
fn host() -> Result<String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = process::quietly(Command::new(compiler).arg("-vV"), "rustc -vV")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV printed no host")
}

/// The number of inputs that libFuzzer reports. 0: it ended before its report.
fn tried_inputs(output: &str) -> u64 {
    let mut lines = output.lines();
    let number = lines.find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_targets_are_selected_by_name() {
        let all = targets().unwrap();
        assert!(all.contains(&"multipart".to_owned()), "{all:?}");
        assert_eq!(select(&all, &[]).unwrap(), all);
        let named = ["import".to_owned()];
        assert_eq!(select(&all, &named).unwrap(), named);
        let failure = select(&all, &["imports".to_owned()]).unwrap_err().to_string();
        assert!(
            failure.starts_with("no fuzz target is named imports; there are "),
            "{failure}"
        );
    }

    #[test]
    fn tried_inputs_are_read_from_libfuzzers_report() {
        let output = "Done 4711 runs in 11 second(s)\nstat::number_of_executed_units: 4711\nstat::peak_rss_mb: 57\n";
        assert_eq!(tried_inputs(output), 4711);
        assert_eq!(tried_inputs("panicked at crates/fuzz/src/cursor.rs\n"), 0);
    }

    #[test]
    fn host_is_a_platform() {
        assert!(host().unwrap().contains(std::env::consts::ARCH));
    }
}
