//! `cargo xtask mutants`: makes one change at a time to the code that decides on states, limits, permissions and tenants,
//! and requires that the tests find at least 90 % of the changes. A change that they miss is listed with its reason in
//! `survivors.txt`.

use std::collections::BTreeSet;
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
    /// Tests that run in turn, the fast ones first: each pass tries the mutants that the passes before missed.
    passes: &'static [Pass],
}

/// The packages whose tests run, and which of their tests (a filter of nextest).
struct Pass {
    packages: &'static [&'static str],
    filter: &'static str,
}

const fn pass(packages: &'static [&'static str], filter: &'static str) -> Pass {
    Pass { packages, filter }
}

const DOMAIN_PASSES: &[Pass] = &[
    // The simulation takes longer than all other tests together.
    pass(&["recado-domain"], "not test(/simulation::/)"),
    pass(&["recado-domain"], "test(/simulation::/)"),
];

const fn domain(name: &'static str, files: &'static [&'static str]) -> Group {
    Group {
        name,
        package: "recado-domain",
        files,
        passes: DOMAIN_PASSES,
    }
}

const GROUPS: &[Group] = &[
    domain(
        "campaigns",
        &[
            "crates/domain/src/campaigns/{outcome,preconditions,send,start,status}.rs",
            "crates/domain/src/messaging/{outcome,status}.rs",
            "crates/domain/src/templates/{sendable,status}.rs",
            "crates/domain/src/conversations/status.rs",
        ],
    ),
    domain(
        "billing",
        &["crates/domain/src/billing/{effects,entitlement,status,usage}.rs"],
    ),
    domain(
        "team",
        &[
            "crates/domain/src/team/*.rs",
            "crates/domain/src/shared/{scope,tenant}.rs",
            "crates/domain/src/limits/in_process.rs",
        ],
    ),
    domain(
        "webhooks",
        &[
            "crates/domain/src/webhooks/{attempt,retry_policy}.rs",
            "crates/domain/src/egress/*.rs",
        ],
    ),
    Group {
        name: "api",
        package: "recado-api",
        files: &[
            "crates/api/src/web/{access,auth,auth_cache,callback_secrets,caller,ceiling,client_ip}.rs",
            "crates/api/src/web/{key_cache,key_lookups,limit,secret,session_cache,shares,support}.rs",
        ],
        passes: &[
            pass(&["recado-api"], "all()"),
            pass(
                &["recado-server"],
                "test(/^(matrix|matrix_scopes|tenants|csrf|sessions|sign_out|secrets|limits|limiter|api_keys|\
                 api_key_limits|administration_support|faults::shares|http|request_log)::/)",
            ),
        ],
    },
    Group {
        name: "tenants",
        package: "recado-postgres",
        files: &["crates/postgres/src/{pool,pool_registry}.rs"],
        passes: &[pass(&["recado-postgres"], "test(/^(pool|isolation|conflicts)::/)")],
    },
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The groups of files (all).
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(GROUPS.iter().map(|group| group.name)))]
    groups: Vec<String>,
    /// Mutate only what changed since this commit.
    #[arg(long)]
    base: Option<String>,
}

/// The mutants of a group by their outcome, named as cargo-mutants names them.
#[derive(Debug, Default, PartialEq)]
struct Score {
    caught: BTreeSet<String>,
    missed: BTreeSet<String>,
}

