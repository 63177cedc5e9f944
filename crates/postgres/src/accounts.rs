//! Accounts, users and memberships, across tenants: how a request finds its tenant.

use std::collections::HashSet;

use async_trait::async_trait;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper};
use diesel::sql_types::Text;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::{Account, AccountStore, Membership, MembershipAccess, Session};
use recado_domain::shared::{AccountId, StoreError, UserId, text};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, parse_enum};
use crate::pool::OwnerPool;
use crate::schema::{account_slugs, account_users, accounts, users};
use crate::sql::{FlagRow, TextRow, key_rows, sql};
use crate::transactions::in_owner;

/// Attempts to reserve a free slug when concurrent requests reserve the candidates first.
const SLUG_TRIES: usize = 100;

/// Candidates per lookup: at first, and at most.
const MIN_SLUG_BATCH: usize = 16;
const MAX_SLUG_BATCH: usize = 4096;

#[derive(Clone, Debug)]
pub struct PgAccounts(OwnerPool);

impl PgAccounts {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    async fn one_membership_access(
        &self,
        user: UserId,
        account: Option<AccountId>,
    ) -> Result<Option<MembershipAccess>, StoreError> {
        let query = sql("SELECT m.account_id, m.role, a.status, m.expires_at
             FROM account_users m JOIN accounts a ON a.id = m.account_id
             WHERE m.user_id = $1 AND ($2 IS NULL OR m.account_id = $2)
               AND (m.expires_at IS NULL OR m.expires_at > now())
             ORDER BY m.is_support, m.last_active_at DESC NULLS LAST, m.created_at, m.account_id LIMIT 1")
        .bind(user)
        .bind(account);
        self.0
            .row_if_any::<MembershipAccessRow>(query)
            .await?
            .map(MembershipAccess::try_from)
            .transpose()
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = account_users, check_for_backend(Pg))]
struct MembershipAccessRow {
    account_id: Uuid,
    role: String,
    #[diesel(sql_type = Text)]
    status: String,
    expires_at: Option<OffsetDateTime>,
}

impl TryFrom<MembershipAccessRow> for MembershipAccess {
    type Error = StoreError;

    fn try_from(row: MembershipAccessRow) -> Result<Self, StoreError> {
        Ok(Self {
            account_id: row.account_id.into(),
            role: parse_enum(&row.role)?,
            status: parse_enum(&row.status)?,
            support_until: row.expires_at,
        })
    }
}

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = accounts, check_for_backend(Pg))]
pub(crate) struct AccountColumns {
    id: Uuid,
    name: String,
    slug: String,
    logo_url: Option<String>,
    plan: String,
    status: String,
    created_at: OffsetDateTime,
}

impl TryFrom<AccountColumns> for Account {
    type Error = StoreError;

    fn try_from(row: AccountColumns) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            name: row.name,
            slug: row.slug,
            logo_url: row.logo_url,
            plan: row.plan,
            status: parse_enum(&row.status)?,
            created_at: row.created_at,
        })
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = account_users, check_for_backend(Pg))]
struct MembershipRow {
    #[diesel(embed)]
    account: AccountColumns,
    role: String,
    expires_at: Option<OffsetDateTime>,
}

impl TryFrom<MembershipRow> for Membership {
    type Error = StoreError;

    fn try_from(row: MembershipRow) -> Result<Self, StoreError> {
        let account = Account::try_from(row.account)?;
        Ok(Self {
            account_id: account.id,
            role: parse_enum(&row.role)?,
            account,
            support_until: row.expires_at,
        })
    }
}

#[async_trait]
impl AccountStore for PgAccounts {
    async fn record_user(&self, session: &Session) -> Result<(), StoreError> {
        let query = sql(
            "INSERT INTO users (id, email, name, name_is_verified) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO UPDATE
               SET email = excluded.email, name = coalesce(excluded.name, users.name),
                 name_is_verified = CASE WHEN excluded.name IS NULL THEN users.name_is_verified
                   ELSE excluded.name_is_verified END,
                 updated_at = now()
               WHERE users.email <> excluded.email OR users.name IS DISTINCT FROM coalesce(excluded.name, users.name)
                 OR (excluded.name IS NOT NULL AND users.name_is_verified <> excluded.name_is_verified)",
        )
        .bind(session.user_id)
        .bind(session.email.as_str())
        .bind(session.name.as_deref())
        .bind(session.name.is_some() && session.email_verified == Some(true));
        self.0.run(query).await?;
        Ok(())
    }

    async fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError> {
        let query = sql(
            "SELECT a.id, a.name, a.slug, a.logo_url, a.plan, a.status, a.created_at, m.role,
               m.expires_at
             FROM account_users m JOIN accounts a ON a.id = m.account_id
             WHERE m.user_id = $1 AND (m.expires_at IS NULL OR m.expires_at > now())
             ORDER BY m.created_at, m.account_id",
        )
        .bind(user);
        self.0
            .rows::<MembershipRow>(query)
            .await?
            .into_iter()
            .map(Membership::try_from)
            .collect()
    }

