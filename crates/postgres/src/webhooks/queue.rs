//! The delivery queue of all accounts: claim, finish, release and purge deliveries.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Sealed, StoreError, WebhookId};
use recado_domain::webhooks::{
    Attempt, ClaimRequest, ClaimedDelivery, DeliveryKey, DeliveryQueue, DeliveryState, Health, HealthUpdate,
    SealedSecrets,
};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::store::drop_waiting_deliveries;
use crate::errors::DbResult;
use crate::outbox;
use crate::pool::OwnerPool;
use crate::sql::{NumberRow, Param, Sql, collect_column, sql};
use crate::transactions::{in_owner, on_owner};

#[derive(Clone, Debug)]
pub struct PgDeliveryQueue(OwnerPool);

impl PgDeliveryQueue {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

/// Leases due deliveries. The recursive CTE skips from endpoint to endpoint: one index probe each, however long the
/// queue of an endpoint is. It claims at most the number of deliveries that the request allows per endpoint.
const CLAIM: &str = concat!(
    "WITH RECURSIVE endpoints (endpoint_id) AS (
       (SELECT endpoint_id FROM webhook_deliveries WHERE state = 'waiting' ORDER BY endpoint_id LIMIT 1)
       UNION ALL
       SELECT (SELECT d.endpoint_id FROM webhook_deliveries d
         WHERE d.state = 'waiting' AND d.endpoint_id > l.endpoint_id ORDER BY d.endpoint_id LIMIT 1)
       FROM endpoints l WHERE l.endpoint_id IS NOT NULL),
     claimable AS MATERIALIZED (
       SELECT e.account_id, e.id, coalesce(w.n, $3) AS n
       FROM endpoints l JOIN webhook_endpoints e ON e.id = l.endpoint_id
       JOIN accounts a ON a.id = e.account_id AND a.status = 'active'
       LEFT JOIN unnest($1, $2) AS w (id, n) ON w.id = e.id
       WHERE e.is_active AND e.direction = 'outbound' AND coalesce(w.n, $3) > 0),
     due AS MATERIALIZED (
       SELECT d.* FROM claimable w CROSS JOIN LATERAL (
         SELECT q.account_id, q.event_id, q.endpoint_id FROM webhook_deliveries q
         WHERE q.endpoint_id = w.id AND q.state = 'waiting' AND q.next_attempt_at <= now()
         ORDER BY q.next_attempt_at LIMIT w.n FOR UPDATE SKIP LOCKED) d
       LIMIT $4),
     claimed AS (
       UPDATE webhook_deliveries d
       SET leased = true, claim = d.claim + 1, next_attempt_at = now() + $5 * interval '1 microsecond'
       FROM ",
    keys_of!("due"),
    " WHERE d.account_id = k.account_id AND d.event_id = k.event_id AND d.endpoint_id IS NOT DISTINCT FROM k.endpoint_id
       RETURNING d.account_id, d.event_id, d.endpoint_id, d.claim, d.attempt)
     SELECT c.*, e.name, e.url, e.secret, CASE WHEN e.previous_secret_until > now() THEN e.previous_secret END AS previous_secret,
       e.previous_secret_until, e.failing_since, e.last_failed_at, v.type AS kind, v.payload AS data, v.occurred_at
     FROM claimed c
     JOIN webhook_endpoints e ON e.account_id = c.account_id AND e.id = c.endpoint_id
     JOIN webhook_events v ON v.account_id = c.account_id AND v.id = c.event_id
     ORDER BY v.occurred_at, v.id"
);

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    event_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    endpoint_id: Uuid,
    #[diesel(sql_type = BigInt)]
    claim: i64,
    #[diesel(sql_type = Integer)]
    attempt: i32,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    url: Option<String>,
    #[diesel(sql_type = Binary)]
    secret: Vec<u8>,
    #[diesel(sql_type = Nullable<Binary>)]
    previous_secret: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    previous_secret_until: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    failing_since: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_failed_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Jsonb)]
    data: Value,
    #[diesel(sql_type = Timestamptz)]
    occurred_at: OffsetDateTime,
}

