//! `cargo xtask mutants`: makes one change at a time to the code that decides on states, limits, permissions and tenants,
//! and requires that the tests find at least 90 % of the changes. A change that they miss is listed with its reason in
//! `survivors.txt`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process, signals};
use serde_json::Value;

use crate::test::services::TestServices;

/// The least share of mutants that the tests must find, in percent.
const TARGET_PERCENT: usize = 90;

/// cargo-mutants ends with this code if tests missed a mutant or hung.
const FOUND_SURVIVORS: [i32; 2] = [2, 3];

/// Files that are mutated, and the tests that must find the mutants.
struct Group {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// The packages whose tests run, and which of their tests (a filter of nextest).
    tested_by: &'static [&'static str],
    filter: &'static str,
}

const GROUPS: &[Group] = &[
    Group {
        name: "domain",
        package: "recado-domain",
        files: &[
            "crates/domain/src/campaigns/{outcome,preconditions,send,start,status}.rs",
            "crates/domain/src/messaging/{outcome,status}.rs",
            "crates/domain/src/billing/status.rs",
            "crates/domain/src/templates/{sendable,status}.rs",
            "crates/domain/src/conversations/status.rs",
            "crates/domain/src/webhooks/{attempt,retry_policy}.rs",
            "crates/domain/src/limits/in_process.rs",
            "crates/domain/src/shared/{scope,tenant}.rs",
            "crates/domain/src/team/*.rs",
            "crates/domain/src/egress/*.rs",
        ],
        tested_by: &["recado-domain"],
        filter: "all()",
    },
    Group {
        name: "api",
        package: "recado-api",
        files: &[
            "crates/api/src/web/{access,auth,auth_cache,callback_secrets,caller,ceiling,client_ip}.rs",
            "crates/api/src/web/{key_cache,key_lookups,limit,secret,session_cache,shares,support}.rs",
        ],
        tested_by: &["recado-api", "recado-server"],
        filter: "package(recado-api) or test(/^(matrix|matrix_scopes|tenants|csrf|sessions|sign_out|secrets|limits|limiter|\
                 api_keys|api_key_limits|administration_support|faults::shares|http|request_log)::/)",
    },
    Group {
        name: "tenants",
        package: "recado-postgres",
        files: &["crates/postgres/src/{pool,pool_registry}.rs"],
        tested_by: &["recado-postgres"],
        filter: "test(/^(pool|isolation|conflicts)::/)",
    },
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The groups of files: domain, api, tenants (all).
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(GROUPS.iter().map(|group| group.name)))]
    groups: Vec<String>,
    /// Mutate only what changed since this commit.
    #[arg(long)]
    base: Option<String>,
}

/// The mutants of a group by their outcome.
#[derive(Debug, Default, PartialEq)]
struct Score {
    caught: usize,
    /// The mutants that the tests missed, as in `survivors.txt`.
    missed: Vec<String>,
}

/// `cargo xtask mutants`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    let dir = paths::target().join("mutants");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let diff = options.base.as_deref().map(|base| diff_since(base, &dir)).transpose()?;
    let services = TestServices::start()?;
    let known = survivors(include_str!("survivors.txt"));
    let mut failures = Vec::new();
    let chosen = |group: &&Group| options.groups.is_empty() || options.groups.iter().any(|name| name == group.name);
    for group in GROUPS.iter().filter(chosen) {
        let score = mutate(group, &services, diff.as_deref(), &dir)?;
        let (caught, missed) = (score.caught, score.missed.len());
        println!("{}: {caught} of {} mutants were found", group.name, caught + missed);
        failures.extend(complaints(group.name, &score, &known, diff.is_some()));
        if signals::received() {
            bail!("interrupted");
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("{}", failures.join("\n")),
    }
}

fn diff_since(base: &str, dir: &Path) -> Result<PathBuf> {
    let mut git = Command::new("git");
    git.current_dir(paths::root()).args(["diff", base]);
    let path = dir.join("changes.diff");
    fs::write(&path, process::quietly(&mut git, "git diff")?).context("cannot write the diff")?;
    Ok(path)
}

