//! Removes rows that are over their term, in batches.
//!
//! Each batch records first from which time on the account has all rows (`retention_horizons`): rollups keep the sums of
//! rows that are gone, and are not compared with them.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::retention::{RemovedRows, RetainedRows, RowBatch};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;

use super::direct_messages;
use crate::errors::DbResult;
use crate::pool::INDEX_ORDER;
use crate::sql::{NumberRow, sql};

/// The messages of a batch, without those whose file may have bytes. Their files' rows leave with them.
const MESSAGES: &str = "WITH old AS MATERIALIZED (
       SELECT m.id, m.created_at FROM messages m
       WHERE m.account_id = $1 AND m.created_at < $2 AND m.status <> 'pending' AND NOT EXISTS (
         SELECT 1 FROM message_media f WHERE f.account_id = m.account_id AND f.message_id = m.id
           AND (f.state IN ('pending', 'ready') OR f.abandoned <> '{}'))
       ORDER BY m.created_at LIMIT $3
     ), files AS (
       DELETE FROM message_media f USING old o WHERE f.account_id = $1 AND f.message_id = o.id
     ), gone AS (
       DELETE FROM messages m USING old o WHERE m.account_id = $1 AND m.id = o.id AND m.created_at = o.created_at
       RETURNING 1
     ) SELECT count(*) AS n FROM gone";

/// The metrics of an account are few, so each is read by its own part of the primary key.
const METRIC_EVENTS: &str = "WITH old AS MATERIALIZED (
       SELECT e.metric_name, e.occurred_at, e.id FROM metrics m CROSS JOIN LATERAL (
         SELECT metric_name, occurred_at, id FROM metric_events
         WHERE account_id = $1 AND metric_name = m.metric_name AND occurred_at < $2 ORDER BY occurred_at LIMIT $3) e
       WHERE m.account_id = $1 LIMIT $3
     ), gone AS (
       DELETE FROM metric_events e USING old o WHERE e.account_id = $1 AND e.metric_name = o.metric_name
         AND e.occurred_at = o.occurred_at AND e.id = o.id RETURNING 1
     ) SELECT count(*) AS n FROM gone";

/// The id of an order begins with the time of its first report. Its key stays, so that a late report changes nothing.
const ORDERS: &str = "WITH old AS MATERIALIZED (
       SELECT id FROM orders WHERE account_id = $1 AND id < first_id($2) ORDER BY id LIMIT $3
     ), items AS (
       DELETE FROM order_items i USING old o WHERE i.account_id = $1 AND i.order_id = o.id
     ), gone AS (
       DELETE FROM orders r USING old o WHERE r.account_id = $1 AND r.id = o.id RETURNING 1
     ) SELECT count(*) AS n FROM gone";

/// The id of a notification begins with its time.
const NOTIFICATIONS: &str = "WITH old AS MATERIALIZED (
       SELECT id FROM notifications WHERE account_id = $1 AND id < first_id($2) ORDER BY id LIMIT $3
     ), gone AS (
       DELETE FROM notifications n USING old o WHERE n.account_id = $1 AND n.id = o.id RETURNING 1
     ) SELECT count(*) AS n FROM gone";

/// The counts are the totals of lists, so they lose the entries that leave. They are updated in the order of their key,
/// as the relay does.
const AUDIT: &str = "WITH old AS MATERIALIZED (
       SELECT created_at, id FROM audit_logs WHERE account_id = $1 AND created_at < $2 ORDER BY created_at, id LIMIT $3
     ), gone AS (
       DELETE FROM audit_logs l USING old o WHERE l.account_id = $1 AND l.created_at = o.created_at AND l.id = o.id
       RETURNING l.created_at, l.entity_type, l.action
     ), counted AS (
       SELECT date_trunc('month', created_at AT TIME ZONE 'UTC')::date AS month, entity_type, action, count(*) AS n
       FROM gone GROUP BY 1, 2, 3
     ), counts AS (
       UPDATE audit_counts c SET n = c.n - k.n FROM counted k
       WHERE c.account_id = $1 AND c.month = k.month AND c.entity_type = k.entity_type AND c.action = k.action
     ) SELECT count(*) AS n FROM gone";

pub(super) async fn remove(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rows: RetainedRows,
    horizon: OffsetDateTime,
    batch: RowBatch,
) -> DbResult<RemovedRows> {
    use diesel_async::SimpleAsyncConnection as _;
    conn.batch_execute(INDEX_ORDER).await?;
    let (table, statement) = match rows {
        RetainedRows::Messages => ("messages", MESSAGES),
        // Their rollup is that of messages.
        RetainedRows::DirectMessages => {
            record_horizon(&mut *conn, account, "messages", horizon).await?;
            return direct_messages::remove(conn, account, horizon, batch).await;
        }
        RetainedRows::MetricEvents => ("metric_events", METRIC_EVENTS),
        RetainedRows::Orders => ("orders", ORDERS),
        RetainedRows::Notifications => ("notifications", NOTIFICATIONS),
        RetainedRows::Audit => ("audit_logs", AUDIT),
    };
    record_horizon(&mut *conn, account, table, horizon).await?;
    let removed: NumberRow = sql(statement)
        .bind(account)
        .bind(horizon)
        .bind(batch.limit)
        .get_result(conn)
        .await?;
    Ok(RemovedRows {
        count: removed.n,
        last: None,
    })
}

async fn record_horizon(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    table: &str,
    horizon: OffsetDateTime,
) -> DbResult<()> {
    sql(
        "INSERT INTO retention_horizons AS h (account_id, table_name, retained_from) VALUES ($1, $2, $3)
         ON CONFLICT (account_id, table_name) DO UPDATE SET retained_from = excluded.retained_from
           WHERE h.retained_from < excluded.retained_from",
    )
    .bind(account)
    .bind(table)
    .bind(horizon)
    .execute(conn)
    .await?;
    Ok(())
}