impl Row {
    fn into_claimed(self) -> ClaimedDelivery {
        ClaimedDelivery {
            key: DeliveryKey {
                account_id: self.account_id.into(),
                event_id: self.event_id.into(),
                endpoint_id: self.endpoint_id.into(),
            },
            claim: self.claim,
            attempts: self.attempt.unsigned_abs(),
            name: self.name,
            url: self.url.unwrap_or_default(),
            secrets: SealedSecrets {
                current: Sealed(self.secret),
                previous: self.previous_secret.map(Sealed).zip(self.previous_secret_until),
            },
            health: match self.failing_since.zip(self.last_failed_at) {
                Some((since, last)) => Health::Failing { since, last },
                None => Health::Well,
            },
            kind: self.kind,
            occurred_at: self.occurred_at,
            data: self.data,
        }
    }
}

/// Records attempts: updates or deletes deliveries, updates endpoint health and writes logs. Every row is looked up by
/// its key, whatever the statistics say, and rows are locked in the order of their keys. An attempt is logged once,
/// even if its claim is no longer current.
///
/// Returns how many locked rows could not be written because another transaction changed them meanwhile. The caller
/// then repeats the statement with a new snapshot. The repetition is idempotent.
const FINISH: &str = concat!(
    "WITH attempts AS MATERIALIZED (
       SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         AS m (account_id, event_id, endpoint_id, claim, log_id, number, type, status, error, duration_ms, at, state, delay)
       ORDER BY account_id, event_id, endpoint_id),
     held AS MATERIALIZED (
       SELECT m.account_id, m.event_id, m.endpoint_id, m.state AS next, m.number, m.at, m.delay
       FROM attempts m CROSS JOIN LATERAL (
         SELECT FROM webhook_deliveries q
         WHERE q.account_id = m.account_id AND q.event_id = m.event_id
           AND q.endpoint_id IS NOT DISTINCT FROM m.endpoint_id
           AND q.claim = m.claim AND (q.leased OR m.state = 'delivered')
         FOR UPDATE) d),
     delivered AS (
       DELETE FROM webhook_deliveries d USING ",
    keys_of!("held WHERE next = 'delivered'"),
    " WHERE d.account_id = k.account_id AND d.event_id = k.event_id AND d.endpoint_id IS NOT DISTINCT FROM k.endpoint_id
       RETURNING 1),
     others AS (
       UPDATE webhook_deliveries d
       SET state = h.next, attempt = h.number, leased = false, failed_at = h.at,
         next_attempt_at = now() + h.delay * interval '1 microsecond'
       FROM ",
    keys_of!("held WHERE next <> 'delivered'"),
    " JOIN held h USING (account_id, event_id, endpoint_id)
       WHERE d.account_id = k.account_id AND d.event_id = k.event_id AND d.endpoint_id IS NOT DISTINCT FROM k.endpoint_id
       RETURNING 1),
     recovered AS (
       UPDATE webhook_endpoints e SET failing_since = NULL, last_failed_at = NULL
       FROM unnest($14, $15) AS r (account_id, id)
       WHERE e.account_id = r.account_id AND e.id = r.id AND e.failing_since IS NOT NULL),
     failing AS (
       UPDATE webhook_endpoints e SET failing_since = f.since, last_failed_at = f.at
       FROM unnest($16, $17, $18, $19, $20) AS f (account_id, id, known, since, at)
       WHERE e.account_id = f.account_id AND e.id = f.id AND e.failing_since IS NOT DISTINCT FROM f.known),
     logged AS (
       INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id,
         response_status, attempt, duration_ms, error, next_attempt_at, created_at)
       SELECT m.account_id, m.log_id, m.endpoint_id, 'outbound', m.type, m.event_id, m.event_id,
         m.status, m.number, m.duration_ms, m.error,
         CASE WHEN m.state = 'waiting' THEN now() + m.delay * interval '1 microsecond' END, m.at
       FROM attempts m JOIN accounts a ON a.id = m.account_id
       ON CONFLICT DO NOTHING)
     SELECT (SELECT count(*) FROM held) - (SELECT count(*) FROM delivered) - (SELECT count(*) FROM others) AS n"
);

/// Maximum tries to record attempts while other transactions change the same rows.
const FINISH_TRIES: usize = 5;

