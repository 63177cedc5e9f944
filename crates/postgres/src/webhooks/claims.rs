//! Claims of the delivery queue. The deliveries of each endpoint are a queue of their own. A claim knows the endpoints
//! that have due deliveries, and continues each queue where the last claim ended ([`low_water`](crate::low_water)).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::shared::{Sealed, StoreError};
use recado_domain::webhooks::{ClaimRequest, ClaimedDelivery, DeliveryKey, Health, SealedSecrets};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::low_water::{BEGINNING, Position, ReadyQueues, lock};
use crate::pool::OwnerPool;
use crate::reads::load;
use crate::sql::{FENCE, PlannedEachTime, Sql, collect_column, key_rows, sql};
use crate::transactions::in_transaction;

/// The endpoints of deliveries that became due since a time. Returns one row with nulls if there is none.
const DISCOVER: &str = "SELECT now() AS read_at, d.endpoint_id, d.oldest FROM (SELECT 1) one LEFT JOIN (
       SELECT endpoint_id, min(next_attempt_at) AS oldest FROM webhook_deliveries
       WHERE state = 'waiting' AND next_attempt_at >= (SELECT $1) AND next_attempt_at <= (SELECT now())
       GROUP BY endpoint_id) d ON true";

/// All endpoints with due deliveries. The recursive CTE skips from endpoint to endpoint: one index probe each, however
/// long the queue of an endpoint is.
const DISCOVER_ALL: &str = "WITH RECURSIVE endpoints (endpoint_id) AS (
       (SELECT endpoint_id FROM webhook_deliveries WHERE state = 'waiting' ORDER BY endpoint_id LIMIT 1)
       UNION ALL
       SELECT (SELECT d.endpoint_id FROM webhook_deliveries d
         WHERE d.state = 'waiting' AND d.endpoint_id > l.endpoint_id ORDER BY d.endpoint_id LIMIT 1)
       FROM endpoints l WHERE l.endpoint_id IS NOT NULL)
     SELECT now() AS read_at, d.endpoint_id, d.oldest FROM (SELECT 1) one LEFT JOIN (
       SELECT l.endpoint_id, q.next_attempt_at AS oldest FROM endpoints l CROSS JOIN LATERAL (
         SELECT next_attempt_at FROM webhook_deliveries
         WHERE endpoint_id = l.endpoint_id AND state = 'waiting' AND next_attempt_at <= (SELECT now())
         ORDER BY next_attempt_at, event_id LIMIT 1) q) d ON true";

/// Leases due deliveries of the given endpoints: at most `n` of each, after the given position of its queue.
fn claim_statement() -> String {
    format!(
        include_str!("claim_deliveries.sql"),
        endpoints = key_rows("$1, $2, $3, $4", "id, n, due_at, event_id"),
        is_delivery = is_delivery!("k"),
        fence = FENCE,
        keys = keys_of!("due", "due_at"),
    )
}

/// The columns of a claim.
pub(super) const CLAIM: &str = "account_id, event_id, endpoint_id, claim";

/// Removes claimed deliveries whose event is gone: the end of its term dropped the event's day. No attempt is made, and
/// none is logged.
fn remove() -> String {
    format!(
        "DELETE FROM webhook_deliveries d USING {keys} k WHERE {is_delivery} AND d.claim = k.claim",
        keys = key_rows("$1, $2, $3, $4", CLAIM),
        is_delivery = is_delivery!("k"),
    )
}

/// Binds the keys and claims of deliveries to `$1` to `$4`.
pub(super) fn bind_claims<'a>(statement: String, claims: &[(DeliveryKey, i64)]) -> Sql<'a> {
    sql(statement)
        .bind(collect_column(claims, |(key, _)| key.account_id.0))
        .bind(collect_column(claims, |(key, _)| key.event_id.0))
        .bind(collect_column(claims, |(key, _)| key.endpoint_id.0))
        .bind(collect_column(claims, |(_, claim)| *claim))
}

#[derive(QueryableByName)]
struct DiscoveredRow {
    #[diesel(sql_type = Timestamptz)]
    read_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    endpoint_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    oldest: Option<OffsetDateTime>,
}

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
    /// When it was due, before the claim.
    #[diesel(sql_type = Timestamptz)]
    due_at: OffsetDateTime,
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
    /// Null if the event's day was dropped.
    #[diesel(sql_type = Nullable<Text>)]
    kind: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    data: Option<Value>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    occurred_at: Option<OffsetDateTime>,
}

