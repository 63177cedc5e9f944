//! `cargo xtask fuzz`: searches for inputs that break the properties of `crates/fuzz`, with libFuzzer, guided by coverage.

use std::fs;
use std::path::{Path, PathBuf};
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

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The targets (all).
    targets: Vec<String>,
    /// How long each target is searched.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Add inputs that reach new code to the committed corpora.
    #[arg(long)]
    keep: bool,
}

/// `cargo xtask fuzz`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    let targets = select(&targets()?, &options.targets)?;
    let program = build()?;
    let mut broken = Vec::new();
    for target in &targets {
        println!("\n== {target}");
        if let Err(failure) = search(&program, target, options) {
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

fn committed() -> PathBuf {
    paths::root().join("crates/fuzz/corpus")
}

/// The targets in alphabetical order: each has a corpus.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(committed())? {
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

/// Builds the targets with instrumentation and optimization, and returns the program.
fn build() -> Result<PathBuf> {
    let host = host()?;
    let dir = paths::target().join("fuzz");
    let mut build = paths::cargo();
    build.args([
        "build",
        "--release",
        "--package",
        "recado-fuzz",
        "--features",
        "libfuzzer",
    ]);
    // With a target, cargo does not instrument build scripts and macros.
    build.args(["--target", &host, "--target-dir"]).arg(&dir);
    build.env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\u{1f}"));
    build.env("CARGO_PROFILE_RELEASE_LTO", "off");
    process::run(&mut build, "cargo build of recado-fuzz")?;
    Ok(dir.join(host).join("release/recado-fuzz"))
}

/// The platform that the compiler builds for.
fn host() -> Result<String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = process::quietly(Command::new(compiler).arg("-vV"), "rustc -vV")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV printed no host")
}

fn search(program: &Path, target: &str, options: &Options) -> Result<()> {
    let committed = committed().join(target);
    let found = paths::target().join("fuzz/corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let mut search = libfuzzer(program, target);
    search.arg(format!("-max_total_time={}", options.seconds));
    search.arg(format!("-artifact_prefix={}/", committed.display()));
    search.arg(format!("-timeout={SLOW_INPUT_SECONDS}"));
    search.args(["-verbosity=0", "-print_final_stats=1"]);
    process::run(search.arg(&found).arg(&committed), "the search")?;
    if options.keep {
        let mut merge = libfuzzer(program, target);
        // Only inputs that reach new code: others that differ in counts would be thousands.
        merge.args(["-set_cover_merge=1", "-use_counters=0"]);
        process::run(merge.arg(&committed).arg(&found), "the merge")?;
    }
    Ok(())
}

fn libfuzzer(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command.env("RECADO_FUZZ_TARGET", target);
    command.arg(format!("-max_len={MAX_INPUT_BYTES}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MEBIBYTES}"));
    command
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
    fn host_is_a_platform() {
        assert!(host().unwrap().contains(std::env::consts::ARCH));
    }
}