fn delay(state: DeliveryState) -> i64 {
    match state {
        DeliveryState::Waiting(delay) => delay.value(),
        DeliveryState::Delivered | DeliveryState::Failed => 0,
    }
}

fn state_name(state: DeliveryState) -> String {
    let name = match state {
        DeliveryState::Delivered => "delivered",
        DeliveryState::Waiting(_) => "waiting",
        DeliveryState::Failed => "failed",
    };
    name.to_owned()
}

fn failing_since(health: Health) -> Option<OffsetDateTime> {
    match health {
        Health::Well => None,
        Health::Failing { since, .. } => Some(since),
    }
}

type EndpointHealthUpdate = (AccountId, WebhookId, HealthUpdate);

fn finish_statement<'a>(attempts: &[Attempt], health_updates: &[EndpointHealthUpdate]) -> Sql<'a> {
    let recovered = health_updates
        .iter()
        .filter(|(.., health_update)| *health_update == HealthUpdate::Recovered);
    let recovered: Vec<(Uuid, Uuid)> = recovered.map(|(account, id, _)| (account.0, id.0)).collect();
    let failing: Vec<_> = health_updates
        .iter()
        .filter_map(|(account, id, health_update)| match health_update {
            HealthUpdate::Failing { known, since, at } => Some((account.0, id.0, failing_since(*known), *since, *at)),
            HealthUpdate::Recovered | HealthUpdate::Disabled { .. } => None,
        })
        .collect();
    let milliseconds = |attempt: &Attempt| i32::try_from(attempt.duration.whole_milliseconds()).ok();
    sql(FINISH)
        .bind(collect_column(attempts, |attempt| attempt.key.account_id.0))
        .bind(collect_column(attempts, |attempt| attempt.key.event_id.0))
        .bind(collect_column(attempts, |attempt| attempt.key.endpoint_id.0))
        .bind(collect_column(attempts, |attempt| attempt.claim))
        .bind(collect_column(attempts, |attempt| attempt.log_id.0))
        .bind(collect_column(attempts, |attempt| {
            i32::try_from(attempt.number).unwrap_or(i32::MAX)
        }))
        .bind(collect_column(attempts, |attempt| attempt.kind.clone()))
        .bind(collect_column(attempts, |attempt| attempt.status.map(i32::from)))
        .bind(collect_column(attempts, |attempt| attempt.error.clone()))
        .bind(collect_column(attempts, milliseconds))
        .bind(collect_column(attempts, |attempt| attempt.at))
        .bind(collect_column(attempts, |attempt| state_name(attempt.state)))
        .bind(collect_column(attempts, |attempt| delay(attempt.state)))
        .bind(collect_column(&recovered, |(account, _)| *account))
        .bind(collect_column(&recovered, |(_, id)| *id))
        .bind(collect_column(&failing, |row| row.0))
        .bind(collect_column(&failing, |row| row.1))
        .bind(collect_column(&failing, |row| row.2))
        .bind(collect_column(&failing, |row| row.3))
        .bind(collect_column(&failing, |row| row.4))
}

/// Disables an endpoint. The guard on `failing_since` does not apply to an endpoint that answered 410 Gone.
const DISABLE: &str = "UPDATE webhook_endpoints
     SET is_active = false, disabled_at = now(), disabled_reason = $3,
       updated_at = now(), version = version + 1
     WHERE account_id = $1 AND id = $2 AND is_active AND ($3 = 'gone' OR failing_since IS NOT DISTINCT FROM $4)";

async fn disable(conn: &mut AsyncPgConnection, health_updates: &[EndpointHealthUpdate]) -> DbResult<()> {
    for (account, id, health_update) in health_updates {
        let HealthUpdate::Disabled { known, reason, events } = health_update else {
            continue;
        };
        let statement = sql(DISABLE)
            .bind(*account)
            .bind(*id)
            .bind(reason.as_str())
            .bind(failing_since(*known));
        if statement.execute(&mut *conn).await? > 0 {
            drop_waiting_deliveries(conn, *account, *id).await?;
            outbox::append(conn, *account, events).await?;
        }
    }
    Ok(())
}