impl Row {
    fn key(&self) -> DeliveryKey {
        DeliveryKey {
            account_id: self.account_id.into(),
            event_id: self.event_id.into(),
            endpoint_id: self.endpoint_id.into(),
        }
    }

    /// The delivery, or its key and claim if its event is gone.
    fn into_claimed(self) -> Result<ClaimedDelivery, (DeliveryKey, i64)> {
        let (key, claim) = (self.key(), self.claim);
        let event = self.kind.zip(self.data).zip(self.occurred_at);
        let ((kind, data), occurred_at) = event.ok_or((key, claim))?;
        Ok(ClaimedDelivery {
            key,
            claim,
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
            kind,
            occurred_at,
            data,
        })
    }
}

/// How many deliveries of an endpoint a claim may take, and after which position of its queue.
#[derive(Clone, Copy)]
struct Share {
    endpoint: Uuid,
    count: i64,
    after: Position,
}

/// The endpoints with due deliveries, as this process knows them.
#[derive(Debug, Default)]
struct Endpoints {
    ready: ReadyQueues<Uuid>,
    /// Whether the last claim found deliveries. Then the next one follows at once.
    found: bool,
}

impl Endpoints {
    fn shares(&self, request: &ClaimRequest) -> Vec<Share> {
        let limits: HashMap<Uuid, i64> = request.endpoints.iter().map(|(id, n)| (id.0, *n)).collect();
        let share = |(endpoint, after)| Share {
            endpoint,
            count: limits.get(&endpoint).copied().unwrap_or(request.others),
            after,
        };
        self.ready.iter().map(share).filter(|share| share.count > 0).collect()
    }

    /// Continues each queue after its last claimed delivery. A queue with fewer deliveries than its share is empty, but
    /// a claim that reached its own limit may not have read every queue.
    fn record(&mut self, shares: &[Share], rows: &[Row], limit: i64) {
        self.found = !rows.is_empty();
        let mut claimed: HashMap<Uuid, (i64, Position)> = HashMap::new();
        for row in rows {
            let (count, last) = claimed.entry(row.endpoint_id).or_insert((0, BEGINNING));
            *count += 1;
            *last = (*last).max((row.due_at, row.event_id));
        }
        let is_complete = i64::try_from(rows.len()).is_ok_and(|count| count < limit);
        for share in shares {
            let (count, last) = claimed.get(&share.endpoint).copied().unwrap_or((0, share.after));
            if is_complete && count < share.count {
                self.ready.remove(share.endpoint);
            } else if count > 0 {
                self.ready.advance(share.endpoint, last);
            }
        }
    }
}

/// The claims of a process. Clones share the endpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<Endpoints>>);

impl Claims {
    pub(super) async fn claim(
        &self,
        pool: &OwnerPool,
        request: &ClaimRequest,
        lease: Duration,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let must_discover = |endpoints: &Endpoints| !endpoints.found || endpoints.ready.must_discover();
        if must_discover(&lock(&self.0)) {
            self.discover(pool).await?;
        }
        let shares = lock(&self.0).shares(request);
        if shares.is_empty() {
            lock(&self.0).found = false;
            return Ok(Vec::new());
        }
        let query = sql(claim_statement())
            .bind(collect_column(&shares, |share| share.endpoint))
            .bind(collect_column(&shares, |share| share.count))
            .bind(collect_column(&shares, |share| share.after.0))
            .bind(collect_column(&shares, |share| share.after.1))
            .bind(request.limit)
            .bind(lease);
        let rows = in_transaction!(pool.begin_on_queue(), |conn| load(conn, &query))?;
        lock(&self.0).record(&shares, &rows, request.limit);
        let (mut claimed, mut orphans) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in rows {
            match row.into_claimed() {
                Ok(delivery) => claimed.push(delivery),
                Err(orphan) => orphans.push(orphan),
            }
        }
        if !orphans.is_empty() {
            pool.run(PlannedEachTime(bind_claims(remove(), &orphans))).await?;
        }
        Ok(claimed)
    }

    async fn discover(&self, pool: &OwnerPool) -> Result<(), StoreError> {
        let (read, since) = lock(&self.0).ready.begin();
        let query = match read.is_full() {
            true => sql(DISCOVER_ALL),
            false => sql(DISCOVER).bind(since),
        };
        let rows = pool.rows::<DiscoveredRow>(PlannedEachTime(query)).await?;
        if let Some(read_at) = rows.as_slice().first().map(|row| row.read_at) {
            let mut endpoints = lock(&self.0);
            let found = rows.iter().filter_map(|row| row.endpoint_id.zip(row.oldest));
            endpoints.ready.end(read, read_at, found);
        }
        Ok(())
    }
}
