//! API keys, and the directory that finds one by its hash across tenants. The owner pool writes both, because no
//! tenant may access the directory.

use std::sync::Arc;

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::dsl::case_when;
use diesel::pg::Pg;
use diesel::prelude::{
    BoolExpressionMethods, ExpressionMethods, PgExpressionMethods, QueryDsl, Queryable, QueryableByName, Selectable,
    SelectableHelper,
};
use diesel::sql_types::{Binary, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use ipnet::IpNet;
use recado_domain::api_keys::{
    ApiKey, ApiKeyDirectory, ApiKeyStore, KeyGrant, KeyRecord, KeyTerms, KeyUse, Rotation, StoredApiKey, parse_network,
};
use recado_domain::shared::{
    AccountId, ApiKeyId, Event, InsertOutcome, KeyScopes, RowOutcome, StoreError, TemplateId, UpdateOutcome,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, corrupt, parse_enum};
use crate::outbox;
use crate::pool::OwnerPool;
use crate::schema::{accounts, api_key_hashes, api_keys};
use crate::sql::{IdRow, key_rows, sql, uuids};
use crate::transactions::{in_owner, on_owner};

mod notices;

#[derive(Clone, Debug)]
pub struct PgApiKeys(OwnerPool);

impl PgApiKeys {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = api_keys, check_for_backend(Pg))]
struct GrantRow {
    #[diesel(sql_type = Binary)]
    key_hash: Vec<u8>,
    #[diesel(sql_type = SqlUuid)]
    key_id: Uuid,
    account_id: Uuid,
    created_by: Uuid,
    #[diesel(sql_type = Text)]
    status: String,
    last_used_at: Option<OffsetDateTime>,
    expires_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    valid_until: Option<OffsetDateTime>,
    name: String,
    key_hint: String,
    scopes: Vec<String>,
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = api_keys, check_for_backend(Pg))]
struct KeyRow {
    id: Uuid,
    name: String,
    key_prefix: String,
    key_hint: String,
    scopes: Vec<String>,
    expires_at: Option<OffsetDateTime>,
    allowed_cidrs: Vec<String>,
    created_by: Uuid,
    last_used_at: Option<OffsetDateTime>,
    last_used_ip: Option<String>,
    rotated_at: Option<OffsetDateTime>,
    previous_valid_until: Option<OffsetDateTime>,
    created_at: OffsetDateTime,
    version: i64,
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
    accounts::table
        .find(account.0)
        .select(accounts::id)
        .for_no_key_update()
        .execute(&mut *conn)
        .await?;
    let key_count = api_keys::table.filter(api_keys::account_id.eq(account.0)).count();
    let key_count: i64 = key_count.get_result(&mut *conn).await?;
    if key_count >= at_most {
        return Ok(InsertOutcome::Full);
    }
    diesel::insert_into(api_keys::table)
        .values((
            api_keys::account_id.eq(account.0),
            api_keys::id.eq(key.id.0),
            api_keys::name.eq(&key.name),
            api_keys::key_prefix.eq(&key.key_prefix),
            api_keys::key_hint.eq(&key.key_hint),
            api_keys::created_by.eq(key.created_by.0),
            api_keys::created_at.eq(key.created_at),
            api_keys::scopes.eq(key.scopes.texts()),
            api_keys::expires_at.eq(key.expires_at),
            api_keys::allowed_cidrs.eq(network_texts(key)),
        ))
        .execute(&mut *conn)
        .await?;
    insert_hash(conn, account, key, &record.hash).await?;
    outbox::append(conn, account, events).await?;
    Ok(InsertOutcome::Done)
}

