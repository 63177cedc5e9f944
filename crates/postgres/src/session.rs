//! Opens the connections of a pool, and keeps their settings behind a transaction pooler such as PgBouncer.
//!
//! A direct connection is one session: its settings are sent in the startup message, as the defaults that no `RESET`
//! can lose, and each statement is prepared once. A transaction pooler refuses or drops these settings, because it
//! gives every transaction another server session. So a refused or lost setting identifies a pooler. From then on the
//! pool relies on no session state:
//!
//! - The role and every setting that differs from the server's are set with `SET LOCAL`, in the message that begins a
//!   transaction. Every statement runs in a transaction, also a single one.
//! - Statements are prepared for one execution and closed before the end of their transaction.
//!
//! The tenant role's settings come from `ALTER ROLE` (see [`tenant_role`](crate::tenant_role)), so that little is left
//! to set.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use diesel::ConnectionError;
use diesel::connection::CacheSize;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use tokio_postgres::Config;

use crate::sqlstate::{self, bad_connection};
use crate::tenant_role::{self, CONSTANT_SETTINGS, NO_ACCOUNT, TENANT_ROLE, text};
use crate::tls::DatabaseTls;

/// A setting that exists only if the startup options reached the session.
const MARKER: &str = "app.session";

/// How the server checks that its client is still connected. A cancelled request closes its connection at once, and
/// the pool may open another one. Without this check, the old statement would run until its timeout, in excess of the
/// pool's maximum size.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Who the connections of a pool act as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The owner, which row-level security does not bind.
    Owner,
    /// The owner after `SET ROLE` to the tenant role.
    AssumedTenant,
    /// A role that logs in with the tenant role's privileges alone.
    Tenant,
}

impl Identity {
    /// The role label of the pool's metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::AssumedTenant | Self::Tenant => "tenant",
        }
    }
}

/// Timeouts of a pool's transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) statement: Duration,
    pub(crate) lock: Duration,
    pub(crate) idle_in_transaction: Duration,
}

