//! WhatsApp numbers of an account, and their entries in the directory that maps callbacks to accounts.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::dsl::auto_type;
use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{
    AccountId, CursorPage, CursorQuery, Event, ProfileId, RowOutcome, Sealed, StoreError, UpdateOutcome,
};
use recado_domain::whatsapp::verification::{NumberFacts, SuspectedFailure, Verification, VerificationHistory};
use recado_domain::whatsapp::{Profile, ProfileStore, StoredProfile};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::verification_columns::VerificationColumns;
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::outbox::append;
use crate::pool::TenantPool;
use crate::schema::{campaigns, conversations, message_templates, whatsapp_numbers, whatsapp_profiles};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgProfiles(pub(super) TenantPool);

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
    verification_state: String,
    checks: Value,
    checked_at: Option<OffsetDateTime>,
    next_check_at: Option<OffsetDateTime>,
    pending_since: Option<OffsetDateTime>,
    failed_since: Option<OffsetDateTime>,
    suspected_check: Option<String>,
    suspected_since: Option<OffsetDateTime>,
    held_since: Option<OffsetDateTime>,
    credentials_version: i64,
    verification_version: i64,
    number: Value,
}

impl TryFrom<ProfileRow> for StoredProfile {
    type Error = StoreError;

    fn try_from(row: ProfileRow) -> Result<Self, StoreError> {
        let suspected = match (row.suspected_check, row.suspected_since) {
            (Some(check), Some(since)) => Some(SuspectedFailure {
                check: parse_enum(&check)?,
                since,
            }),
            _ => None,
        };
        let verification = Verification {
            state: parse_enum(&row.verification_state)?,
            checked_at: row.checked_at,
            next_check_at: row.next_check_at,
            checks: serde_json::from_value(row.checks).map_err(corrupt)?,
        };
        let profile = Profile {
            id: row.id.into(),
            name: row.name,
            phone_number_id: row.phone_number_id,
            waba_id: row.waba_id,
            messages_per_second: row.messages_per_second,
            created_at: row.created_at,
            updated_at: row.updated_at,
            verification,
            number: serde_json::from_value(row.number).map_err(corrupt)?,
        };
        Ok(Self {
            profile,
            token: Sealed(row.access_token),
            version: row.version,
            credentials_version: row.credentials_version,
            verification_version: row.verification_version,
            history: VerificationHistory {
                pending_since: row.pending_since,
                failed_since: row.failed_since,
                suspected,
                held_since: row.held_since,
            },
        })
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
    let entry = diesel::insert_into(whatsapp_numbers::table).values((
        whatsapp_numbers::phone_number_id.eq(&profile.phone_number_id),
        whatsapp_numbers::account_id.eq(account.0),
        whatsapp_numbers::waba_id.eq(&profile.waba_id),
    ));
    entry.on_conflict_do_nothing().execute(conn).await?;
    Ok(())
}

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredProfile,
    events: &[Event],
) -> DbResult<()> {
    let keys = (
        whatsapp_profiles::account_id.eq(account.0),
        whatsapp_profiles::id.eq(stored.profile.id.0),
        whatsapp_profiles::created_at.eq(stored.profile.created_at),
    );
    diesel::insert_into(whatsapp_profiles::table)
        .values((
            keys,
            Content::from(stored),
            VerificationColumns::of(&stored.verification_record())?,
        ))
        .execute(&mut *conn)
        .await?;
    insert_directory_entry(conn, account, &stored.profile).await?;
    append(conn, account, events).await
}

