//! Connection pools: the tenant pool, whose transactions row-level security binds to one account, and the owner pool.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{PoolError, QueueMode, TimeoutType};
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};
use futures_util::FutureExt;
use recado_domain::shared::{AccountId, StoreError};
use secrecy::SecretString;
use thiserror::Error;

use crate::errors::{DbError, failed};
use crate::pool_registry::{PoolRegistry, PoolUsage, usage};
use crate::session::{Identity, Sessions, Timeouts};
use crate::tls::{DatabaseTls, parse_url};

/// TCP keepalive: idle time before the first probe, interval and number of probes, and the timeout for unacknowledged
/// data. Firewalls and NAT devices drop idle connections without notice.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(20);

/// Plan settings of a tenant's statements. By default a statement has one generic plan for all accounts, keys and
/// pages. A custom plan for an account without statistics would scan all of its rows, because the planner expects a
/// single row.
const GENERIC_PLANS: &str = "";
const CUSTOM_PLANS: &str = "SET LOCAL plan_cache_mode = auto; ";

/// Plan setting for a page of a list. For the average account, which has few rows, the planner might read and sort
/// all rows instead of reading them in index order.
pub(crate) const INDEX_ORDER: &str = "SET LOCAL enable_sort = off; ";
const CUSTOM_PLANS_IN_INDEX_ORDER: &str = "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_sort = off; ";

/// For statements on queues that keep their plans, because they are too large to be
/// [planned each time](crate::sql::PlannedEachTime): without sequential scans, bitmap scans and sorts, index scans remain.
const QUEUE_PLANS: &str = "SELECT set_config(name, 'off', true)
     FROM unnest('{enable_seqscan,enable_bitmapscan,enable_sort}'::text[]) AS name";

/// How a pool connects, and its timeouts.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The owner's URL, `postgres://...`.
    pub url: SecretString,
    /// How the connections are encrypted. Default: not at all, and loopback hosts only.
    pub tls: DatabaseTls,
    /// The URL as which tenant pools log in. None: they log in as the owner and assume the tenant role.
    pub tenant_url: Option<SecretString>,
    /// Maximum number of connections.
    pub size: usize,
    /// Maximum wait for a free connection.
    pub wait_timeout: Duration,
    /// `statement_timeout` of the session.
    pub statement_timeout: Duration,
    /// `lock_timeout` of the session.
    pub lock_timeout: Duration,
    /// `idle_in_transaction_session_timeout` of the session.
    pub idle_in_transaction_timeout: Duration,
    /// Maximum time to open a connection.
    pub connect_timeout: Duration,
    /// The registry that reports the pool's metrics, and the pool's purpose there.
    pub pool_registry: Option<(PoolRegistry, &'static str)>,
}

impl PoolConfig {
    /// Uses the default timeouts.
    pub fn new(url: SecretString, size: usize) -> Self {
        Self {
            url,
            tls: DatabaseTls::default(),
            tenant_url: None,
            size,
            wait_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            idle_in_transaction_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            pool_registry: None,
        }
    }

    /// Sets how the connections are encrypted.
    #[must_use]
    pub fn tls(self, tls: DatabaseTls) -> Self {
        Self { tls, ..self }
    }

    /// Registers the pool's metrics under a purpose. Pools with the same purpose are added up.
    #[must_use]
    pub fn counted(self, pool_registry: &PoolRegistry, purpose: &'static str) -> Self {
        let pool_registry = Some((pool_registry.clone(), purpose));
        Self { pool_registry, ..self }
    }

    /// Tenant pools log in with this URL.
    #[must_use]
    pub fn tenant_login(self, tenant_url: Option<SecretString>) -> Self {
        Self { tenant_url, ..self }
    }

    fn sessions(&self, identity: Identity, url: &SecretString) -> Result<Sessions, StoreError> {
        let mut config = parse_url(url)?;
        config.application_name(if identity == Identity::Owner {
            "recado owner"
        } else {
            "recado tenant"
        });
        config.connect_timeout(self.connect_timeout);
        config.keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        config.keepalives_retries(KEEPALIVE_RETRIES);
        config.tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
        let timeouts = Timeouts {
            statement: self.statement_timeout,
            lock: self.lock_timeout,
            idle_in_transaction: self.idle_in_transaction_timeout,
        };
        Ok(Sessions::new(config, self.tls.clone(), identity, timeouts))
    }

