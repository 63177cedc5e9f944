//! Idempotency keys. The database's clock decides when a lease or a stored response expires.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::idempotency::{
    IdempotencyStore, KeyClaim, KeyState, RESPONSE_RETENTION, RequestHash, StoredResponse,
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

async fn claim(conn: &mut AsyncPgConnection, claim: &KeyClaim, lease: Duration) -> DbResult<KeyState> {
    let claimed = sql("INSERT INTO idempotency_keys AS k (scope, key, holder, leased_until)
         VALUES ($1, $2, $3, now() + $4 * interval '1 microsecond')
         ON CONFLICT (scope, key) DO UPDATE
           SET holder = excluded.holder, leased_until = excluded.leased_until, request_hash = NULL, response = NULL,
               created_at = now()
           WHERE (k.response IS NULL AND k.leased_until <= now())
              OR (k.response IS NOT NULL AND k.created_at <= now() - $5 * interval '1 microsecond')")
    .bind(claim.scope.0)
    .bind(claim.key.as_str())
    .bind(claim.holder)
    .bind(lease)
    .bind(RESPONSE_RETENTION)
    .execute(&mut *conn)
    .await?;
    if claimed > 0 {
        return Ok(KeyState::Free);
    }
    let row: Option<KeyRow> = sql("SELECT request_hash, response FROM idempotency_keys WHERE scope = $1 AND key = $2")
        .bind(claim.scope.0)
        .bind(claim.key.as_str())
        .get_result(conn)
        .await
        .optional()?;
    // If the row was deleted in between, its holder has just released it: the caller may retry.
    Ok(row.map_or(KeyState::Running, KeyState::from))
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
        let query =
            sql("DELETE FROM idempotency_keys WHERE scope = $1 AND key = $2 AND holder = $3 AND response IS NULL")
                .bind(claim.scope.0)
                .bind(claim.key.as_str())
                .bind(claim.holder);
        self.0.run(query).await.map(drop)
    }

    async fn sweep(&self, limit: i64) -> Result<usize, StoreError> {
        let query = sql("DELETE FROM idempotency_keys WHERE (scope, key) IN (
               SELECT scope, key FROM idempotency_keys
               WHERE created_at <= now() - $1 * interval '1 microsecond'
                 AND (response IS NOT NULL OR leased_until <= now())
               ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)")
        .bind(RESPONSE_RETENTION)
        .bind(limit);
        self.0.run(query).await
    }
}
