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
    "campaign_claims",
    "campaign_recipient_batches",
    "campaign_queue",
    "campaign_retries",
    "campaign_retry_batches",
    "gateway_cancellations",
    "gateway_events",
    "idempotency_key_counts",
    "idempotency_keys",
    "mail_recipients",
    "phone_number_send_slots",
    "outbox_events",
    "outgoing_mail",
    "rfm_calculations",
    "rfm_changes",
    "webhook_deliveries",
    "whatsapp_callbacks",
];

/// The table that grew most since its last `ANALYZE`: to more than twice its rows, and by more than a thousand.
/// Updated rows do not count, because they do not change the number of rows.
///
/// Autovacuum analyzes partitions, but never a partitioned table, whose statistics a join needs. So a partitioned table
/// counts with the rows of its partitions, and is also analyzed once a week.
const MOST_STALE_TABLE: &str = include_str!("most_stale_table.sql");

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