    async fn membership_access(
        &self,
        user: UserId,
        account: AccountId,
    ) -> Result<Option<MembershipAccess>, StoreError> {
        self.one_membership_access(user, Some(account)).await
    }

    async fn latest_membership_access(&self, user: UserId) -> Result<Option<MembershipAccess>, StoreError> {
        self.one_membership_access(user, None).await
    }

    async fn create(&self, account: &Account, owner: UserId, at_most: i64) -> Result<Option<Account>, StoreError> {
        in_owner!(self.0, |conn| create_limited(conn, account, owner, at_most))
    }

    async fn switch(
        &self,
        user: UserId,
        account: AccountId,
        now: OffsetDateTime,
    ) -> Result<Option<Membership>, StoreError> {
        let query = sql("UPDATE account_users m SET last_active_at = $3 FROM accounts a
             WHERE m.account_id = $2 AND m.user_id = $1 AND a.id = m.account_id
               AND CASE WHEN m.is_support THEN m.expires_at > now() ELSE a.status = 'active' END
             RETURNING a.id, a.name, a.slug, a.logo_url, a.plan, a.status, a.created_at, m.role,
               m.expires_at")
        .bind(user)
        .bind(account)
        .bind(now);
        self.0
            .row_if_any::<MembershipRow>(query)
            .await?
            .map(Membership::try_from)
            .transpose()
    }
}

/// The lock on the user serializes their concurrent requests, so that the count is exact.
async fn create_limited(
    conn: &mut AsyncPgConnection,
    account: &Account,
    owner: UserId,
    at_most: i64,
) -> DbResult<Option<Account>> {
    users::table
        .find(owner.0)
        .select(users::id)
        .for_no_key_update()
        .execute(&mut *conn)
        .await?;
    let is_full: FlagRow = sql("SELECT count(*) >= $2 AS yes FROM accounts a
         JOIN account_users m ON m.account_id = a.id AND m.user_id = $1 AND m.role = 'owner' AND NOT m.is_support
         WHERE a.created_by = $1 AND a.deleting_at IS NULL")
    .bind(owner)
    .bind(at_most)
    .get_result(&mut *conn)
    .await?;
    if is_full.yes {
        return Ok(None);
    }
    create(conn, account, owner).await.map(Some)
}

async fn create(conn: &mut AsyncPgConnection, account: &Account, owner: UserId) -> DbResult<Account> {
    let slug = reserve_free_slug(conn, account).await?;
    let row: AccountColumns = diesel::insert_into(accounts::table)
        .values((
            accounts::id.eq(account.id.0),
            accounts::name.eq(&account.name),
            accounts::slug.eq(slug),
            accounts::logo_url.eq(account.logo_url.as_deref()),
            accounts::plan.eq(&account.plan),
            accounts::status.eq(account.status.as_str()),
            accounts::created_at.eq(account.created_at),
            accounts::updated_at.eq(account.created_at),
            accounts::created_by.eq(owner.0),
        ))
        .returning(AccountColumns::as_returning())
        .get_result(&mut *conn)
        .await?;
    diesel::insert_into(account_users::table)
        .values((
            account_users::account_id.eq(account.id.0),
            account_users::user_id.eq(owner.0),
            account_users::role.eq("owner"),
            account_users::created_at.eq(account.created_at),
        ))
        .execute(conn)
        .await?;
    Ok(Account::try_from(row)?)
}

/// Returns the first free slug. The number of candidates doubles with each lookup: most slugs are free at once, and
/// for a name that thousands share few lookups suffice.
async fn free_slug(conn: &mut AsyncPgConnection, base: &str) -> DbResult<String> {
    let (mut candidates, mut batch_size) = (text::slugs(base), MIN_SLUG_BATCH);
    loop {
        let batch: Vec<String> = candidates.by_ref().take(batch_size).collect();
        let taken: Vec<TextRow> = sql(format!(
            "SELECT s.slug AS text FROM {keys} k JOIN account_slugs s ON s.slug = k.slug",
            keys = key_rows("$1", "slug"),
        ))
        .bind(batch.clone())
        .load(&mut *conn)
        .await?;
        let taken: HashSet<String> = taken.into_iter().map(|row| row.text).collect();
        if let Some(free) = batch.into_iter().find(|candidate| !taken.contains(candidate)) {
            return Ok(free);
        }
        batch_size = batch_size.saturating_mul(2).min(MAX_SLUG_BATCH);
    }
}

/// Reserves the first free slug. The insert waits for a concurrent one of the same slug, and after losing, it looks
/// again.
pub(crate) async fn reserve_free_slug(conn: &mut AsyncPgConnection, account: &Account) -> DbResult<String> {
    for _ in 0..SLUG_TRIES {
        let slug = free_slug(conn, &account.slug).await?;
        let reserved = diesel::insert_into(account_slugs::table)
            .values((
                account_slugs::slug.eq(&slug),
                account_slugs::account_id.eq(account.id.0),
            ))
            .on_conflict_do_nothing()
            .execute(&mut *conn)
            .await?;
        if reserved > 0 {
            return Ok(slug);
        }
    }
    Err(StoreError::Unavailable("concurrent requests reserved every free slug first".into()).into())
}