async fn insert_hash(conn: &mut AsyncPgConnection, account: AccountId, key: &ApiKey, hash: &[u8]) -> DbResult<()> {
    diesel::insert_into(api_key_hashes::table)
        .values((
            api_key_hashes::key_hash.eq(hash),
            api_key_hashes::account_id.eq(account.0),
            api_key_hashes::key_id.eq(key.id.0),
            api_key_hashes::created_by.eq(key.created_by.0),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

fn network_texts(key: &ApiKey) -> Vec<String> {
    key.allowed_cidrs.iter().map(IpNet::to_string).collect()
}

async fn get(conn: &mut AsyncPgConnection, account: AccountId, key: ApiKeyId) -> DbResult<Option<StoredApiKey>> {
    let query = api_keys::table.find((account.0, key.0)).select(KeyRow::as_select());
    let row: Option<KeyRow> = query.get_result(conn).await.optional()?;
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
    // A new expiry is announced again.
    let has_same_expiry = api_keys::expires_at.is_not_distinct_from(key.expires_at);
    let updated = diesel::update(api_keys::table.find((account.0, key.id.0)))
        .filter(api_keys::version.eq(*version))
        .set((
            api_keys::name.eq(&key.name),
            api_keys::scopes.eq(key.scopes.texts()),
            api_keys::allowed_cidrs.eq(network_texts(key)),
            api_keys::expires_at.eq(key.expires_at),
            api_keys::version.eq(api_keys::version + 1),
            api_keys::expiry_notice.eq(case_when(has_same_expiry, api_keys::expiry_notice).otherwise("none")),
        ))
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
    let updated = diesel::update(api_keys::table.find((account.0, key.id.0)))
        .filter(api_keys::version.eq(stored.version))
        .set((
            api_keys::key_hint.eq(&key.key_hint),
            api_keys::rotated_at.eq(key.rotated_at),
            api_keys::previous_valid_until.eq(key.previous_valid_until),
            api_keys::rotation_request.eq(stored.rotation_request.as_deref()),
            api_keys::version.eq(api_keys::version + 1),
        ))
        .execute(&mut *conn)
        .await?;
    if updated == 0 {
        return unchanged(conn, account, key.id).await;
    }
    // Either the secret that was never answered ends, or the one before the current one.
    let hashes = api_key_hashes::table
        .filter(api_key_hashes::account_id.eq(account.0))
        .filter(api_key_hashes::key_id.eq(key.id.0));
    diesel::delete(hashes.filter(api_key_hashes::valid_until.is_null().eq(rotation.is_repeated)))
        .execute(&mut *conn)
        .await?;
    diesel::update(hashes)
        .set(api_key_hashes::valid_until.eq(key.previous_valid_until))
        .execute(&mut *conn)
        .await?;
    insert_hash(conn, account, key, &rotation.hash).await?;
    outbox::append(conn, account, events).await?;
    Ok(UpdateOutcome::Done(()))
}

async fn delete(conn: &mut AsyncPgConnection, account: AccountId, key: ApiKeyId, events: &[Event]) -> DbResult<bool> {
    let deleted = diesel::delete(api_keys::table.find((account.0, key.0)))
        .execute(&mut *conn)
        .await?;
    if deleted == 0 {
        return Ok(false);
    }
    diesel::delete(api_key_hashes::table)
        .filter(api_key_hashes::account_id.eq(account.0))
        .filter(api_key_hashes::key_id.eq(key.0))
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
        let is_later = api_keys::last_used_at
            .is_null()
            .or(api_keys::last_used_at.lt(key_use.at));
        let query = diesel::update(api_keys::table.find((account.0, key.0)))
            .filter(is_later)
            .set((
                api_keys::last_used_at.eq(key_use.at),
                api_keys::last_used_ip.eq(key_use.ip_address.as_deref()),
            ));
        self.0.run(query).await?;
        Ok(())
    }

    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError> {
        let query = api_keys::table
            .filter(api_keys::account_id.eq(account.0))
            .order((api_keys::created_at.desc(), api_keys::id.desc()))
            .select(KeyRow::as_select());
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

    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<RowOutcome, StoreError> {
        in_owner!(self.0, |conn| delete(conn, account, key, events)).map(RowOutcome::of)
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
