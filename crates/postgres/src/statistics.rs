//! Planner statistics of tables that grew fast. Autovacuum checks once a minute whether a table needs `ANALYZE`.
//! After the first large import that is too late: planned without statistics, a lookup of one row reads all rows of
//! its account.

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::shared::StoreError;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{FlagRow, TextRow, collect_column, sql};
use crate::transactions::in_owner;

/// Queue tables, left to autovacuum. Their rows come and go, so statistics of one instant mislead the next. An
/// `ANALYZE` there cancels the autovacuum that they depend on, and discards cached plans of frequent statements.
pub const QUEUE_TABLES: &[&str] = &[
    "account_deletions",
    "campaign_recipient_batches",
    "campaign_queue",
    "campaign_retries",
    "gateway_cancellations",
    "gateway_events",
    "idempotency_key_counts",
    "idempotency_keys",
    "mail_recipients",
    "phone_number_send_slots",
    "outbox_events",
    "outgoing_mail",
    "rfm_calculations",
    "webhook_deliveries",
    "whatsapp_callbacks",
];

/// The table that grew most since its last `ANALYZE`: to more than twice its rows, and by more than a thousand.
/// Updated rows do not count, because they do not change the number of rows.
const MOST_STALE_TABLE: &str = "SELECT format('%I.%I', t.schemaname, t.relname) AS text
     FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
     WHERE t.n_mod_since_analyze > 1000 AND t.n_live_tup - greatest(c.reltuples, 0) > 1000
       AND t.n_live_tup > 2 * greatest(c.reltuples, 0) AND t.relname <> ALL ($1)
     ORDER BY t.n_live_tup DESC LIMIT 1";

/// Held during the `ANALYZE`, so that only one server runs it.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock(hashtext('recado analyze')) AS yes";

#[derive(Clone, Debug)]
pub struct PgStatistics(OwnerPool);

impl PgStatistics {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// Analyzes the table with the most outdated statistics. False: there is none, or another server analyzes it now.
    pub async fn refresh(&self) -> Result<bool, StoreError> {
        in_owner!(self.0, |conn| refresh(conn))
    }
}

async fn refresh(conn: &mut AsyncPgConnection) -> DbResult<bool> {
    if !sql(LOCK).get_result::<FlagRow>(conn).await?.yes {
        return Ok(false);
    }
    let tables = sql(MOST_STALE_TABLE).bind(collect_column(QUEUE_TABLES, |table| (*table).to_owned()));
    let Some(table) = tables.load::<TextRow>(conn).await?.pop() else {
        return Ok(false);
    };
    conn.batch_execute(&format!("ANALYZE {}", table.text)).await?;
    Ok(true)
}
