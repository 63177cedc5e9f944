//! A directory for one run of tests or benchmarks.
//!
//! Every run has its own directory, so that concurrent runs do not interfere. The next run removes the directory of a
//! killed run, which it recognizes by its free lock.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::services::{postgres, redis};
use crate::{paths, process};

/// Log of a server that runs in the directory. The file with its process id is in the same directory.
pub const SERVER_LOG: &str = "server.log";

/// Log of the simulators of the external systems.
pub const SIMULATORS_LOG: &str = "simulators.log";

/// Log of a second server.
pub const OTHER_LOG: &str = "other.log";

/// Removed when it is dropped.
pub struct Scratch {
    pub dir: PathBuf,
    _lock: Option<File>,
}

impl Scratch {
    pub fn new() -> Result<Self> {
        Self::named("run")
    }

    /// One of several of this process.
    pub fn named(name: &str) -> Result<Self> {
        let state = paths::state()?;
        sweep(&state);
        Self::within(&state, name)
    }

    /// Creates the directory in memory if enough is free, else on disk.
    pub fn in_memory() -> Result<Self> {
        Self::in_memory_named("run")
    }

    /// One of several of this process.
    pub fn in_memory_named(name: &str) -> Result<Self> {
        match paths::in_memory()? {
            Some(memory) => {
                sweep(&memory);
                Self::within(&memory, name)
            }
            None => Self::named(name),
        }
    }

    fn within(parent: &Path, name: &str) -> Result<Self> {
        let dir = parent.join(format!("test-{}-{name}", std::process::id()));
        // Root's umask must not exclude the user of the services.
        fs::create_dir_all(&dir)
            .and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let lock = lock(&dir)?;
        Ok(Self { dir, _lock: lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes the directories of killed runs. Best effort: errors are ignored.
fn sweep(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let dir = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("test-") {
            continue;
        }
        if let Ok(Some(_lock)) = lock(&dir) {
            for log in [SERVER_LOG, OTHER_LOG] {
                for program in [paths::released("recado"), paths::built("recado")] {
                    process::stop_left_over(&dir.join(log), &program);
                }
            }
            process::stop_left_over(&dir.join(SIMULATORS_LOG), &paths::built("recado-simulators"));
            let _ = postgres::stop_left_over(&dir.join("postgres"));
            redis::stop_left_over(&dir.join("redis"));
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

/// Locks a directory for the lifetime of the returned file. `None`: another process has locked it.
pub fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(cause)) => Err(cause).with_context(|| format!("cannot lock {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_locked_by_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        assert!(held.is_some());
        assert!(lock(dir.path()).unwrap().is_none());
        drop(held);
        // A child that another test forks meanwhile shares the lock until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while lock(dir.path()).unwrap().is_none() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}
