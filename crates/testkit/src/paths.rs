//! Paths of the repository, the build output and the development state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The in-memory file system of Linux, and the free space that it must have.
const MEMORY: &str = "/dev/shm";
const MIN_FREE_BYTES: u64 = 4 << 30;

/// The root of the repository.
pub fn root() -> PathBuf {
    // `cargo run` sets the variable at run time. The compile-time value serves a binary that is started directly.
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let mut above = Path::new(&manifest).ancestors();
    above
        .find(|dir| dir.join("Cargo.lock").is_file())
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Directory of downloaded binaries.
pub fn cache() -> Result<PathBuf> {
    Ok(state()?.join("cache"))
}

/// Path of a debug binary of the workspace.
pub fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Path of a release binary of the workspace.
pub fn released(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// The cargo that started this tool, so that the same pinned toolchain is used.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

pub fn is_root() -> Result<bool> {
    Ok(user_id()? == 0)
}

/// The id of the current user.
fn user_id() -> Result<u32> {
    let out = Command::new("id").arg("-u").output().context("cannot run id -u")?;
    let number = String::from_utf8_lossy(&out.stdout).trim().parse();
    number.context("id -u printed no number")
}

/// A directory name that is unique to this checkout: a hash of its path.
fn own_name() -> String {
    let digest = hex::encode(Sha256::digest(root().as_os_str().as_encoded_bytes()));
    format!("recado-{}", digest.chars().take(12).collect::<String>())
}

/// The directory of all development state of this checkout. Creates it if it is missing.
///
/// For root it is in /var/tmp: PostgreSQL refuses to run as root, and the other user that runs it cannot enter a
/// checkout below /root. The hash of the path separates checkouts.
pub fn state() -> Result<PathBuf> {
    let root = is_root()?;
    let dir = match std::env::var_os("XDG_DATA_HOME") {
        _ if root => Path::new("/var/tmp").join(own_name()),
        Some(data) if Path::new(&data).is_absolute() => Path::new(&data).join(own_name()),
        _ => target().join("dev-state"),
    };
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    if root {
        make_owned(0, &dir)?;
    }
    Ok(dir)
}

/// An in-memory directory for temporary test data. None: too little memory is free.
///
/// Tests create and drop a thousand databases with hundreds of files each. On a disk, that would take longer than the
/// tests themselves.
pub fn in_memory() -> Result<Option<PathBuf>> {
    if !has_free_space(MEMORY) {
        return Ok(None);
    }
    let user = user_id()?;
    let dir = Path::new(MEMORY).join(format!("{}-{user}", own_name()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    make_owned(user, &dir)?;
    Ok(Some(dir))
}

fn has_free_space(dir: &str) -> bool {
    let output = Command::new("df").args(["--output=avail", "-B1", dir]).output();
    let free = output.ok().and_then(|out| {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.lines().last()?.trim().parse::<u64>().ok()
    });
    free.is_some_and(|free| free >= MIN_FREE_BYTES)
}

/// Checks that the directory belongs to the user, then opens it for reading. In a shared directory another user could
/// have created it under the predictable name to read our passwords.
fn make_owned(user: u32, dir: &Path) -> Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let found = fs::symlink_metadata(dir).with_context(|| format!("cannot read the metadata of {}", dir.display()))?;
    if !found.is_dir() || found.uid() != user {
        bail!("{} belongs to another user: remove it", dir.display());
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot set the permissions of {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directory_has_no_free_space() {
        assert!(!has_free_space("/no/such/directory"));
    }
}
