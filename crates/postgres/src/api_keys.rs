//! API keys, and the directory that finds one by its hash across tenants. The owner pool writes both, because no
//! tenant may access the directory.

use std::sync::Arc;

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use ipnet::IpNet;
use recado_domain::api_keys::{
    ApiKey, ApiKeyDirectory, ApiKeyStore, KeyGrant, KeyRecord, KeyTerms, KeyUse, Rotation, StoredApiKey, parse_network,
};
use recado_domain::shared::{
    AccountId, ApiKeyId, Event, InsertOutcome, KeyScopes, StoreError, TemplateId, UpdateOutcome,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, corrupt, parse_enum};
use crate::outbox;
use crate::pool::OwnerPool;
use crate::sql::{IdRow, NumberRow, key_rows, sql, uuids};
use crate::transactions::{in_owner, on_owner};

mod notices;

/// The columns of [`KeyRow`].
const COLUMNS: &str = "id, name, key_prefix, key_hint, scopes, expires_at, allowed_cidrs, created_by, last_used_at,
    last_used_ip, rotated_at, previous_valid_until, created_at, version, rotation_request";

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
    #[diesel(sql_type = Nullable<Timestamptz>)]
    expires_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    valid_until: Option<OffsetDateTime>,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    key_hint: String,
    #[diesel(sql_type = Array<Text>)]
    scopes: Vec<String>,
    #[diesel(sql_type = Array<Text>)]
    allowed_cidrs: Vec<String>,
}

impl GrantRow {
    fn into_grant(self) -> Result<(Vec<u8>, KeyGrant), StoreError> {
        let terms = KeyTerms {
            name: self.name,
            key_hint: self.key_hint,
            scopes: Arc::new(KeyScopes::from_stored(&self.scopes)),
            allowed_cidrs: networks(&self.allowed_cidrs)?,
        };
        let grant = KeyGrant {
            id: self.key_id.into(),
            account_id: self.account_id.into(),
            created_by: self.created_by.into(),
            status: parse_enum(&self.status)?,
            last_used_at: self.last_used_at,
            expires_at: self.expires_at,
            secret_valid_until: self.valid_until,
            terms: Arc::new(terms),
        };
        Ok((self.key_hash, grant))
    }
}

/// A network that cannot be parsed fails, because without it the key might be used from everywhere.
fn networks(stored: &[String]) -> Result<Vec<IpNet>, StoreError> {
    let parse = |text: &String| parse_network(text).ok_or_else(|| corrupt(format!("{text} is not a network")));
    stored.iter().map(parse).collect()
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
    #[diesel(sql_type = Array<Text>)]
    scopes: Vec<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    expires_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Array<Text>)]
    allowed_cidrs: Vec<String>,
    #[diesel(sql_type = SqlUuid)]
    created_by: Uuid,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_used_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    last_used_ip: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    rotated_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    previous_valid_until: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Nullable<Binary>)]
    rotation_request: Option<Vec<u8>>,
}

impl TryFrom<KeyRow> for StoredApiKey {
    type Error = StoreError;