type Setting = (&'static str, String);

/// The connections of one pool.
pub(crate) struct Sessions {
    /// Without options.
    config: Config,
    tls: DatabaseTls,
    identity: Identity,
    settings: Vec<Setting>,
    /// Whether a pooler is between the pool and the server. Never reset: a direct connection works, too, if it is used
    /// like one of a pooler.
    pooled: AtomicBool,
    /// The settings that the server's sessions lack.
    missing: RwLock<BTreeSet<&'static str>>,
}

impl Sessions {
    pub(crate) fn new(config: Config, tls: DatabaseTls, identity: Identity, timeouts: Timeouts) -> Self {
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let mut settings = vec![
            ("statement_timeout", milliseconds(timeouts.statement)),
            ("lock_timeout", milliseconds(timeouts.lock)),
            (
                "idle_in_transaction_session_timeout",
                milliseconds(timeouts.idle_in_transaction),
            ),
            ("client_connection_check_interval", milliseconds(CLIENT_CHECK_INTERVAL)),
            // Statements are short: JIT compilation takes longer than their execution.
            ("jit", "off".to_owned()),
        ];
        if identity != Identity::Owner {
            settings.extend(CONSTANT_SETTINGS.map(|(name, value)| (name, value.to_owned())));
        }
        Self {
            config,
            tls,
            identity,
            settings,
            pooled: AtomicBool::new(false),
            missing: RwLock::default(),
        }
    }

    /// Whether no session state may be relied on.
    pub(crate) fn is_pooled(&self) -> bool {
        AtomicBool::load(&self.pooled, Ordering::Relaxed)
    }

    /// Returns the message that commits a read. Behind a pooler its statements are deallocated first: the rows still
    /// refer to them, so the driver closes them only after the commit, when the server session may be another one.
    pub(crate) fn commit_read(&self) -> &'static str {
        if self.is_pooled() {
            "DEALLOCATE ALL; COMMIT"
        } else {
            "COMMIT"
        }
    }

    /// Returns the message that begins a transaction with these additional settings.
    pub(crate) fn begin(&self, begin: &str, settings: &str) -> String {
        let local = if self.is_pooled() {
            self.local_settings()
        } else {
            String::new()
        };
        match (local.is_empty(), settings.is_empty()) {
            (true, true) => begin.to_owned(),
            _ => format!("{begin}; {local}{settings}"),
        }
    }

    fn local_settings(&self) -> String {
        let missing = self.missing.read().unwrap_or_else(PoisonError::into_inner);
        let role = match self.identity {
            Identity::AssumedTenant => format!("SET LOCAL ROLE {TENANT_ROLE}; "),
            Identity::Owner | Identity::Tenant => String::new(),
        };
        let settings = self.settings.iter().filter(|(name, _)| missing.contains(name));
        settings.fold(role, |text, (name, value)| {
            format!("{text}SET LOCAL {name} = {value}; ")
        })
    }

    /// Opens a connection. A tenant's connection that row-level security would not bind is refused.
    pub(crate) async fn open(&self) -> Result<AsyncPgConnection, ConnectionError> {
        if !self.is_pooled() {
            match sqlstate::connect_in_transaction(&self.direct(), &self.tls).await {
                Ok(mut conn) => {
                    if self.has_settings(&mut conn).await? {
                        self.assert_bound(&mut conn).await?;
                        return commit(conn).await;
                    }
                }
                Err(error) if is_refused_option(&error) => {}
                Err(error) => return Err(error),
            }
            tracing::info!(
                role = self.identity.label(),
                "a connection pooler keeps no session settings"
            );
            self.pooled.store(true, Ordering::Relaxed);
        }
        let mut conn = sqlstate::connect_in_transaction(&self.config, &self.tls).await?;
        conn.set_prepared_statement_cache_size(CacheSize::Disabled);
        self.assert_bound(&mut conn).await?;
        self.find_missing_settings(&mut conn).await?;
        commit(conn).await
    }

    /// The configuration with all settings as startup options.
    fn direct(&self) -> Config {
        let mut config = self.config.clone();
        let mut options = config.get_options().unwrap_or_default().to_owned();
        for (name, value) in &self.settings {
            options.push_str(&format!(" -c {name}={value}"));
        }
        if self.identity == Identity::AssumedTenant {
            options.push_str(&format!(" -c role={TENANT_ROLE}"));
        }
        if self.identity != Identity::Owner {
            options.push_str(&format!(" -c app.account_id={NO_ACCOUNT}"));
        }
        options.push_str(&format!(" -c {MARKER}=direct"));
        config.options(options.trim_start());
        config
    }

    /// Whether the startup options reached the session.
    async fn has_settings(&self, conn: &mut AsyncPgConnection) -> Result<bool, ConnectionError> {
        let role = match self.identity {
            Identity::AssumedTenant => format!("current_user = '{TENANT_ROLE}'"),
            Identity::Owner | Identity::Tenant => "true".to_owned(),
        };
        let account = match self.identity {
            Identity::Owner => "true".to_owned(),
            _ => format!("current_setting('app.account_id', true) = '{NO_ACCOUNT}'"),
        };
        let query = format!(
            "SELECT CASE WHEN {role} AND {account} AND current_setting('{MARKER}', true) = 'direct'
               THEN 'yes' ELSE 'no' END AS text"
        );
        Ok(text(conn, query).await? == "yes")
    }

    async fn assert_bound(&self, conn: &mut AsyncPgConnection) -> Result<(), ConnectionError> {
        if self.identity != Identity::Tenant {
            return Ok(());
        }
        let problem = text(conn, tenant_role::problem_query("session_user")).await?;
        if problem.is_empty() {
            return Ok(());
        }
        Err(bad_connection(format!("the role of TENANT_DATABASE_URL {problem}")))
    }

    async fn find_missing_settings(&self, conn: &mut AsyncPgConnection) -> Result<(), ConnectionError> {
        let wanted: Vec<String> = self
            .settings
            .iter()
            .map(|(name, value)| format!("('{name}', '{value}')"))
            .collect();
        let query = format!(
            "SELECT coalesce(string_agg(w.name, ' '), '') AS text FROM (VALUES {}) AS w (name, value)
             LEFT JOIN pg_settings s ON s.name = w.name WHERE s.setting IS DISTINCT FROM w.value",
            wanted.join(", ")
        );
        let found = text(conn, query).await?;
        let mut missing = self.missing.write().unwrap_or_else(PoisonError::into_inner);
        let names = found.split(' ');
        missing.extend(names.filter_map(|name| {
            self.settings
                .iter()
                .map(|(known, _)| *known)
                .find(|known| *known == name)
        }));
        Ok(())
    }
}

async fn commit(mut conn: AsyncPgConnection) -> Result<AsyncPgConnection, ConnectionError> {
    conn.batch_execute("COMMIT").await.map_err(bad_connection)?;
    Ok(conn)
}

/// Whether a pooler refused the startup options. PgBouncer's messages are not translated.
fn is_refused_option(error: &ConnectionError) -> bool {
    error.to_string().contains("unsupported startup parameter")
}
