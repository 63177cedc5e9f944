//! The development state of this checkout: its lock, its secrets, and the running instance.
//!
//! `lock` is locked while a launcher runs; the kernel releases it with the process, so it is never stale. `dev.env`
//! holds the secrets, which are generated once. `run.env` holds the whole environment of the running server. Both have
//! plain `NAME=value` lines for shells and debuggers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::scratch::lock;
use crate::{paths, secrets};

/// The name of the file with the environment of the running server.
pub const RUNNING: &str = "run.env";

pub type Env = BTreeMap<String, String>;

/// The state directory, locked by this process.
pub struct State {
    pub dir: PathBuf,
    _lock: File,
}

impl State {
    /// Locks the state. `None`: another launcher has locked it.
    pub fn take() -> Result<Option<Self>> {
        let dir = paths::state()?;
        Ok(lock(&dir)?.map(|lock| Self { dir, _lock: lock }))
    }

    /// Deletes everything but the lock and downloaded binaries.
    pub fn clear(&self) -> Result<()> {
        let entries = fs::read_dir(&self.dir).with_context(|| format!("cannot list {}", self.dir.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            // Test runs have their own clusters here, which may be running.
            if name == "lock" || name == "cache" || name.to_string_lossy().starts_with("test-") {
                continue;
            }
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.with_context(|| format!("cannot delete {}", path.display()))?;
        }
        Ok(())
    }

    /// Publishes the running instance to the other commands until the returned value is dropped.
    pub fn publish(&self, env: &Env) -> Result<RunningInstance> {
        Ok(RunningInstance(write_running(&self.dir, env)?))
    }
}

/// Writes the environment of a running server into a directory, for commands and shells.
pub fn write_running(dir: &Path, env: &Env) -> Result<PathBuf> {
    let path = dir.join(RUNNING);
    secrets::write_private(&path, &render(env))?;
    Ok(path)
}

pub struct RunningInstance(PathBuf);

impl Drop for RunningInstance {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The environment of the running development server.
pub fn running() -> Result<Env> {
    let dir = paths::state()?;
    if lock(&dir)?.is_none()
        && let Ok(text) = fs::read_to_string(dir.join(RUNNING))
    {
        return Ok(parse(&text));
    }
    bail!("the development server is not running: start it with cargo xtask dev")
}

/// Reads the development secrets; generates and stores the missing ones.
pub fn dev_secrets(dir: &Path) -> Result<Env> {
    let path = dir.join("dev.env");
    let mut env = fs::read_to_string(&path).map(|text| parse(&text)).unwrap_or_default();
    let before = env.len();
    for name in [
        "SESSION_JWT_SECRET",
        "WHATSAPP_APP_SECRET",
        "WHATSAPP_VERIFY_TOKEN",
        "WHATSAPP_ACCESS_TOKEN",
        "PAYMENT_GATEWAY_API_KEY",
        "PAYMENT_GATEWAY_WEBHOOK_TOKEN",
        "TENANT_DATABASE_PASSWORD",
    ] {
        if !env.contains_key(name) {
            env.insert(name.to_owned(), secrets::password()?);
        }
    }
    if !env.contains_key("APP_SECRET") {
        env.insert("APP_SECRET".to_owned(), secrets::base64(&secrets::random::<32>()?));
    }
    if !env.contains_key("DEMO_API_KEY") {
        let key = format!("svc_live_sk_{}", secrets::base64url(&secrets::random::<24>()?));
        env.insert("DEMO_API_KEY".to_owned(), key);
    }
    if env.len() != before {
        secrets::write_private(&path, &render(&env))?;
    }
    Ok(env)
}

/// Returns a required value. The error names the missing variable.
pub fn value<'e>(env: &'e Env, name: &str) -> Result<&'e str> {
    match env.get(name) {
        Some(value) => Ok(value),
        None => bail!("{name} is missing from the development environment: run cargo xtask dev --reset"),
    }
}

fn render(env: &Env) -> String {
    env.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

fn parse(text: &str) -> Env {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_file_round_trips() {
        let env = Env::from([("A".to_owned(), "x=y==".to_owned()), ("B".to_owned(), String::new())]);
        assert_eq!(parse(&render(&env)), env);
    }

    #[test]
    fn dev_secrets_are_generated_once_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let first = dev_secrets(dir).unwrap();
        assert_eq!(dev_secrets(dir).unwrap(), first);
        assert_eq!(
            fs::metadata(dir.join("dev.env")).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(first.get("DEMO_API_KEY").unwrap().starts_with("svc_live_sk_"));
    }
}