    fn try_from(row: KeyRow) -> Result<Self, StoreError> {
        let key = ApiKey {
            id: row.id.into(),
            name: row.name,
            key_prefix: row.key_prefix,
            key_hint: row.key_hint,
            scopes: KeyScopes::from_stored(&row.scopes),
            expires_at: row.expires_at,
            allowed_cidrs: networks(&row.allowed_cidrs)?,
            created_by: row.created_by.into(),
            last_used_at: row.last_used_at,
            last_used_ip: row.last_used_ip,
            rotated_at: row.rotated_at,
            previous_valid_until: row.previous_valid_until,
            created_at: row.created_at,
        };
        Ok(Self {
            key,
            version: row.version,
            rotation_request: row.rotation_request,
        })
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
    sql("INSERT INTO api_keys
           (account_id, id, name, key_prefix, key_hint, created_by, created_at, scopes, expires_at, allowed_cidrs)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
    .bind(account)
    .bind(key.id)
    .bind(key.name.as_str())
    .bind(key.key_prefix.as_str())
    .bind(key.key_hint.as_str())
    .bind(key.created_by)
    .bind(key.created_at)
    .bind(key.scopes.texts())
    .bind(key.expires_at)
    .bind(network_texts(key))
    .execute(&mut *conn)
    .await?;
    insert_hash(conn, account, key, &record.hash).await?;
    outbox::append(conn, account, events).await?;
    Ok(InsertOutcome::Done)
}

async fn insert_hash(conn: &mut AsyncPgConnection, account: AccountId, key: &ApiKey, hash: &[u8]) -> DbResult<()> {
    sql("INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by) VALUES ($1, $2, $3, $4)")
        .bind(hash)
        .bind(account)
        .bind(key.id)
        .bind(key.created_by)
        .execute(conn)
        .await?;
    Ok(())
}

fn network_texts(key: &ApiKey) -> Vec<String> {
    key.allowed_cidrs.iter().map(IpNet::to_string).collect()
}

async fn get(conn: &mut AsyncPgConnection, account: AccountId, key: ApiKeyId) -> DbResult<Option<StoredApiKey>> {
    let query = sql(format!(
        "SELECT {COLUMNS} FROM api_keys WHERE account_id = $1 AND id = $2"
    ));
    let row: Option<KeyRow> = query.bind(account).bind(key).get_result(conn).await.optional()?;
    Ok(row.map(StoredApiKey::try_from).transpose()?)
}

/// Why no row with the expected version was updated.
async fn unchanged(conn: &mut AsyncPgConnection, account: AccountId, key: ApiKeyId) -> DbResult<UpdateOutcome<()>> {
    let found = get(conn, account, key).await?;
    Ok(found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale))
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    StoredApiKey { key, version, .. }: &StoredApiKey,
    events: &[Event],
) -> DbResult<UpdateOutcome<()>> {
    let updated = sql(
        "UPDATE api_keys SET name = $4, scopes = $5, allowed_cidrs = $6, expires_at = $7, version = version + 1,
           expiry_notice = CASE WHEN expires_at IS DISTINCT FROM $7 THEN 'none' ELSE expiry_notice END
         WHERE account_id = $1 AND id = $2 AND version = $3",
    )
    .bind(account)
    .bind(key.id)
    .bind(*version)
    .bind(key.name.as_str())
    .bind(key.scopes.texts())
    .bind(network_texts(key))
    .bind(key.expires_at)
    .execute(&mut *conn)
    .await?;
    if updated == 0 {
        return unchanged(conn, account, key.id).await;
    }
    outbox::append(conn, account, events).await?;
    Ok(UpdateOutcome::Done(()))
}

/// The version guards the row of the key, so that two rotations of it never overlap.
async fn rotate(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredApiKey,
    rotation: &Rotation,
    events: &[Event],
) -> DbResult<UpdateOutcome<()>> {
    let key = &stored.key;
    let updated = sql(
        "UPDATE api_keys SET key_hint = $4, rotated_at = $5, previous_valid_until = $6, rotation_request = $7,
           version = version + 1
         WHERE account_id = $1 AND id = $2 AND version = $3",
    )
    .bind(account)
    .bind(key.id)
    .bind(stored.version)
    .bind(key.key_hint.as_str())
    .bind(key.rotated_at)
    .bind(key.previous_valid_until)
    .bind(stored.rotation_request.as_deref())
    .execute(&mut *conn)
    .await?;
    if updated == 0 {
        return unchanged(conn, account, key.id).await;
    }
    // Either the secret that was never answered ends, or the one before the current one.
    sql("DELETE FROM api_key_hashes WHERE account_id = $1 AND key_id = $2 AND (valid_until IS NULL) = $3")
        .bind(account)
        .bind(key.id)
        .bind(rotation.is_repeated)
        .execute(&mut *conn)
        .await?;
    sql("UPDATE api_key_hashes SET valid_until = $3 WHERE account_id = $1 AND key_id = $2")
        .bind(account)
        .bind(key.id)
        .bind(key.previous_valid_until)
        .execute(&mut *conn)
        .await?;
    insert_hash(conn, account, key, &rotation.hash).await?;
    outbox::append(conn, account, events).await?;
    Ok(UpdateOutcome::Done(()))
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
            "SELECT h.key_hash, h.key_id, h.account_id, h.created_by, h.valid_until, a.status, k.last_used_at,
               k.expires_at, k.name, k.key_hint, k.scopes, k.allowed_cidrs
             FROM {presented} p
             JOIN api_key_hashes h ON h.key_hash = p.key_hash
             JOIN api_keys k ON k.account_id = h.account_id AND k.id = h.key_id
             JOIN accounts a ON a.id = h.account_id"
        ))
        .bind(hashes);
        let rows = self.0.rows::<GrantRow>(query).await?;
        rows.into_iter().map(GrantRow::into_grant).collect()
    }
}

#[async_trait]
impl ApiKeyStore for PgApiKeys {
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        let found = self.find_many(&[hash]).await?;
        Ok(found.into_iter().next().map(|(_, grant)| grant))
    }

    async fn touch(&self, account: AccountId, key: ApiKeyId, key_use: &KeyUse) -> Result<(), StoreError> {
        // Never moves backwards: requests with one key may finish out of order.
        let query = sql("UPDATE api_keys SET last_used_at = $3, last_used_ip = $4
             WHERE account_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)")
        .bind(account)
        .bind(key)
        .bind(key_use.at)
        .bind(key_use.ip_address.as_deref());
        self.0.run(query).await?;
        Ok(())
    }

    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError> {
        let query = sql(format!(
            "SELECT {COLUMNS} FROM api_keys WHERE account_id = $1 ORDER BY created_at DESC, id DESC"
        ))
        .bind(account);
        let rows = self.0.rows::<KeyRow>(query).await?;
        let keys = rows.into_iter().map(|row| Ok(StoredApiKey::try_from(row)?.key));
        keys.collect()
    }

    async fn get(&self, account: AccountId, key: ApiKeyId) -> Result<Option<StoredApiKey>, StoreError> {
        on_owner!(self.0, |conn| get(conn, account, key))
    }

    async fn insert(&self, record: &KeyRecord, at_most: i64, events: &[Event]) -> Result<InsertOutcome, StoreError> {
        in_owner!(self.0, |conn| insert(conn, record, at_most, events))
    }

    async fn update(
        &self,
        account: AccountId,
        stored: &StoredApiKey,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        in_owner!(self.0, |conn| update(conn, account, stored, events))
    }

    async fn rotate(
        &self,
        account: AccountId,
        stored: &StoredApiKey,
        rotation: &Rotation,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        in_owner!(self.0, |conn| rotate(conn, account, stored, rotation, events))
    }

    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<bool, StoreError> {
        in_owner!(self.0, |conn| delete(conn, account, key, events))
    }

    async fn missing_templates(
        &self,
        account: AccountId,
        templates: &[TemplateId],
    ) -> Result<Vec<TemplateId>, StoreError> {
        let asked = key_rows("$2", "id");
        let query = sql(format!(
            "SELECT p.id FROM {asked} p WHERE NOT EXISTS
               (SELECT FROM message_templates t WHERE t.account_id = $1 AND t.id = p.id AND t.deleted_at IS NULL)"
        ))
        .bind(account)
        .bind(uuids(templates));
        let rows = self.0.rows::<IdRow>(query).await?;
        Ok(rows.into_iter().map(|row| row.id.into()).collect())
    }
}
