//! Connection pools: their purposes, sizes and timeouts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use recado_domain::audit::AuditLogs;
use recado_domain::notifications::Notifications;
use recado_postgres::{OwnerPool, PgAudit, PgNotificationFeed, PgNotifications, PgRowLocks, PoolConfig, TenantPool};

use super::startup::with_request_timeouts;
use super::{Shared, Stores};

/// Owner connections of each HTTP thread, in addition to `DATABASE_POOL_SIZE`. Few requests need one, and these take no
/// tenant connection from the others.
const OWNER_CONNECTIONS: usize = 2;

/// Connections of each HTTP thread for unauthenticated requests: clicks on links, calls of inbound endpoints.
/// Authentication does not use them.
const ANONYMOUS_CONNECTIONS: usize = 1;

/// Connections of each HTTP thread for unseen API keys: one batch is looked up at a time.
const KEY_CONNECTIONS: usize = 1;

/// Connections of each HTTP thread for the audit log, opened on first use. They are separate, so that readers that wait
/// for a locked audit log do not block authentication.
const AUDIT_CONNECTIONS: usize = 1;

/// Connections of each HTTP thread for notifications that are still in the outbox.
const NOTIFICATION_CONNECTIONS: usize = 1;

/// Connections of each HTTP thread for requests with `If-Match`: each holds one while it uses others. The second one is
/// for other rows while a request waits for its row.
const ROW_LOCK_CONNECTIONS: usize = 2;

/// How long such a request waits for a connection, behind others for the same row.
const ROW_LOCK_WAIT: Duration = Duration::from_secs(10);

/// How long such a request may take. Some of them call WhatsApp or the payment gateway. PostgreSQL ends a lock that is
/// held for longer.
const LONGEST_WRITE: Duration = Duration::from_secs(90);

impl Shared {
    /// The configuration of a pool that is counted under `purpose`.
    pub(super) fn pool(&self, purpose: &'static str, size: usize) -> PoolConfig {
        PoolConfig::new(self.config.database_url.clone(), size)
            .tls(self.config.tls.database.clone())
            .tenant_login(self.config.tenant_database_url.clone())
            .counted(&self.pool_registry, purpose)
    }

    /// Stores with their own connections, for background work.
    pub fn stores(&self, tenant_connections: usize, owner_connections: usize) -> anyhow::Result<Stores> {
        let pool = |size| self.pool("workers", size);
        Stores::new(&pool(tenant_connections), &pool(owner_connections))
    }

    /// Stores with their own connections, for requests.
    pub(super) fn request_stores(&self, tenant_connections: usize) -> anyhow::Result<Stores> {
        let pool = |size| with_request_timeouts(&self.config, self.pool("requests", size));
        Stores::new(&pool(tenant_connections), &pool(OWNER_CONNECTIONS))
    }

    /// Connections for unauthenticated requests.
    pub(super) fn anonymous(&self) -> anyhow::Result<OwnerPool> {
        let pool = with_request_timeouts(&self.config, self.pool("anonymous", ANONYMOUS_CONNECTIONS));
        OwnerPool::new(&pool).context("DATABASE_URL is not a valid PostgreSQL URL")
    }

    /// Connections for unseen API keys.
    pub(super) fn unseen_keys(&self) -> anyhow::Result<OwnerPool> {
        let pool = with_request_timeouts(&self.config, self.pool("keys", KEY_CONNECTIONS));
        OwnerPool::new(&pool).context("DATABASE_URL is not a valid PostgreSQL URL")
    }

    /// Locks of rows, with their own connections.
    pub(super) fn row_locks(&self) -> anyhow::Result<PgRowLocks> {
        let config = PoolConfig {
            idle_in_transaction_timeout: LONGEST_WRITE,
            wait_timeout: ROW_LOCK_WAIT,
            ..self.pool("row_locks", ROW_LOCK_CONNECTIONS)
        };
        let pool = OwnerPool::new(&config).context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(PgRowLocks::new(pool))
    }

    /// The audit log, with its own connections.
    pub(super) fn audit(&self) -> anyhow::Result<AuditLogs> {
        let pool = OwnerPool::new(&self.pool("audit", AUDIT_CONNECTIONS))
            .context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(AuditLogs::new(Arc::new(PgAudit::new(pool))))
    }

    /// Notifications, with their own connections for those that are still in the outbox.
    pub(super) fn notifications(&self, tenant: &TenantPool) -> anyhow::Result<Notifications> {
        let pool = OwnerPool::new(&self.pool("notifications", NOTIFICATION_CONNECTIONS))
            .context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(Notifications::new(Arc::new(PgNotifications::new(tenant.clone(), pool))))
    }

    /// The feed that the task of the notification streams polls, with its own connection.
    pub fn notification_feed(&self) -> anyhow::Result<PgNotificationFeed> {
        let pool = OwnerPool::new(&self.pool("streams", 1)).context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(PgNotificationFeed::new(pool))
    }
}
