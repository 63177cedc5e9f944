//! API keys, and the directory that finds one by its hash across tenants. The owner pool writes both, because no
//! tenant may access the directory.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::api_keys::{ApiKey, ApiKeyDirectory, ApiKeyStore, KeyGrant, KeyRecord};
use recado_domain::shared::{AccountId, ApiKeyId, Event, InsertOutcome, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::OwnerPool;
use crate::sql::{NumberRow, key_rows, sql};
use crate::transactions::in_owner;

#[derive(Clone, Debug)]
pub struct PgApiKeys(OwnerPool);

impl PgApiKeys {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct GrantRow {
    #[diesel(sql_type = Binary)]
    key_hash: Vec<u8>,
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

#[derive(QueryableByName)]
struct KeyRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    key_prefix: String,
    #[diesel(sql_type = Text)]
    key_hint: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_used_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl From<KeyRow> for ApiKey {
    fn from(row: KeyRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            key_prefix: row.key_prefix,
            key_hint: row.key_hint,
            last_used_at: row.last_used_at,
            created_at: row.created_at,
        }
    }
}

/// The account's row is locked first, so that two inserts cannot both use the last free position.
async fn insert(
    conn: &mut AsyncPgConnection,
    record: &KeyRecord,
    at_most: i64,
    events: &[Event],
) -> DbResult<InsertOutcome> {
    let (account, key) = (record.account_id, &record.key);
    sql("SELECT FROM accounts WHERE id = $1 FOR NO KEY UPDATE")
        .bind(account)
        .execute(&mut *conn)
        .await?;
    let key_count = sql("SELECT count(*) AS n FROM api_keys WHERE account_id = $1").bind(account);
    let key_count: NumberRow = key_count.get_result(&mut *conn).await?;
    if key_count.n >= at_most {
        return Ok(InsertOutcome::Full);
    }
    sql(
        "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(account)
    .bind(key.id)
    .bind(key.name.as_str())
    .bind(key.key_prefix.as_str())
    .bind(key.key_hint.as_str())
    .bind(record.created_by)
    .bind(key.created_at)
    .execute(&mut *conn)
    .await?;
    sql("INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by) VALUES ($1, $2, $3, $4)")
        .bind(record.hash.as_slice())
        .bind(account)
        .bind(key.id)
        .bind(record.created_by)
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, account, events).await?;
    Ok(InsertOutcome::Done)
}

async fn delete(conn: &mut AsyncPgConnection, account: AccountId, key: ApiKeyId, events: &[Event]) -> DbResult<bool> {
    let deleted = sql("DELETE FROM api_keys WHERE account_id = $1 AND id = $2")
        .bind(account)
        .bind(key)
        .execute(&mut *conn)
        .await?;
    if deleted == 0 {
        return Ok(false);
    }
    sql("DELETE FROM api_key_hashes WHERE account_id = $1 AND key_id = $2")
        .bind(account)
        .bind(key)
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, account, events).await?;
    Ok(true)
}

#[async_trait]
impl ApiKeyDirectory for PgApiKeys {
    async fn find_many(&self, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, KeyGrant)>, StoreError> {
        let presented = key_rows("$1", "key_hash");
        let query = sql(format!(
            "SELECT h.key_hash, h.key_id, h.account_id, h.created_by, a.status, k.last_used_at
             FROM {presented} p
             JOIN api_key_hashes h ON h.key_hash = p.key_hash
             JOIN api_keys k ON k.account_id = h.account_id AND k.id = h.key_id
             JOIN accounts a ON a.id = h.account_id"
        ))
        .bind(hashes);
        let rows = self.0.rows::<GrantRow>(query).await?;
        let grants = rows.into_iter().map(|row| {
            let grant = KeyGrant {
                id: row.key_id.into(),
                account_id: row.account_id.into(),
                created_by: row.created_by.into(),
                status: parse_enum(&row.status)?,
                last_used_at: row.last_used_at,
            };
            Ok((row.key_hash, grant))
        });
        grants.collect()
    }
}

#[async_trait]
impl ApiKeyStore for PgApiKeys {
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        let found = self.find_many(&[hash]).await?;
        Ok(found.into_iter().next().map(|(_, grant)| grant))
    }

    async fn touch(&self, account: AccountId, key: ApiKeyId, now: OffsetDateTime) -> Result<(), StoreError> {
        // Never moves backwards: requests with one key may finish out of order.
        let query = sql("UPDATE api_keys SET last_used_at = $3
             WHERE account_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)")
        .bind(account)
        .bind(key)
        .bind(now);
        self.0.run(query).await?;
        Ok(())
    }

    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError> {
        let query = sql(
            "SELECT id, name, key_prefix, key_hint, last_used_at, created_at FROM api_keys
             WHERE account_id = $1 ORDER BY created_at DESC, id DESC",
        )
        .bind(account);
        let rows = self.0.rows::<KeyRow>(query).await?;
        Ok(rows.into_iter().map(ApiKey::from).collect())
    }

    async fn insert(&self, record: &KeyRecord, at_most: i64, events: &[Event]) -> Result<InsertOutcome, StoreError> {
        in_owner!(self.0, |conn| insert(conn, record, at_most, events))
    }

    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<bool, StoreError> {
        in_owner!(self.0, |conn| delete(conn, account, key, events))
    }
}
