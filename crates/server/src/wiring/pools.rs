//! Which connections there are, for whom, and how long anybody waits for them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use recado_domain::audit::AuditLogs;
use recado_domain::notifications::Notifications;
use recado_postgres::{OwnerPool, PgAudit, PgNotificationFeed, PgNotifications, PoolConfig, PoolRegistry, TenantPool};

use super::{Shared, Stores};
use crate::config::Config;
use crate::readiness::Readiness;

/// Platform connections of each worker thread: beside those that the operator grants to requests, few of which need one,
/// so that these few take none from all others.
const OWNER_CONNECTIONS: usize = 2;

/// Connections of each worker thread for requests that have proved nothing yet: clicks on links, calls of inbound
/// endpoints. Authentication needs none of them.
const ANONYMOUS_CONNECTIONS: usize = 1;

/// Connections of each worker thread for keys that were never seen: one batch is looked up at a time.
const KEY_CONNECTIONS: usize = 1;

/// Connections of each worker thread for the audit log: its own, opened by the first look at it, so that a reader who
/// waits for a log that is locked keeps nobody from being let in.
const AUDIT_CONNECTIONS: usize = 1;

/// The same for notifications that are still on their way.
const NOTIFICATION_CONNECTIONS: usize = 1;

/// The lock timeout of requests. With the default `DATABASE_WAIT_TIMEOUT`, a caller gets 503 within two seconds. The
/// timeout is longer than PostgreSQL's `deadlock_timeout` of one second.
const REQUEST_LOCK_TIMEOUT: Duration = Duration::from_millis(1150);

/// Sets the short timeouts of a request pool, so that callers get their 503 soon.
fn with_request_timeouts(config: &Config, pool: PoolConfig) -> PoolConfig {
    let wait_timeout = config.database_wait_timeout.unsigned_abs();
    PoolConfig {
        wait_timeout,
        connect_timeout: wait_timeout,
        lock_timeout: REQUEST_LOCK_TIMEOUT,
        ..pool
    }
}

/// On a connection of its own, so that no load of requests makes a server look as if its database were away.
pub(super) fn readiness(config: &Config, pool_registry: &PoolRegistry) -> anyhow::Result<Readiness> {
    let pool = PoolConfig::new(config.database_url.clone(), 1).counted(pool_registry, "readiness");
    let pool =
        OwnerPool::new(&with_request_timeouts(config, pool)).context("DATABASE_URL is not a valid PostgreSQL URL")?;
    Ok(Readiness::new(pool))
}

impl Shared {
    /// What a pool is made of, counted with all others that are for this.
    pub(super) fn pool(&self, purpose: &'static str, size: usize) -> PoolConfig {
        PoolConfig::new(self.config.database_url.clone(), size).counted(&self.pool_registry, purpose)
    }

    /// Stores with connections of their own, for work that nobody waits for.
    pub fn stores(&self, tenant_connections: usize, owner_connections: usize) -> anyhow::Result<Stores> {
        let pool = |size| self.pool("workers", size);
        Stores::new(&pool(tenant_connections), &pool(owner_connections))
    }

    /// Stores with connections of their own, for requests.
    pub(super) fn request_stores(&self, tenant_connections: usize) -> anyhow::Result<Stores> {
        let pool = |size| with_request_timeouts(&self.config, self.pool("requests", size));
        Stores::new(&pool(tenant_connections), &pool(OWNER_CONNECTIONS))
    }

    /// Connections for requests that have proved nothing yet.
    pub(super) fn anonymous(&self) -> anyhow::Result<OwnerPool> {
        let pool = with_request_timeouts(&self.config, self.pool("anonymous", ANONYMOUS_CONNECTIONS));
        OwnerPool::new(&pool).context("DATABASE_URL is not a valid PostgreSQL URL")
    }

    /// Connections for keys that were never seen.
    pub(super) fn unseen_keys(&self) -> anyhow::Result<OwnerPool> {
        let pool = with_request_timeouts(&self.config, self.pool("keys", KEY_CONNECTIONS));
        OwnerPool::new(&pool).context("DATABASE_URL is not a valid PostgreSQL URL")
    }

    /// The audit log, with connections of its own.
    pub(super) fn audit(&self) -> anyhow::Result<AuditLogs> {
        let pool = OwnerPool::new(&self.pool("audit", AUDIT_CONNECTIONS))
            .context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(AuditLogs::new(Arc::new(PgAudit::new(pool))))
    }

    /// Notifications, with connections of their own to what is still on its way.
    pub(super) fn notifications(&self, tenant: &TenantPool) -> anyhow::Result<Notifications> {
        let pool = OwnerPool::new(&self.pool("notifications", NOTIFICATION_CONNECTIONS))
            .context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(Notifications::new(Arc::new(PgNotifications::new(tenant.clone(), pool))))
    }

    /// Where the streams' task looks for new notifications, with a connection of its own.
    pub fn notification_feed(&self) -> anyhow::Result<PgNotificationFeed> {
        let pool = OwnerPool::new(&self.pool("streams", 1)).context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(PgNotificationFeed::new(pool))
    }
}