async fn finish_all(
    conn: &mut AsyncPgConnection,
    attempts: &[Attempt],
    health_updates: &[EndpointHealthUpdate],
) -> DbResult<()> {
    record_attempts(conn, attempts, health_updates).await?;
    disable(conn, health_updates).await
}

async fn record_attempts(
    conn: &mut AsyncPgConnection,
    attempts: &[Attempt],
    health_updates: &[EndpointHealthUpdate],
) -> DbResult<()> {
    for _ in 0..FINISH_TRIES {
        let missed: NumberRow = finish_statement(attempts, health_updates)
            .get_result(&mut *conn)
            .await?;
        if missed.n == 0 {
            return Ok(());
        }
    }
    Err(StoreError::Unavailable("other transactions changed the deliveries too often; try again".into()).into())
}

/// Releases claims without an attempt: the deliveries are due at once.
const RELEASE: &str = "UPDATE webhook_deliveries d SET leased = false, next_attempt_at = now()
     FROM (SELECT * FROM unnest($1, $2, $3, $4) AS r (account_id, event_id, endpoint_id, claim)
       LIMIT (SELECT cardinality($1))) r
     WHERE d.account_id = r.account_id AND d.event_id = r.event_id AND d.endpoint_id IS NOT DISTINCT FROM r.endpoint_id
       AND d.claim = r.claim AND d.leased";

const SWEEP_LOGS: &str = "WITH old AS MATERIALIZED (
       SELECT account_id, id FROM webhook_logs WHERE created_at < now() - $1 * interval '1 microsecond'
       ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
     DELETE FROM webhook_logs l
     USING (SELECT array_agg(account_id) AS accounts, array_agg(id) AS ids FROM old) a
       CROSS JOIN LATERAL unnest(a.accounts, a.ids) AS k (account_id, id)
     WHERE l.account_id = k.account_id AND l.id = k.id";

/// Deletes old events. Their abandoned deliveries are deleted with them (ON DELETE CASCADE).
const SWEEP_EVENTS: &str = "WITH old AS MATERIALIZED (
       SELECT account_id, id FROM webhook_events WHERE occurred_at < now() - $1 * interval '1 microsecond'
       ORDER BY occurred_at LIMIT $2 FOR UPDATE SKIP LOCKED)
     DELETE FROM webhook_events e
     USING (SELECT array_agg(account_id) AS accounts, array_agg(id) AS ids FROM old) a
       CROSS JOIN LATERAL unnest(a.accounts, a.ids) AS k (account_id, id)
     WHERE e.account_id = k.account_id AND e.id = k.id";

#[async_trait]
impl DeliveryQueue for PgDeliveryQueue {
    async fn claim(&self, request: &ClaimRequest, lease: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let query = sql(CLAIM)
            .bind(collect_column(&request.endpoints, |(id, _)| id.0))
            .bind(collect_column(&request.endpoints, |(_, n)| *n))
            .bind(request.others)
            .bind(request.limit)
            .bind(lease);
        let rows = self.0.rows::<Row>(query).await?;
        Ok(rows.into_iter().map(Row::into_claimed).collect())
    }

    async fn finish(&self, attempts: &[Attempt], health_updates: &[EndpointHealthUpdate]) -> Result<(), StoreError> {
        let disables = health_updates
            .iter()
            .any(|(.., health_update)| matches!(health_update, HealthUpdate::Disabled { .. }));
        if disables {
            in_owner!(self.0, |conn| finish_all(conn, attempts, health_updates))
        } else {
            on_owner!(self.0, |conn| record_attempts(conn, attempts, health_updates))
        }
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        let statement = sql(RELEASE)
            .bind(collect_column(claims, |(key, _)| key.account_id.0))
            .bind(collect_column(claims, |(key, _)| key.event_id.0))
            .bind(collect_column(claims, |(key, _)| key.endpoint_id.0))
            .bind(collect_column(claims, |(_, claim)| *claim));
        self.0.run(statement).await.map(drop)
    }

    async fn sweep(&self, older_than: Duration, limit: i64) -> Result<usize, StoreError> {
        let mut deleted = 0;
        for statement in [SWEEP_LOGS, SWEEP_EVENTS] {
            deleted += self.0.run(sql(statement).bind(older_than).bind(limit)).await?;
        }
        Ok(deleted)
    }
}
