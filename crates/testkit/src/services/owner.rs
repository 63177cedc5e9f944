//! The user that runs a service: the current user, or an unprivileged one for root, because PostgreSQL refuses root.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths;

pub struct Owner {
    ids: Option<(u32, u32)>,
}

impl Owner {
    pub fn detect() -> Result<Self> {
        if !paths::is_root()? {
            return Ok(Self { ids: None });
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        match user(&users, "postgres").or_else(|| user(&users, "nobody")) {
            Some(ids) => Ok(Self { ids: Some(ids) }),
            None => bail!("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody"),
        }
    }

    /// A command that runs as this user, without the caller's PostgreSQL settings and locale.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.ids {
            // std also drops root's supplementary groups here.
            command.uid(uid).gid(gid);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        // PostgreSQL complains about a working directory it cannot enter.
        command.env("LC_ALL", "C").current_dir("/");
        command
    }

    /// Makes this user the owner of a file or directory.
    pub fn give(&self, path: &Path) -> Result<()> {
        match self.ids {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid))
                .with_context(|| format!("cannot change the owner of {}", path.display())),
            None => Ok(()),
        }
    }

    /// Creates a directory that only this user can enter.
    pub fn private_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path)
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
            .with_context(|| format!("cannot create {}", path.display()))?;
        self.give(path)
    }
}

/// User and group id of a user in /etc/passwd.
fn user(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_user_is_found_by_the_full_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:7::/:/bin/sh\npostgres:x:101:104:PG:/var:/bin/sh\n";
        assert_eq!(user(users, "postgres"), Some((101, 104)));
        assert_eq!(user(users, "nobody"), None);
    }
}
