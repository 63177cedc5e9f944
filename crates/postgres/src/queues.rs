//! Depth and age of each queue in the database, for the operator's metrics and alerts.
//!
//! One statement that uses indexes only and reads at most [`DEPTH`] rows of a queue: its cost stays the same when
//! queues grow, which is when it is needed.

use std::time::Duration;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use recado_domain::shared::StoreError;

use crate::pool::OwnerPool;
use crate::sql::sql;

/// Maximum number of rows that are counted per queue.
const DEPTH: i64 = 10_000;

/// Counts due rows only: a row whose time has not come does not wait.
const WAITING: &str = "WITH RECURSIVE endpoints AS (
       (SELECT endpoint_id, 1 AS n FROM webhook_deliveries WHERE state = 'waiting' ORDER BY endpoint_id LIMIT 1)
       UNION ALL
       SELECT (SELECT d.endpoint_id FROM webhook_deliveries d
         WHERE d.state = 'waiting' AND d.endpoint_id > l.endpoint_id ORDER BY d.endpoint_id LIMIT 1), l.n + 1
       FROM endpoints l WHERE l.endpoint_id IS NOT NULL AND l.n < 1000),
     kinds (kind) AS (VALUES ('audit'), ('notification'), ('webhook')),
     waiting (queue, depth, since) AS (
       SELECT 'runs_waiting', count(*), min(waiting_since) FROM (
         SELECT q.waiting_since FROM campaign_queue q
         JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
         JOIN accounts a ON a.id = q.account_id
         WHERE q.worker IS NULL AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
         LIMIT $1) q
       UNION ALL
       SELECT 'runs_under_way', count(*), min(created_at) FROM (
         SELECT created_at FROM campaign_queue WHERE worker IS NOT NULL AND leased_until > now() LIMIT $1) q
       UNION ALL
       SELECT 'schedule', count(*), min(scheduled_at) FROM (
         SELECT c.scheduled_at FROM campaigns c JOIN accounts a ON a.id = c.account_id AND a.status = 'active'
         WHERE c.status = 'scheduled' AND c.deleted_at IS NULL AND c.scheduled_at <= now()
         ORDER BY c.scheduled_at LIMIT $1) q
       UNION ALL
       SELECT 'recipient_batches', count(*), min(created_at) FROM (
         SELECT created_at FROM campaign_recipient_batches UNION ALL SELECT created_at FROM campaign_retry_batches
         LIMIT $1) q
       UNION ALL
       SELECT 'sends_unknown', count(*), min(unknown_at) FROM (
         SELECT unknown_at FROM campaign_sends WHERE unknown_at IS NOT NULL ORDER BY unknown_at LIMIT $1) q
       UNION ALL
       SELECT 'replies_pending', count(*), min(recorded_at) FROM (
         SELECT recorded_at FROM messages WHERE status = 'pending' ORDER BY recorded_at LIMIT $1) q
       UNION ALL
       SELECT 'outbox_' || k.kind, q.depth, q.since FROM kinds k CROSS JOIN LATERAL (
         SELECT count(*) AS depth, min(created_at) AS since FROM (
           SELECT created_at FROM outbox_events WHERE kind = k.kind AND retry_at IS NULL
           ORDER BY seq LIMIT $1) o) q
       UNION ALL
       SELECT 'outbox_set_aside', count(*), min(created_at) FROM (
         SELECT created_at FROM outbox_events WHERE retry_at IS NOT NULL LIMIT $1) q
       UNION ALL
       SELECT 'webhook_deliveries', count(*), min(next_attempt_at) FROM (
         SELECT d.next_attempt_at FROM endpoints l
         JOIN webhook_endpoints e ON e.id = l.endpoint_id AND e.is_active AND e.direction = 'outbound'
         JOIN accounts a ON a.id = e.account_id AND a.status = 'active'
         CROSS JOIN LATERAL (SELECT next_attempt_at FROM webhook_deliveries
           WHERE endpoint_id = l.endpoint_id AND state = 'waiting' AND next_attempt_at <= now()
           ORDER BY next_attempt_at LIMIT $1) d
         LIMIT $1) q
       UNION ALL
       SELECT 'whatsapp_callbacks', count(*), min(received_at) FROM (
         SELECT received_at FROM whatsapp_callbacks WHERE due_at < 'infinity' ORDER BY due_at LIMIT $1) q
       UNION ALL
       SELECT 'whatsapp_callbacks_set_aside', count(*), min(received_at) FROM (
         SELECT received_at FROM whatsapp_callbacks WHERE due_at = 'infinity' LIMIT $1) q
       UNION ALL
       SELECT 'gateway_events', count(*), min(received_at) FROM (
         SELECT received_at FROM gateway_events WHERE due_at IS NOT NULL ORDER BY seq LIMIT $1) q
       UNION ALL
       SELECT 'gateway_cancellations', count(*), min(due_at) FROM (
         SELECT due_at FROM gateway_cancellations WHERE due_at <= now() ORDER BY due_at LIMIT $1) q
       UNION ALL
       SELECT 'mail', count(*), min(created_at) FROM (
         SELECT created_at FROM outgoing_mail ORDER BY due_at LIMIT $1) q
       UNION ALL
       SELECT 'account_removals', count(*), min(created_at) FROM (
         SELECT created_at FROM account_deletions LIMIT $1) q
       UNION ALL
       SELECT 'customer_scores', count(*), min(due_at) FROM (
         SELECT due_at FROM rfm_calculations WHERE due_at <= now() ORDER BY due_at LIMIT $1) q)
     SELECT queue, depth, extract(epoch FROM clock_timestamp() - since)::float8 AS age FROM waiting";

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    queue: String,
    #[diesel(sql_type = BigInt)]
    depth: i64,
    #[diesel(sql_type = Nullable<Double>)]
    age: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// The queue's name. The set of names is fixed.
    pub name: String,
    /// Number of waiting rows, at most `DEPTH`.
    pub depth: i64,
    /// Age of the oldest row that was read; zero for an empty queue.
    pub oldest: Duration,
}

#[derive(Clone, Debug)]
pub struct PgQueues(OwnerPool);

impl PgQueues {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// Returns the current state of every queue.
    pub async fn read(&self) -> Result<Vec<Queue>, StoreError> {
        let query = sql(WAITING).bind(DEPTH);
        let rows = self.0.rows::<Row>(query).await?;
        Ok(rows.into_iter().map(queue).collect())
    }
}

fn queue(row: Row) -> Queue {
    // A clock that was set back could give a negative age: it becomes zero.
    let oldest = row.age.and_then(|age| Duration::try_from_secs_f64(age).ok());
    Queue {
        name: row.queue,
        depth: row.depth,
        oldest: oldest.unwrap_or_default(),
    }
}
