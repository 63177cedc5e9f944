//! The services of a test run: a temporary cluster and Redis in their own directory.

use std::path::Path;

use anyhow::Result;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::find;
use recado_testkit::services::postgres::{Cluster, Purpose};
use recado_testkit::services::redis::Redis;

/// Stopped and removed in the order of the fields.
pub(crate) struct TestServices {
    redis: Option<Redis>,
    cluster: Option<Cluster>,
    environment: Vec<(&'static str, String)>,
    scratch: Scratch,
}

impl TestServices {
    pub(crate) fn start() -> Result<Self> {
        let scratch = Scratch::in_memory()?;
        let dir = scratch.dir.clone();
        let mut services = Self {
            redis: None,
            cluster: None,
            environment: Vec::new(),
            scratch,
        };
        let database = match std::env::var("TEST_DATABASE_URL") {
            Ok(url) => url,
            Err(_) => {
                let cluster = Cluster::start(&dir.join("postgres"), Purpose::Tests)?;
                services.cluster.insert(cluster).url("postgres")
            }
        };
        let counters = match std::env::var("TEST_REDIS_URL") {
            Ok(url) => url,
            Err(_) => services.redis.insert(Redis::start(&dir.join("redis"))?).url(),
        };
        // Some tests stop Redis or PostgreSQL, so they start their own.
        let binary = find::redis_or_install()?.display().to_string();
        let programs = find::postgres_or_install()?.display().to_string();
        services.environment = vec![
            ("TEST_DATABASE_URL", database),
            ("TEST_REDIS_URL", counters),
            ("REDIS_BIN", binary),
            ("PG_BIN", programs),
        ];
        // Without it, its tests record that they were skipped.
        if let Some(pooler) = find::pgbouncer_or_install()? {
            services
                .environment
                .push(("PGBOUNCER_BIN", pooler.display().to_string()));
        }
        Ok(services)
    }

    /// Environment variables of the tests.
    pub(crate) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }

    /// The directory of the run, removed at its end.
    pub(crate) fn dir(&self) -> &Path {
        &self.scratch.dir
    }

    /// A superuser's URL.
    pub(crate) fn database_url(&self) -> &str {
        self.environment
            .iter()
            .find(|(name, _)| *name == "TEST_DATABASE_URL")
            .map_or("", |(_, url)| url)
    }
}
