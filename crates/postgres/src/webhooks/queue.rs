//! The delivery queue of all accounts: finish, release and purge deliveries.

use async_trait::async_trait;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, StoreError, WebhookId};
use recado_domain::webhooks::{
    Attempt, ClaimRequest, ClaimedDelivery, DeliveryKey, DeliveryQueue, DeliveryState, HealthUpdate,
};
use time::Duration;
use uuid::Uuid;

use super::claims::{CLAIM, Claims, bind_claims};
use super::store::drop_waiting_deliveries;
use crate::errors::DbResult;
use crate::outbox;
use crate::pool::OwnerPool;
use crate::sql::{NumberRow, Param, PlannedEachTime, Sql, collect_column, key_rows, sql};
use crate::transactions::in_transaction;

/// The delivery queue. Clones share the endpoints with due deliveries.
#[derive(Clone, Debug)]
pub struct PgDeliveryQueue {
    pool: OwnerPool,
    claims: Claims,
}

impl PgDeliveryQueue {
    pub fn new(pool: OwnerPool) -> Self {
        Self {
            pool,
            claims: Claims::default(),
        }
    }
}

/// Records attempts: updates or deletes deliveries, updates endpoint health and writes logs. Every row is looked up by
/// its key, whatever the statistics say, and rows are locked in the order of their keys. An attempt is logged once,
/// even if its claim is no longer current.
///
/// Returns how many locked rows could not be written because another transaction changed them meanwhile. The caller
/// then repeats the statement with a new snapshot. The repetition is idempotent.
fn finish() -> String {
    format!(
        include_str!("finish_deliveries.sql"),
        is_attempted = is_delivery!("m"),
        is_delivery = is_delivery!("k"),
        delivered = keys_of!("held WHERE next = 'delivered'"),
        others = keys_of!("held WHERE next <> 'delivered'"),
    )
}

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

type EndpointHealthUpdate = (AccountId, WebhookId, HealthUpdate);

fn finish_statement<'a>(attempts: &[Attempt], health_updates: &[EndpointHealthUpdate]) -> Sql<'a> {
    let recovered = health_updates
        .iter()
        .filter(|(.., health_update)| *health_update == HealthUpdate::Recovered);
    let recovered: Vec<(Uuid, Uuid)> = recovered.map(|(account, id, _)| (account.0, id.0)).collect();
    let failing: Vec<_> = health_updates
        .iter()
        .filter_map(|(account, id, health_update)| match health_update {
            HealthUpdate::Failing { known, since, at } => Some((account.0, id.0, known.since(), *since, *at)),
            HealthUpdate::Recovered | HealthUpdate::Disabled { .. } => None,
        })
        .collect();
    let milliseconds = |attempt: &Attempt| i32::try_from(attempt.duration.whole_milliseconds()).ok();
    sql(finish())
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
            .bind(known.since());
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
fn release() -> String {
    format!(
        "UPDATE webhook_deliveries d SET leased = false, next_attempt_at = now() FROM {keys} k
         WHERE {is_delivery} AND d.claim = k.claim AND d.leased",
        keys = key_rows("$1, $2, $3, $4", CLAIM),
        is_delivery = is_delivery!("k"),
    )
}

/// Deletes abandoned deliveries of old events. An event's id begins with its time.
const SWEEP: &str = concat!(
    "WITH old AS MATERIALIZED (
       SELECT account_id, event_id, endpoint_id FROM webhook_deliveries
       WHERE state <> 'waiting' AND event_id < (lpad(to_hex(floor(extract(epoch FROM
         now() - $1 * interval '1 microsecond') * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
       ORDER BY event_id LIMIT $2 FOR UPDATE SKIP LOCKED)
     DELETE FROM webhook_deliveries d USING ",
    keys_of!("old"),
    " WHERE ",
    is_delivery!("k")
);

#[async_trait]
impl DeliveryQueue for PgDeliveryQueue {
    async fn claim(&self, request: &ClaimRequest, lease: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        self.claims.claim(&self.pool, request, lease).await
    }

    async fn finish(&self, attempts: &[Attempt], health_updates: &[EndpointHealthUpdate]) -> Result<(), StoreError> {
        let disables = health_updates
            .iter()
            .any(|(.., health_update)| matches!(health_update, HealthUpdate::Disabled { .. }));
        let begin = || self.pool.begin_on_queue();
        if disables {
            in_transaction!(begin(), |conn| finish_all(conn, attempts, health_updates))
        } else {
            in_transaction!(begin(), |conn| record_attempts(conn, attempts, health_updates))
        }
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        self.pool
            .run(PlannedEachTime(bind_claims(release(), claims)))
            .await
            .map(drop)
    }

    async fn sweep(&self, older_than: Duration, limit: i64) -> Result<usize, StoreError> {
        self.pool.run(sql(SWEEP).bind(older_than).bind(limit)).await
    }
}