fn mutate(group: &Group, services: &TestServices, diff: Option<&Path>, dir: &Path) -> Result<Score> {
    let output = dir.join(group.name);
    let mut mutants = paths::cargo();
    mutants.args([
        "mutants",
        "--no-shuffle",
        "--test-tool",
        "nextest",
        "--package",
        group.package,
    ]);
    mutants.arg("--output").arg(&output);
    for file in group.files {
        mutants.args(["--file", file]);
    }
    for package in group.tested_by {
        mutants.args(["--test-package", package]);
    }
    if let Some(diff) = diff {
        mutants.arg("--in-diff").arg(diff);
    }
    mutants.args(["--", "--no-tests", "pass", "-E", group.filter]);
    for (name, value) in services.environment() {
        mutants.env(name, value);
    }
    let status = mutants.status().context("cannot start cargo")?;
    if !status.success() && status.code().is_none_or(|code| !FOUND_SURVIVORS.contains(&code)) {
        bail!("cargo mutants failed ({status}); cargo install --locked cargo-mutants installs it");
    }
    let outcomes = output.join("mutants.out/outcomes.json");
    match fs::read_to_string(&outcomes) {
        Ok(text) => Ok(score(
            &serde_json::from_str(&text).context("outcomes.json is not JSON")?,
        )),
        // The diff touches none of the files.
        Err(_) if diff.is_some() => Ok(Score::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", outcomes.display())),
    }
}

/// The outcomes that cargo-mutants wrote. A mutant that does not compile counts for nothing.
fn score(outcomes: &Value) -> Score {
    let mut score = Score::default();
    for outcome in outcomes.get("outcomes").and_then(Value::as_array).into_iter().flatten() {
        let name = outcome.pointer("/scenario/Mutant/name").and_then(Value::as_str);
        match (name, outcome.get("summary").and_then(Value::as_str)) {
            (Some(_), Some("CaughtMutant" | "Timeout")) => score.caught += 1,
            (Some(name), Some("MissedMutant")) => score.missed.push(without_position(name)),
            _ => {}
        }
    }
    score
}

/// `FILE:LINE:COLUMN: CHANGE` without line and column, which other changes move.
fn without_position(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(change)) => format!("{file}:{change}"),
        _ => name.to_owned(),
    }
}

/// The mutants of the list. Each line is followed by its reason, which is indented.
fn survivors(list: &str) -> Vec<&str> {
    list.lines()
        .filter(|line| !line.starts_with([' ', '#']) && !line.is_empty())
        .collect()
}

fn complaints(group: &str, score: &Score, known: &[&str], is_partial: bool) -> Vec<String> {
    let unknown = score.missed.iter().filter(|missed| !known.contains(&missed.as_str()));
    let mut complaints: Vec<String> = unknown.map(|missed| format!("no test finds {missed}")).collect();
    let all = score.caught + score.missed.len();
    if !is_partial && score.caught * 100 < all * TARGET_PERCENT {
        complaints.push(format!(
            "{group}: the tests find less than {TARGET_PERCENT} % of {all} mutants"
        ));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(name: &str, summary: &str) -> Value {
        json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary })
    }

    #[test]
    fn mutants_are_counted_by_their_outcome() {
        let outcomes = json!({ "outcomes": [
            { "scenario": "Baseline", "summary": "Success" },
            outcome("a.rs:1:2: replace f -> bool with true", "CaughtMutant"),
            outcome("a.rs:1:2: replace g with ()", "Timeout"),
            outcome("a.rs:9:5: replace == with != in <impl A for B>::h", "MissedMutant"),
            outcome("a.rs:9:5: replace i", "Unviable"),
        ] });
        let missed = vec!["a.rs: replace == with != in <impl A for B>::h".to_owned()];
        assert_eq!(score(&outcomes), Score { caught: 2, missed });
    }

    #[test]
    fn survivors_need_a_reason_and_the_target_counts() {
        let known = survivors("# comment\n\na.rs: replace f\n  It only formats.\n");
        assert_eq!(known, ["a.rs: replace f"]);
        let score = |caught, missed: &[&str]| Score {
            caught,
            missed: missed.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert!(complaints("x", &score(9, &["a.rs: replace f"]), &known, false).is_empty());
        let below = "x: the tests find less than 90 % of 9 mutants";
        assert_eq!(complaints("x", &score(8, &["a.rs: replace f"]), &known, false), [below]);
        assert!(complaints("x", &score(1, &["a.rs: replace f"]), &known, true).is_empty());
        let unknown = "no test finds a.rs: replace g";
        assert_eq!(
            complaints("x", &score(99, &["a.rs: replace g"]), &known, false),
            [unknown]
        );
    }

    #[test]
    fn every_survivor_has_a_reason() {
        let lines: Vec<&str> = include_str!("survivors.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        for pair in lines.windows(2) {
            let is_mutant = |line: &str| !line.starts_with(' ');
            assert!(!is_mutant(pair[0]) || !is_mutant(pair[1]), "{} has no reason", pair[0]);
        }
    }

    #[test]
    fn every_mutated_file_exists() {
        for path in GROUPS.iter().flat_map(|group| group.files) {
            let (dir, rest) = path.rsplit_once('/').unwrap();
            let names = rest.trim_start_matches('{').trim_end_matches("}.rs");
            for name in names.split(',').filter(|name| *name != "*.rs") {
                let file = paths::root()
                    .join(dir)
                    .join(format!("{}.rs", name.trim_end_matches(".rs")));
                assert!(file.is_file(), "{}", file.display());
            }
        }
    }
}