/// `cargo xtask mutants`.
pub(crate) fn run(options: &Options) -> Result<()> {
    signals::install()?;
    let dir = paths::target().join("mutants");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let diff = options.base.as_deref().map(|base| diff_since(base, &dir)).transpose()?;
    let services = TestServices::start()?;
    let listed = survivors(include_str!("survivors.txt"));
    let mut failures = Vec::new();
    let chosen = |group: &&Group| options.groups.is_empty() || options.groups.iter().any(|name| name == group.name);
    for group in GROUPS.iter().filter(chosen) {
        let score = mutate(group, &services, diff.as_deref(), &dir)?;
        let (caught, missed) = (score.caught.len(), score.missed.len());
        println!("{}: {caught} of {} mutants were found", group.name, caught + missed);
        failures.extend(problems(group.name, &score, &listed, diff.is_some()));
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

/// Tries the mutants of a group in all its passes.
fn mutate(group: &Group, services: &TestServices, diff: Option<&Path>, dir: &Path) -> Result<Score> {
    let output = dir.join(group.name);
    let mut score = Score::default();
    for (number, pass) in group.passes.iter().enumerate() {
        let mut mutants = command(group, pass, &output);
        if number > 0 {
            mutants.arg("--iterate");
        }
        if let Some(diff) = diff {
            mutants.arg("--in-diff").arg(diff);
        }
        mutants.args(["--", "--no-tests", "pass", "-E", pass.filter]);
        for (name, value) in services.environment() {
            mutants.env(name, value);
        }
        let status = mutants.status().context("cannot start cargo")?;
        if !status.success() && status.code().is_none_or(|code| !FOUND_SURVIVORS.contains(&code)) {
            bail!("cargo mutants failed ({status}); cargo install --locked cargo-mutants installs it");
        }
        let outcomes = output.join("mutants.out/outcomes.json");
        match fs::read_to_string(&outcomes) {
            Ok(text) => score.add(&serde_json::from_str(&text).context("outcomes.json is not JSON")?),
            // The diff changes none of the files.
            Err(_) if diff.is_some() => return Ok(score),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", outcomes.display())),
        }
        if score.missed.is_empty() || signals::received() {
            break;
        }
    }
    Ok(score)
}

fn command(group: &Group, pass: &Pass, output: &Path) -> Command {
    let mut mutants = paths::cargo();
    mutants.args(["mutants", "--no-shuffle", "--test-tool", "nextest"]);
    mutants.args(["--package", group.package]);
    mutants.arg("--output").arg(output);
    for file in group.files {
        mutants.args(["--file", file]);
    }
    for package in pass.packages {
        mutants.args(["--test-package", package]);
    }
    mutants
}

impl Score {
    /// Adds the outcomes of a pass, as cargo-mutants wrote them. A mutant that does not compile counts for nothing.
    fn add(&mut self, outcomes: &Value) {
        for outcome in outcomes.get("outcomes").and_then(Value::as_array).into_iter().flatten() {
            let name = outcome.pointer("/scenario/Mutant/name").and_then(Value::as_str);
            match (name, outcome.get("summary").and_then(Value::as_str)) {
                (Some(name), Some("CaughtMutant" | "Timeout")) => {
                    self.missed.remove(name);
                    self.caught.insert(name.to_owned());
                }
                (Some(name), Some("MissedMutant")) => {
                    self.missed.insert(name.to_owned());
                }
                _ => {}
            }
        }
    }
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

fn problems(group: &str, score: &Score, listed: &[&str], is_partial: bool) -> Vec<String> {
    let missed = score.missed.iter().map(|name| without_position(name));
    let unlisted = missed.filter(|missed| !listed.contains(&missed.as_str()));
    let mut problems: Vec<String> = unlisted.map(|missed| format!("no test finds {missed}")).collect();
    let all = score.caught.len() + score.missed.len();
    if !is_partial && score.caught.len() * 100 < all * TARGET_PERCENT {
        problems.push(format!(
            "{group}: the tests find less than {TARGET_PERCENT} % of {all} mutants"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(name: &str, summary: &str) -> Value {
        json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary })
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(ToOwned::to_owned).into()
    }

    #[test]
    fn mutants_are_counted_by_their_outcome() {
        let (f, g, h) = (
            "a.rs:1:2: replace f -> bool with true",
            "a.rs:1:2: replace g with ()",
            "a.rs:9:5: replace == with != in <impl A for B>::h",
        );
        let mut score = Score::default();
        score.add(&json!({ "outcomes": [
            { "scenario": "Baseline", "summary": "Success" },
            outcome(f, "CaughtMutant"),
            outcome(g, "MissedMutant"),
            outcome(h, "MissedMutant"),
            outcome("a.rs:9:5: replace i", "Unviable"),
        ] }));
        let (caught, missed) = (names([f]), names([g, h]));
        assert_eq!(score, Score { caught, missed });
        // The next pass tries those that the first missed.
        score.add(&json!({ "outcomes": [outcome(g, "Timeout"), outcome(h, "MissedMutant")] }));
        let (caught, missed) = (names([f, g]), names([h]));
        assert_eq!(score, Score { caught, missed });
    }

    #[test]
    fn survivors_need_a_reason_and_the_target_counts() {
        let listed = survivors("# comment\n\na.rs: replace f\n  It only formats.\n");
        assert_eq!(listed, ["a.rs: replace f"]);
        let score = |caught: u32, missed| Score {
            caught: (0..caught).map(|number| number.to_string()).collect(),
            missed: names([missed]),
        };
        let (listed_one, unlisted_one) = ("a.rs:1:2: replace f", "a.rs:1:2: replace g");
        assert!(problems("x", &score(9, listed_one), &listed, false).is_empty());
        let below = "x: the tests find less than 90 % of 9 mutants";
        assert_eq!(problems("x", &score(8, listed_one), &listed, false), [below]);
        assert!(problems("x", &score(1, listed_one), &listed, true).is_empty());
        let unlisted = "no test finds a.rs: replace g";
        assert_eq!(problems("x", &score(99, unlisted_one), &listed, false), [unlisted]);
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
