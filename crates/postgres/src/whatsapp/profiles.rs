//! WhatsApp numbers of an account, and their entries in the directory that maps callbacks to accounts.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, CursorPage, CursorQuery, ProfileId, Sealed, StoreError, UpdateOutcome};
use recado_domain::whatsapp::{Profile, ProfileStore, StoredProfile};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::pool::TenantPool;
use crate::schema::whatsapp_profiles;
use crate::sql::sql;
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgProfiles(TenantPool);

impl PgProfiles {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = whatsapp_profiles, check_for_backend(Pg))]
struct ProfileRow {
    id: Uuid,
    name: String,
    phone_number_id: String,
    waba_id: String,
    access_token: Vec<u8>,
    messages_per_second: Option<i32>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    version: i64,
}

impl From<ProfileRow> for StoredProfile {
    fn from(row: ProfileRow) -> Self {
        let profile = Profile {
            id: row.id.into(),
            name: row.name,
            phone_number_id: row.phone_number_id,
            waba_id: row.waba_id,
            messages_per_second: row.messages_per_second,
            created_at: row.created_at,
            updated_at: row.updated_at,
        };
        Self {
            profile,
            token: Sealed(row.access_token),
            version: row.version,
        }
    }
}

#[derive(Insertable, AsChangeset)]
#[diesel(table_name = whatsapp_profiles, treat_none_as_null = true)]
struct Content<'a> {
    name: &'a str,
    phone_number_id: &'a str,
    waba_id: &'a str,
    access_token: &'a [u8],
    messages_per_second: Option<i32>,
    updated_at: OffsetDateTime,
}

impl<'a> From<&'a StoredProfile> for Content<'a> {
    fn from(StoredProfile { profile, token, .. }: &'a StoredProfile) -> Self {
        Self {
            name: &profile.name,
            phone_number_id: &profile.phone_number_id,
            waba_id: &profile.waba_id,
            access_token: &token.0,
            messages_per_second: profile.messages_per_second,
            updated_at: profile.updated_at,
        }
    }
}

/// Adds a number to the directory. Entries are never deleted: reads skip an entry whose number is disconnected.
async fn insert_directory_entry(conn: &mut AsyncPgConnection, account: AccountId, profile: &Profile) -> DbResult<()> {
    sql(
        "INSERT INTO whatsapp_numbers (phone_number_id, account_id, waba_id) VALUES ($1, $2, $3)
         ON CONFLICT DO NOTHING",
    )
    .bind(profile.phone_number_id.as_str())
    .bind(account)
    .bind(profile.waba_id.as_str())
    .execute(conn)
    .await?;
    Ok(())
}

async fn insert(conn: &mut AsyncPgConnection, account: AccountId, stored: &StoredProfile) -> DbResult<()> {
    let keys = (
        whatsapp_profiles::account_id.eq(account.0),
        whatsapp_profiles::id.eq(stored.profile.id.0),
        whatsapp_profiles::created_at.eq(stored.profile.created_at),
    );
    diesel::insert_into(whatsapp_profiles::table)
        .values((keys, Content::from(stored)))
        .execute(&mut *conn)
        .await?;
    insert_directory_entry(conn, account, &stored.profile).await
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredProfile,
) -> DbResult<UpdateOutcome<()>> {
    let id = stored.profile.id;
    let guarded = whatsapp_profiles::table
        .filter(whatsapp_profiles::account_id.eq(account.0))
        .filter(whatsapp_profiles::id.eq(id.0))
        .filter(whatsapp_profiles::version.eq(stored.version));
    let next_version = whatsapp_profiles::version.eq(whatsapp_profiles::version + 1);
    let updated = diesel::update(guarded)
        .set((Content::from(stored), next_version))
        .execute(&mut *conn)
        .await?;
    if updated == 0 {
        let found = find(conn, account, id).await?;
        return Ok(found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale));
    }
    insert_directory_entry(conn, account, &stored.profile).await?;
    Ok(UpdateOutcome::Done(()))
}

fn by_id(account: AccountId, id: ProfileId) -> whatsapp_profiles::BoxedQuery<'static, Pg> {
    whatsapp_profiles::table
        .filter(whatsapp_profiles::account_id.eq(account.0))
        .filter(whatsapp_profiles::id.eq(id.0))
        .into_boxed()
}

pub(crate) async fn find(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ProfileId,
) -> DbResult<Option<StoredProfile>> {
    let row: Option<ProfileRow> = by_id(account, id)
        .select(ProfileRow::as_select())
        .get_result(conn)
        .await
        .optional()?;
    Ok(row.map(StoredProfile::from))
}

#[async_trait]
impl ProfileStore for PgProfiles {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<StoredProfile>, StoreError> {
        let mut profiles = whatsapp_profiles::table
            .filter(whatsapp_profiles::account_id.eq(account.0))
            .order(whatsapp_profiles::id.desc())
            .limit(query.limit + 1)
            .into_boxed();
        if let Some(after) = query.cursor {
            profiles = profiles.filter(whatsapp_profiles::id.lt(after));
        }
        let rows: Vec<ProfileRow> = self
            .0
            .read_rows(account, profiles.select(ProfileRow::as_select()))
            .await?;
        let rows = rows.into_iter().map(StoredProfile::from).collect();
        Ok(CursorPage::cut(rows, query.limit, |stored: &StoredProfile| {
            stored.profile.id
        }))
    }

    async fn find(&self, account: AccountId, id: ProfileId) -> Result<Option<StoredProfile>, StoreError> {
        let profile = by_id(account, id).select(ProfileRow::as_select());
        let row: Option<ProfileRow> = self.0.read_row_if_any(account, profile).await?;
        Ok(row.map(StoredProfile::from))
    }

    async fn default_profile(&self, account: AccountId) -> Result<Option<StoredProfile>, StoreError> {
        let first = whatsapp_profiles::table
            .filter(whatsapp_profiles::account_id.eq(account.0))
            .order((whatsapp_profiles::created_at, whatsapp_profiles::id))
            .limit(1)
            .select(ProfileRow::as_select());
        let row: Option<ProfileRow> = self.0.read_row_if_any(account, first).await?;
        Ok(row.map(StoredProfile::from))
    }

    async fn insert(&self, account: AccountId, profile: &StoredProfile) -> Result<(), StoreError> {
        in_tenant!(self.0, account, |conn| insert(conn, account, profile))
    }

    async fn update(&self, account: AccountId, profile: &StoredProfile) -> Result<UpdateOutcome<()>, StoreError> {
        in_tenant!(self.0, account, |conn| update(conn, account, profile))
    }

    async fn delete(&self, account: AccountId, id: ProfileId) -> Result<bool, StoreError> {
        let statement = sql("DELETE FROM whatsapp_profiles WHERE account_id = $1 AND id = $2")
            .bind(account)
            .bind(id);
        Ok(self.0.run(account, statement).await? > 0)
    }
}
