//! Gateway events as received, and the directory of gateway subscriptions. Both are shared by all accounts.

use async_trait::async_trait;
use diesel::dsl::now;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{Bool, Integer, Jsonb, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::billing::{GatewayEvent, GatewayEventStore, RecordOutcome, StoredEvent};
use recado_domain::shared::{AccountId, GatewayEventId, StoreError, SubscriptionId};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::corrupt;
use crate::pool::OwnerPool;
use crate::schema::{gateway_events, subscriptions};
use crate::sql::{NumberRow, sql};
use crate::transactions::Command;

#[derive(Clone, Debug)]
pub struct PgGatewayEvents(OwnerPool);

impl PgGatewayEvents {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct EventRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    gateway_subscription_id: String,
    #[diesel(sql_type = Jsonb)]
    data: Value,
    #[diesel(sql_type = Timestamptz)]
    received_at: OffsetDateTime,
    #[diesel(sql_type = Integer)]
    attempts: i32,
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = Bool)]
    claimed: bool,
}

impl TryFrom<EventRow> for StoredEvent {
    type Error = StoreError;

    fn try_from(row: EventRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            subject: row.gateway_subscription_id,
            data: serde_json::from_value(row.data).map_err(corrupt)?,
            received_at: row.received_at,
            attempts: row.attempts.unsigned_abs(),
        })
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = subscriptions, check_for_backend(Pg))]
pub(super) struct OwnerRow {
    account_id: Uuid,
    id: Uuid,
}

impl From<OwnerRow> for (AccountId, SubscriptionId) {
    fn from(row: OwnerRow) -> Self {
        (row.account_id.into(), row.id.into())
    }
}

#[async_trait]
impl GatewayEventStore for PgGatewayEvents {
    async fn record(
        &self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> Result<RecordOutcome, StoreError> {
        let data = serde_json::to_value(&event.data).map_err(corrupt)?;
        let statement = sql(
            "INSERT INTO gateway_events (id, key, event, gateway_subscription_id, data, received_at, due_at)
             VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 THEN
               CASE WHEN EXISTS (SELECT FROM gateway_events WHERE gateway_subscription_id = $4
                 AND due_at IS NOT NULL) THEN now()
               ELSE now() + $8 * interval '1 microsecond' END END)
             ON CONFLICT (key) DO NOTHING RETURNING coalesce(due_at > now(), false) AS claimed",
        )
        .bind(id)
        .bind(event.key.as_str())
        .bind(event.event.as_str())
        .bind(event.subject.as_deref())
        .bind(data)
        .bind(received_at)
        .bind(event.has_effect())
        .bind(lease);
        Ok(match self.0.row_if_any::<ClaimedRow>(statement).await? {
            None => RecordOutcome::Known,
            Some(row) if row.claimed => RecordOutcome::Claimed,
            Some(_) => RecordOutcome::Stored,
        })
    }

    async fn claim(&self, subject: Option<String>, lease: Duration) -> Result<Option<StoredEvent>, StoreError> {
        // A locked event is skipped, and the later events of its subscription wait for it: per subscription the order
        // holds.
        let query = sql(
            "UPDATE gateway_events SET due_at = now() + $1 * interval '1 microsecond'
             WHERE id = (SELECT e.id FROM gateway_events e
               WHERE e.due_at <= now() AND ($2 IS NULL OR e.gateway_subscription_id = $2)
                 AND NOT EXISTS (SELECT FROM gateway_events older
                   WHERE older.gateway_subscription_id = e.gateway_subscription_id AND older.due_at IS NOT NULL
                     AND older.seq < e.seq)
               ORDER BY e.seq LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id, gateway_subscription_id, data, received_at, attempts",
        )
        .bind(lease)
        .bind(subject);
        let claimed = self.0.row_if_any::<EventRow>(query).await?;
        claimed.map(StoredEvent::try_from).transpose()
    }

    async fn finish(&self, id: GatewayEventId) -> Result<(), StoreError> {
        let due_at = gateway_events::due_at.eq(None::<OffsetDateTime>);
        let statement = diesel::update(gateway_events::table.find(id.0)).set(due_at);
        self.0.run(statement).await.map(drop)
    }

    async fn defer(&self, id: GatewayEventId, delay: Duration) -> Result<(), StoreError> {
        let statement = sql("UPDATE gateway_events
             SET due_at = now() + $2 * interval '1 microsecond', attempts = attempts + 1
             WHERE id = $1 AND due_at IS NOT NULL")
        .bind(id)
        .bind(delay);
        self.0.run(statement).await.map(drop)
    }

    async fn owner(&self, subject: &str) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        let query = sql("SELECT s.account_id, s.id FROM gateway_subscriptions g
             JOIN subscriptions s ON s.account_id = g.account_id AND s.id = g.subscription_id
             WHERE g.gateway_subscription_id = $1 AND s.gateway_subscription_id = $1")
        .bind(subject);
        Ok(self.0.row_if_any::<OwnerRow>(query).await?.map(Into::into))
    }

    async fn purge(&self, age: Duration, limit: i64) -> Result<usize, StoreError> {
        // As a subquery of the `DELETE`, the choice could run once for every row and exceed the limit.
        let statement = sql("WITH old AS MATERIALIZED (SELECT id FROM gateway_events
               WHERE due_at IS NULL AND received_at <= now() - $1 * interval '1 microsecond'
               ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED),
             deleted AS (DELETE FROM gateway_events WHERE id IN (SELECT id FROM old) RETURNING id),
             applied AS (DELETE FROM applied_gateway_events WHERE event_id IN (SELECT id FROM old))
             SELECT count(*) AS n FROM deleted")
        .bind(age)
        .bind(limit);
        let deleted = self.0.row::<NumberRow>(statement).await?.n;
        Ok(usize::try_from(deleted).unwrap_or_default())
    }
}

/// Makes the events due that wait for this subscription. The gateway may report a subscription before the request that
/// created it returns. Such events wait with growing delays, and later events wait behind them. A tenant cannot write
/// gateway events, so the owner does this after the change has committed. If the process ends before, each event still
/// is due after its own delay.
pub(crate) fn wake_events(subject: &str) -> impl Command {
    let waiting = gateway_events::table
        .filter(gateway_events::gateway_subscription_id.eq(subject))
        .filter(gateway_events::due_at.gt(now))
        .filter(gateway_events::attempts.gt(0));
    diesel::update(waiting).set(gateway_events::due_at.eq(now))
}
