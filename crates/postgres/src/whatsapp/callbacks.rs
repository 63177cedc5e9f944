//! WhatsApp callbacks as received, and the directory that maps WhatsApp's ids to accounts. Both are shared by all
//! accounts.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Integer, Uuid as SqlUuid};
use recado_domain::shared::{AccountId, CallbackId, StoreError};
use recado_domain::whatsapp::{CallbackStore, StoredCallback};
use time::Duration;
use uuid::Uuid;

use crate::pool::OwnerPool;
use crate::sql::{IdRow, sql};

#[derive(Clone, Debug)]
pub struct PgCallbacks(OwnerPool);

impl PgCallbacks {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct CallbackRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Binary)]
    body: Vec<u8>,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Integer)]
    claims: i32,
}

#[async_trait]
impl CallbackStore for PgCallbacks {
    async fn store(&self, id: CallbackId, body: &[u8], lease: Duration) -> Result<(), StoreError> {
        let query = sql("INSERT INTO whatsapp_callbacks (id, body, claims, due_at)
             VALUES ($1, $2, 1, now() + $3 * interval '1 microsecond')")
        .bind(id)
        .bind(body)
        .bind(lease);
        self.0.run(query).await?;
        Ok(())
    }

    async fn claim(&self, lease: Duration) -> Result<Option<StoredCallback>, StoreError> {
        let query = sql(
            "UPDATE whatsapp_callbacks SET due_at = now() + $1 * interval '1 microsecond', claims = claims + 1
             WHERE id = (SELECT id FROM whatsapp_callbacks WHERE due_at <= now()
               ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id, body, attempts, claims - 1 AS claims",
        )
        .bind(lease);
        Ok(self
            .0
            .row_if_any::<CallbackRow>(query)
            .await?
            .map(|row| StoredCallback {
                id: row.id.into(),
                body: row.body,
                attempts: row.attempts.unsigned_abs(),
                claims: row.claims.unsigned_abs(),
            }))
    }

    async fn delete(&self, id: CallbackId) -> Result<(), StoreError> {
        // Asynchronous commit: a crash may bring the callback back, and applying it again changes nothing.
        let statement = sql(
            "DELETE FROM whatsapp_callbacks USING set_config('synchronous_commit', 'off', true)
             WHERE id = $1",
        )
        .bind(id);
        self.0.run(statement).await?;
        Ok(())
    }

    async fn defer(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError> {
        let query = sql("UPDATE whatsapp_callbacks
             SET due_at = now() + $2 * interval '1 microsecond', attempts = attempts + 1, claims = 0
             WHERE id = $1")
        .bind(id)
        .bind(delay);
        self.0.run(query).await?;
        Ok(())
    }

    async fn postpone(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError> {
        let query = sql("UPDATE whatsapp_callbacks SET due_at = now() + $2 * interval '1 microsecond' WHERE id = $1")
            .bind(id)
            .bind(delay);
        self.0.run(query).await?;
        Ok(())
    }

    async fn set_aside(&self, id: CallbackId) -> Result<(), StoreError> {
        let query = sql("UPDATE whatsapp_callbacks SET due_at = 'infinity' WHERE id = $1").bind(id);
        self.0.run(query).await?;
        Ok(())
    }

    async fn accounts_that_had_number(&self, phone_number_id: &str) -> Result<Vec<AccountId>, StoreError> {
        let query = sql("SELECT DISTINCT account_id AS id FROM whatsapp_numbers WHERE phone_number_id = $1 ORDER BY 1")
            .bind(phone_number_id);
        let rows = self.0.rows::<IdRow>(query).await?;
        Ok(rows.into_iter().map(|row| row.id.into()).collect())
    }
}