    fn pool(&self, identity: Identity, url: &SecretString) -> Result<Connections, StoreError> {
        let sessions = Arc::new(self.sessions(identity, url)?);
        let opener = sessions.clone();
        let mut manager = ManagerConfig::default();
        manager.recycling_method = RecyclingMethod::Fast;
        manager.custom_setup = Box::new(move |_| {
            let opener = opener.clone();
            async move { opener.open().await }.boxed()
        });
        let pool = Pool::builder(AsyncDieselConnectionManager::new_with_config(String::new(), manager))
            .max_size(self.size)
            // LIFO: the next caller gets the most recently used connection, whose plans and pages are still cached.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(self.wait_timeout))
            .create_timeout(Some(self.connect_timeout))
            .build()
            .map_err(failed)?;
        let acquire_timeouts = match &self.pool_registry {
            Some((pool_registry, purpose)) => pool_registry.register(purpose, identity.label(), &pool),
            None => Arc::default(),
        };
        Ok(Connections {
            pool,
            sessions,
            acquire_timeouts,
        })
    }
}

/// A pool, and its number of acquire timeouts.
#[derive(Clone)]
pub(crate) struct Connections {
    pool: Pool<AsyncPgConnection>,
    pub(crate) sessions: Arc<Sessions>,
    acquire_timeouts: Arc<AtomicU64>,
}

/// Tenant pool: each transaction sees one account. Its role owns no table.
#[derive(Clone)]
pub struct TenantPool {
    pub(crate) connections: Connections,
    planning: &'static str,
}

/// Owner pool: row-level security does not bind its connections.
#[derive(Clone)]
pub struct OwnerPool(Connections);

impl TenantPool {
    /// A pool that connects on first use. It belongs to the runtime that uses it.
    pub fn new(config: &PoolConfig) -> Result<Self, StoreError> {
        let connections = match &config.tenant_url {
            Some(url) => config.pool(Identity::Tenant, url)?,
            None => config.pool(Identity::AssumedTenant, &config.url)?,
        };
        Ok(Self {
            connections,
            planning: GENERIC_PLANS,
        })
    }

    /// The same connections, with custom plans: for statements that select rows by their values, such as a time
    /// window or an audience. PostgreSQL plans each of them for its parameters if that seems cheaper.
    #[must_use]
    pub(crate) fn with_custom_plans(&self) -> Self {
        let connections = self.connections.clone();
        let planning = CUSTOM_PLANS;
        Self { connections, planning }
    }

    /// The same connections, for a page of a list in index order: rows are read from that index, whatever the planner
    /// expects of the account.
    #[must_use]
    pub(crate) fn in_index_order(&self) -> Self {
        let connections = self.connections.clone();
        let planning = INDEX_ORDER;
        Self { connections, planning }
    }

    /// Both of [`in_index_order`](Self::in_index_order) and [`with_custom_plans`](Self::with_custom_plans).
    #[must_use]
    pub(crate) fn in_index_order_with_custom_plans(&self) -> Self {
        let connections = self.connections.clone();
        let planning = CUSTOM_PLANS_IN_INDEX_ORDER;
        Self { connections, planning }
    }

    /// Returns the statement that sets the account for the policies and the plan mode. The account id is typed, so no
    /// foreign text enters the statement.
    pub(crate) fn settings(&self, AccountId(account): AccountId) -> String {
        format!("{}SET LOCAL app.account_id = '{account}'", self.planning)
    }

    /// Begins a transaction that sees this account only, in one round trip.
    pub(crate) async fn begin(&self, account: AccountId) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.connections, &self.settings(account)).await
    }

    /// Begins a transaction with asynchronous commit: the commit does not wait for the disk. Only for idempotent work
    /// that is repeated until a later transaction records it as done. A database crash that loses this commit also
    /// loses that record.
    pub(crate) async fn begin_async_commit(&self, account: AccountId) -> Result<Transaction, StoreError> {
        let settings = format!("SET LOCAL synchronous_commit = off; {}", self.settings(account));
        Transaction::begin(&self.connections, &settings).await
    }

    pub fn usage(&self) -> PoolUsage {
        usage(&self.connections.pool)
    }
}

impl OwnerPool {
    /// A pool that connects on first use. It belongs to the runtime that uses it.
    pub fn new(config: &PoolConfig) -> Result<Self, StoreError> {
        config.pool(Identity::Owner, &config.url).map(Self)
    }

    /// Takes a connection for a single statement.
    pub(crate) async fn get(&self) -> Result<SingleStatement, StoreError> {
        let connection = PooledConnection::get(&self.0).await?;
        if self.0.sessions.is_pooled() {
            let transaction = Transaction::begin_on(connection, &self.0.sessions, "").await?;
            return Ok(SingleStatement::Transaction(transaction));
        }
        Ok(SingleStatement::Session(connection))
    }

    pub(crate) async fn begin(&self) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.0, "").await
    }

    /// Begins a transaction for a statement on a queue (see [`QUEUE_PLANS`]).
    pub(crate) async fn begin_on_queue(&self) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.0, QUEUE_PLANS).await
    }

    /// Begins a transaction with its own `lock_timeout`.
    pub(crate) async fn begin_within(&self, lock_timeout: Duration) -> Result<Transaction, StoreError> {
        let settings = format!("SET LOCAL lock_timeout = {}", lock_timeout.as_millis());
        Transaction::begin(&self.0, &settings).await
    }

    pub fn usage(&self) -> PoolUsage {
        usage(&self.0.pool)
    }
}

