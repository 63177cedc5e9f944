//! Idempotency keys. The database's clock decides when a lease or a stored response expires.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Bool, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::idempotency::{
    IdempotencyStore, KeyClaim, KeyState, MAX_KEYS_PER_DAY, RESPONSE_RETENTION, RequestHash, StoredResponse,
};
use recado_domain::shared::{Sealed, StoreError};
use time::Duration;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::sql;
use crate::transactions::on_owner;

#[derive(Clone, Debug)]
pub struct PgIdempotency(OwnerPool);

impl PgIdempotency {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

/// Number of rows over which the count of a scope is spread.
const COUNT_SLOTS: u128 = 8;

#[derive(QueryableByName)]
struct ClaimRow {
    #[diesel(sql_type = Bool)]
    is_claimed: bool,
    #[diesel(sql_type = Bool)]
    is_full: bool,
}

#[derive(QueryableByName)]
struct KeyRow {
    #[diesel(sql_type = Nullable<Binary>)]
    request_hash: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Binary>)]
    response: Option<Vec<u8>>,
}

impl From<KeyRow> for KeyState {
    fn from(row: KeyRow) -> Self {
        match (row.request_hash, row.response) {
            (Some(hash), Some(response)) => Self::Answered(StoredResponse {
                request: RequestHash(hash),
                response: Sealed(response),
            }),
            _ => Self::Running,
        }
    }
}

/// The slot in which a claim is counted.
fn slot(claim: &KeyClaim) -> i32 {
    i32::try_from(claim.holder.as_u128() % COUNT_SLOTS).unwrap_or_default()
}

/// Claims the key and counts it in one statement. The count is read before, so concurrent claims may exceed the limit
/// by their number.
async fn claim(conn: &mut AsyncPgConnection, claim: &KeyClaim, lease: Duration) -> DbResult<KeyState> {
    let row: ClaimRow = sql(include_str!("claim.sql"))
        .bind(claim.scope.0)
        .bind(claim.key.as_str())
        .bind(claim.holder)
        .bind(lease)
        .bind(RESPONSE_RETENTION)
        .bind(MAX_KEYS_PER_DAY)
        .bind(slot(claim))
        .get_result(&mut *conn)
        .await?;
    if row.is_claimed {
        return Ok(KeyState::Free);
    }
    let state = current(conn, claim).await?;
    Ok(match (state, row.is_full) {
        (Some(state), _) => state,
        (None, true) => KeyState::Exhausted,
        // The row was deleted in between, so its holder has just released it: the caller may retry.
        (None, false) => KeyState::Running,
    })
}

/// The state of a key that is in use. `None`: the key is free.
async fn current(conn: &mut AsyncPgConnection, claim: &KeyClaim) -> DbResult<Option<KeyState>> {
    let row: Option<KeyRow> = sql("SELECT request_hash, response FROM idempotency_keys
         WHERE scope = $1 AND key = $2 AND CASE WHEN response IS NULL THEN leased_until > now()
           ELSE created_at > now() - $3 * interval '1 microsecond' END")
    .bind(claim.scope.0)
    .bind(claim.key.as_str())
    .bind(RESPONSE_RETENTION)
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(KeyState::from))
}

#[async_trait]
impl IdempotencyStore for PgIdempotency {
    async fn claim(&self, requested: &KeyClaim, lease: Duration) -> Result<KeyState, StoreError> {
        on_owner!(self.0, |conn| claim(conn, requested, lease))
    }

    async fn renew(&self, claim: &KeyClaim, lease: Duration) -> Result<(), StoreError> {
        let query = sql(
            "UPDATE idempotency_keys SET leased_until = now() + $4 * interval '1 microsecond'
             WHERE scope = $1 AND key = $2 AND holder = $3 AND response IS NULL",
        )
        .bind(claim.scope.0)
        .bind(claim.key.as_str())
        .bind(claim.holder)
        .bind(lease);
        self.0.run(query).await.map(drop)
    }

    async fn finish(&self, claim: &KeyClaim, stored: &StoredResponse) -> Result<(), StoreError> {
        let query = sql("UPDATE idempotency_keys SET request_hash = $4, response = $5
             WHERE scope = $1 AND key = $2 AND holder = $3 AND response IS NULL")
        .bind(claim.scope.0)
        .bind(claim.key.as_str())
        .bind(claim.holder)
        .bind(stored.request.0.as_slice())
        .bind(stored.response.0.as_slice());
        self.0.run(query).await.map(drop)
    }

    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        let query = sql("WITH released AS (
               DELETE FROM idempotency_keys WHERE scope = $1 AND key = $2 AND holder = $3 AND response IS NULL
               RETURNING scope, (created_at AT TIME ZONE 'UTC')::date AS day)
             UPDATE idempotency_key_counts c SET keys = c.keys - 1 FROM released r
             WHERE c.scope = r.scope AND c.day = r.day AND c.slot = $4")
        .bind(claim.scope.0)
        .bind(claim.key.as_str())
        .bind(claim.holder)
        .bind(slot(claim));
        self.0.run(query).await.map(drop)
    }

    async fn sweep(&self, limit: i64) -> Result<usize, StoreError> {
        let counts = sql(
            "WITH old AS MATERIALIZED (SELECT scope, day, slot FROM idempotency_key_counts
               WHERE day < (now() AT TIME ZONE 'UTC')::date ORDER BY day LIMIT $1 FOR UPDATE SKIP LOCKED)
             DELETE FROM idempotency_key_counts WHERE (scope, day, slot) IN (SELECT scope, day, slot FROM old)",
        )
        .bind(limit);
        self.0.run(counts).await?;
        let query = sql("WITH old AS MATERIALIZED (SELECT scope, key FROM idempotency_keys
               WHERE created_at <= now() - $1 * interval '1 microsecond'
                 AND (response IS NOT NULL OR leased_until <= now())
               ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
             DELETE FROM idempotency_keys WHERE (scope, key) IN (SELECT scope, key FROM old)")
        .bind(RESPONSE_RETENTION)
        .bind(limit);
        self.0.run(query).await
    }
}
