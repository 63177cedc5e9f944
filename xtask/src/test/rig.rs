//! The services of one test run: a throw-away cluster and Redis in a directory of its own.
//!
//! Every run has its own, so that two of them can go on at once and none finds another's rubbish. A directory whose
//! run was killed is recognised by its lock, which nobody holds, and removed by the next run.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Result};
use crate::services::postgres::{self, Cluster, Purpose};
use crate::services::redis::{self, Redis};
use crate::{paths, state};

/// Stopped and removed in the order of the fields.
pub(crate) struct Rig {
    redis: Option<Redis>,
    cluster: Option<Cluster>,
    environment: Vec<(&'static str, String)>,
    _dir: Scratch,
}

struct Scratch {
    dir: PathBuf,
    _lock: Option<File>,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Rig {
    pub(crate) fn start() -> Result<Self> {
        let state = paths::state()?;
        sweep(&state);
        let dir = state.join(format!("test-{}", std::process::id()));
        // Root's own umask must not keep the services' user out.
        fs::create_dir_all(&dir)
            .and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)))
            .context(|| format!("cannot make {}", dir.display()))?;
        let lock = state::lock(&dir)?;
        let scratch = Scratch {
            dir: dir.clone(),
            _lock: lock,
        };
        let mut rig = Self {
            redis: None,
            cluster: None,
            environment: Vec::new(),
            _dir: scratch,
        };
        let database = match std::env::var("TEST_DATABASE_URL") {
            Ok(url) => url,
            Err(_) => {
                let cluster = Cluster::start(&dir.join("postgres"), Purpose::Tests)?;
                rig.cluster.insert(cluster).url("postgres")
            }
        };
        let counters = match std::env::var("TEST_REDIS_URL") {
            Ok(url) => url,
            Err(_) => rig.redis.insert(Redis::start(&dir.join("redis"))?).url(),
        };
        rig.environment = vec![("TEST_DATABASE_URL", database), ("TEST_REDIS_URL", counters)];
        Ok(rig)
    }

    /// What the tests find in their environment.
    pub(crate) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }

    /// A superuser's URL.
    pub(crate) fn database_url(&self) -> &str {
        self.environment
            .iter()
            .find(|(name, _)| *name == "TEST_DATABASE_URL")
            .map_or("", |(_, url)| url)
    }
}

/// Removes what killed runs left behind. Best effort: a failure here is no reason not to test.
fn sweep(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let dir = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("test-") {
            continue;
        }
        if let Ok(Some(_lock)) = state::lock(&dir) {
            let _ = postgres::stop_left_over(&dir.join("postgres"));
            redis::stop_left_over(&dir.join("redis"));
            let _ = fs::remove_dir_all(&dir);
        }
    }
}