/// Stores the verification that follows from new credentials, if the profile has new ones. The claim of a check with
/// the earlier ones ends.
async fn restart_verification(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredProfile,
) -> DbResult<()> {
    let earlier =
        by_id(account, stored.profile.id).filter(whatsapp_profiles::credentials_version.lt(stored.credentials_version));
    let forgotten = (stored.profile.number == NumberFacts::default()).then_some((
        whatsapp_profiles::number.eq(json!({})),
        whatsapp_profiles::health.eq(None::<Value>),
    ));
    diesel::update(earlier)
        .set((
            VerificationColumns::of(&stored.verification_record())?,
            whatsapp_profiles::credentials_version.eq(stored.credentials_version),
            whatsapp_profiles::verification_version.eq(whatsapp_profiles::verification_version + 1),
            whatsapp_profiles::check_leased_until.eq(None::<OffsetDateTime>),
            forgotten,
        ))
        .execute(conn)
        .await?;
    Ok(())
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredProfile,
    events: &[Event],
) -> DbResult<UpdateOutcome<()>> {
    let id = stored.profile.id;
    let guarded = by_id(account, id).filter(whatsapp_profiles::version.eq(stored.version));
    let next_version = whatsapp_profiles::version.eq(whatsapp_profiles::version + 1);
    let updated = diesel::update(guarded)
        .set((Content::from(stored), next_version))
        .execute(&mut *conn)
        .await?;
    if updated == 0 {
        let found = find(conn, account, id).await?;
        return Ok(found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale));
    }
    restart_verification(conn, account, stored).await?;
    insert_directory_entry(conn, account, &stored.profile).await?;
    append(conn, account, events).await?;
    Ok(UpdateOutcome::Done(()))
}

#[auto_type]
pub(super) fn by_id(account: AccountId, id: ProfileId) -> _ {
    let key: (Uuid, Uuid) = (account.0, id.0);
    whatsapp_profiles::table.find(key)
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
    Ok(row.map(StoredProfile::try_from).transpose()?)
}

/// Deletes the profile and clears it in what refers to it. The lock comes first: a writer that names the profile at the
/// same time has either committed before, or fails on the foreign key.
async fn delete(conn: &mut AsyncPgConnection, account: AccountId, id: ProfileId, events: &[Event]) -> DbResult<bool> {
    /// Clears the profile in the rows of a table.
    macro_rules! clear {
        ($table:ident) => {
            let rows = $table::table
                .filter($table::account_id.eq(account.0))
                .filter($table::profile_id.eq(id.0));
            let cleared = $table::profile_id.eq(None::<Uuid>);
            diesel::update(rows).set(cleared).execute(&mut *conn).await?;
        };
    }
    let locked = by_id(account, id).select(whatsapp_profiles::id).for_update();
    locked.execute(&mut *conn).await?;
    clear!(campaigns);
    clear!(message_templates);
    clear!(conversations);
    if diesel::delete(by_id(account, id)).execute(&mut *conn).await? == 0 {
        return Ok(false);
    }
    append(conn, account, events).await?;
    Ok(true)
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
        let rows = rows.into_iter().map(StoredProfile::try_from);
        let rows = rows.collect::<Result<Vec<StoredProfile>, StoreError>>()?;
        Ok(CursorPage::cut(rows, query.limit, |stored: &StoredProfile| {
            stored.profile.id
        }))
    }

    async fn find(&self, account: AccountId, id: ProfileId) -> Result<Option<StoredProfile>, StoreError> {
        let profile = by_id(account, id).select(ProfileRow::as_select());
        let row: Option<ProfileRow> = self.0.read_row_if_any(account, profile).await?;
        row.map(StoredProfile::try_from).transpose()
    }

    async fn default_profile(&self, account: AccountId) -> Result<Option<StoredProfile>, StoreError> {
        let first = whatsapp_profiles::table
            .filter(whatsapp_profiles::account_id.eq(account.0))
            .order((
                whatsapp_profiles::verification_state.ne("verified"),
                whatsapp_profiles::created_at,
                whatsapp_profiles::id,
            ))
            .limit(1)
            .select(ProfileRow::as_select());
        let row: Option<ProfileRow> = self.0.read_row_if_any(account, first).await?;
        row.map(StoredProfile::try_from).transpose()
    }

    async fn insert(&self, account: AccountId, profile: &StoredProfile, events: &[Event]) -> Result<(), StoreError> {
        in_tenant!(self.0, account, |conn| insert(conn, account, profile, events))
    }

    async fn update(
        &self,
        account: AccountId,
        profile: &StoredProfile,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        in_tenant!(self.0, account, |conn| update(conn, account, profile, events))
    }

    async fn delete(&self, account: AccountId, id: ProfileId, events: &[Event]) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| delete(conn, account, id, events)).map(RowOutcome::of)
    }
}
