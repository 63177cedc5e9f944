//! WhatsApp callbacks as received, and the directory that maps WhatsApp's ids to accounts. Both are shared by all
//! accounts.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Integer, Nullable, Timestamptz, Uuid as SqlUuid};
use recado_domain::callbacks::{CallbackStore, StoredCallback};
use recado_domain::shared::{AccountId, CallbackId, StoreError};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::low_water::{Mark, Position, lock};
use crate::pool::OwnerPool;
use crate::sql::{IdRow, PlannedEachTime, sql};

/// The callbacks of all accounts. Clones share the low-water mark of [`CallbackStore::claim`].
#[derive(Clone, Debug)]
pub struct PgCallbacks {
    pool: OwnerPool,
    mark: Arc<Mutex<Mark>>,
}

impl PgCallbacks {
    pub fn new(pool: OwnerPool) -> Self {
        Self {
            pool,
            mark: Arc::default(),
        }
    }
}

/// Claims the oldest due callback after a position. Returns one row, with nulls if there is none.
const CLAIM: &str = "WITH due AS MATERIALIZED (
       SELECT id, due_at FROM whatsapp_callbacks WHERE due_at <= (SELECT now())
         AND (due_at, id) > ((SELECT $2), (SELECT $3))
       ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED),
     claimed AS (
       UPDATE whatsapp_callbacks SET due_at = now() + $1 * interval '1 microsecond', claims = claims + 1
       WHERE id = (SELECT id FROM due)
       RETURNING id, body, attempts, claims - 1 AS claims)
     SELECT now() AS read_at, c.*, due.due_at FROM (SELECT 1) one LEFT JOIN claimed c ON true LEFT JOIN due ON true";

#[derive(QueryableByName)]
struct ClaimRow {
    #[diesel(sql_type = Timestamptz)]
    read_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Binary>)]
    body: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Integer>)]
    attempts: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    claims: Option<i32>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    due_at: Option<OffsetDateTime>,
}

impl ClaimRow {
    /// The claimed callback's position in the queue.
    fn position(&self) -> Option<Position> {
        self.due_at.zip(self.id)
    }

    fn into_callback(self) -> Option<StoredCallback> {
        Some(StoredCallback {
            id: self.id?.into(),
            body: self.body?,
            attempts: self.attempts?.unsigned_abs(),
            claims: self.claims?.unsigned_abs(),
        })
    }
}

#[async_trait]
impl CallbackStore for PgCallbacks {
    async fn store(&self, id: CallbackId, body: &[u8], lease: Duration) -> Result<(), StoreError> {
        let query = sql("INSERT INTO whatsapp_callbacks (id, body, claims, due_at)
             VALUES ($1, $2, 1, now() + $3 * interval '1 microsecond')")
        .bind(id)
        .bind(body)
        .bind(lease);
        self.pool.run(query).await?;
        Ok(())
    }

    async fn claim(&self, lease: Duration) -> Result<Option<StoredCallback>, StoreError> {
        let (read, (due_at, id)) = lock(&self.mark).begin();
        let query = sql(CLAIM).bind(lease).bind(due_at).bind(id);
        let row = self.pool.row::<ClaimRow>(PlannedEachTime(query)).await?;
        lock(&self.mark).end(read, row.read_at, row.position());
        Ok(row.into_callback())
    }

    async fn delete(&self, id: CallbackId) -> Result<(), StoreError> {
        // Asynchronous commit: a crash may bring the callback back, and applying it again changes nothing.
        let statement = sql(
            "DELETE FROM whatsapp_callbacks USING set_config('synchronous_commit', 'off', true)
             WHERE id = $1",
        )
        .bind(id);
        self.pool.run(PlannedEachTime(statement)).await?;
        Ok(())
    }

    async fn defer(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError> {
        let query = sql("UPDATE whatsapp_callbacks
             SET due_at = now() + $2 * interval '1 microsecond', attempts = attempts + 1, claims = 0
             WHERE id = $1")
        .bind(id)
        .bind(delay);
        self.pool.run(PlannedEachTime(query)).await?;
        Ok(())
    }

    async fn postpone(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError> {
        let query = sql("UPDATE whatsapp_callbacks SET due_at = now() + $2 * interval '1 microsecond' WHERE id = $1")
            .bind(id)
            .bind(delay);
        self.pool.run(PlannedEachTime(query)).await?;
        Ok(())
    }

    async fn set_aside(&self, id: CallbackId) -> Result<(), StoreError> {
        let query = sql("UPDATE whatsapp_callbacks SET due_at = 'infinity' WHERE id = $1").bind(id);
        self.pool.run(PlannedEachTime(query)).await?;
        Ok(())
    }

    async fn accounts_that_had_number(&self, phone_number_id: &str) -> Result<Vec<AccountId>, StoreError> {
        let query = sql("SELECT DISTINCT account_id AS id FROM whatsapp_numbers WHERE phone_number_id = $1 ORDER BY 1")
            .bind(phone_number_id);
        let rows = self.pool.rows::<IdRow>(query).await?;
        Ok(rows.into_iter().map(|row| row.id.into()).collect())
    }
}