impl fmt::Debug for TenantPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TenantPool").field(&self.usage()).finish()
    }
}

impl fmt::Debug for OwnerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnerPool").field(&self.usage()).finish()
    }
}

#[derive(Debug, Error)]
#[error("the connection was already returned to the pool")]
struct ConnectionReturned;

/// Whether the error may come from the connection's state: a prepared statement whose objects were since changed
/// fails on it for ever. Such a connection is closed.
fn is_suspect(error: &StoreError) -> bool {
    matches!(error, StoreError::Failed(_))
}

/// A connection of a pool. If it is dropped before its work ended (a cancelled request, an early return), it is
/// closed, because a statement or a transaction may still run on it.
pub(crate) struct PooledConnection(Option<Object<AsyncPgConnection>>);

impl PooledConnection {
    pub(crate) async fn get(connections: &Connections) -> Result<Self, StoreError> {
        let object = connections.pool.get().await.map_err(|error| {
            if matches!(error, PoolError::Timeout(TimeoutType::Wait)) {
                connections.acquire_timeouts.fetch_add(1, Ordering::Relaxed);
            }
            StoreError::Unavailable(Box::new(error))
        })?;
        Ok(Self(Some(object)))
    }

    pub(crate) fn conn(&mut self) -> Result<&mut AsyncPgConnection, StoreError> {
        self.0.as_deref_mut().ok_or_else(|| failed(ConnectionReturned))
    }

    /// Ends the use of the connection, with the result of its statement.
    pub(crate) fn end<T>(self, result: Result<T, impl Into<DbError>>) -> Result<T, StoreError> {
        let result = result.map_err(|error| error.into().into());
        match &result {
            Err(error) if is_suspect(error) => drop(self),
            _ => self.return_to_pool(),
        }
        result
    }

    pub(crate) fn return_to_pool(mut self) {
        drop(self.0.take());
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

/// A connection for one statement. Behind a transaction pooler the statement has a transaction of its own, because
/// only a transaction keeps the server session that prepared it.
pub(crate) enum SingleStatement {
    Session(PooledConnection),
    Transaction(Transaction),
}

impl SingleStatement {
    pub(crate) fn conn(&mut self) -> Result<&mut AsyncPgConnection, StoreError> {
        match self {
            Self::Session(connection) => connection.conn(),
            Self::Transaction(transaction) => transaction.conn(),
        }
    }

    pub(crate) async fn end<T>(self, result: Result<T, impl Into<DbError>>) -> Result<T, StoreError> {
        match self {
            Self::Session(connection) => connection.end(result),
            Self::Transaction(transaction) => transaction.end(result).await,
        }
    }
}

/// A transaction. If it is dropped before its end, its connection is closed: neither an open transaction nor a
/// tenant's setting ever returns to the pool.
pub(crate) struct Transaction(PooledConnection);

impl Transaction {
    /// Begins a transaction with these settings, in one round trip.
    async fn begin(connections: &Connections, settings: &str) -> Result<Self, StoreError> {
        let connection = PooledConnection::get(connections).await?;
        Self::begin_on(connection, &connections.sessions, settings).await
    }

    async fn begin_on(
        mut connection: PooledConnection,
        sessions: &Sessions,
        settings: &str,
    ) -> Result<Self, StoreError> {
        AnsiTransactionManager::begin_transaction_sql(connection.conn()?, &sessions.begin("BEGIN", settings))
            .await
            .map_err(DbError::from)?;
        Ok(Self(connection))
    }

    pub(crate) fn conn(&mut self) -> Result<&mut AsyncPgConnection, StoreError> {
        self.0.conn()
    }

    /// Commits after `Ok` and rolls back after `Err`.
    pub(crate) async fn end<T>(mut self, result: Result<T, impl Into<DbError>>) -> Result<T, StoreError> {
        match result {
            Ok(value) => {
                AnsiTransactionManager::commit_transaction(self.conn()?)
                    .await
                    .map_err(DbError::from)?;
                self.0.return_to_pool();
                Ok(value)
            }
            Err(error) => {
                let error = error.into().into();
                match self.send_rollback().await {
                    Ok(()) if !is_suspect(&error) => self.0.return_to_pool(),
                    Ok(()) => {}
                    Err(error) => tracing::debug!(%error, "the rollback failed, its connection is closed"),
                }
                Err(error)
            }
        }
    }

    /// Rolls back and returns the connection to the pool.
    pub(crate) async fn rollback(mut self) -> Result<(), StoreError> {
        self.send_rollback().await?;
        self.0.return_to_pool();
        Ok(())
    }

    async fn send_rollback(&mut self) -> Result<(), StoreError> {
        let rolled_back = AnsiTransactionManager::rollback_transaction(self.conn()?).await;
        Ok(rolled_back.map_err(DbError::from)?)
    }
}
