//! API keys by their hash, across tenants.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use recado_domain::api_keys::{ApiKeyStore, KeyGrant};
use recado_domain::shared::{AccountId, ApiKeyId, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{Fault, word};
use crate::pool::PlatformPool;
use crate::sql::sql;

/// API keys by their hash.
#[derive(Clone, Debug)]
pub struct PgApiKeys(PlatformPool);

impl PgApiKeys {
    pub fn new(pool: PlatformPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct GrantRow {
    #[diesel(sql_type = SqlUuid)]
    key_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    created_by: Uuid,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_used_at: Option<OffsetDateTime>,
}

#[async_trait]
impl ApiKeyStore for PgApiKeys {
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        let query = sql("SELECT h.key_id, h.account_id, h.created_by, a.status, k.last_used_at
             FROM api_key_hashes h
             JOIN api_keys k ON k.account_id = h.account_id AND k.id = h.key_id
             JOIN accounts a ON a.id = h.account_id
             WHERE h.key_hash = $1")
        .bind(hash);
        let mut held = self.0.get().await?;
        let found = query.get_result::<GrantRow>(held.conn()?).await.optional();
        let Some(row) = held.end(found.map_err(Fault::from))? else {
            return Ok(None);
        };
        Ok(Some(KeyGrant {
            id: row.key_id.into(),
            account_id: row.account_id.into(),
            created_by: row.created_by.into(),
            status: word(&row.status)?,
            last_used_at: row.last_used_at,
        }))
    }

    async fn touch(&self, account: AccountId, key: ApiKeyId, now: OffsetDateTime) -> Result<(), StoreError> {
        // Never backwards: requests with one key overtake each other.
        let query = sql("UPDATE api_keys SET last_used_at = $3
             WHERE account_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)")
        .bind(account)
        .bind(key)
        .bind(now);
        let mut held = self.0.get().await?;
        let touched = query.execute(held.conn()?).await;
        held.end(touched.map_err(Fault::from))?;
        Ok(())
    }
}
