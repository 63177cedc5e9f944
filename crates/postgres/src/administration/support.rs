//! Temporary memberships of platform administrators in support mode. Every statement requires `is_support`, so it
//! never changes a regular membership.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::administration::{Admin, PlatformEntry, SupportStore};
use recado_domain::shared::{AccountId, Event, RowOutcome, StoreError, UserId};
use time::OffsetDateTime;

use super::platform_audit;
use crate::errors::DbResult;
use crate::outbox;
use crate::pool::OwnerPool;
use crate::sql::{Sql, TextRow, sql};
use crate::transactions::in_owner;

#[derive(Clone, Debug)]
pub struct PgSupport(OwnerPool);

impl PgSupport {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

fn delete_membership<'a>(user: UserId, account: AccountId) -> Sql<'a> {
    sql("DELETE FROM account_users WHERE account_id = $1 AND user_id = $2 AND is_support")
        .bind(account)
        .bind(user)
}

async fn start(
    conn: &mut AsyncPgConnection,
    user: UserId,
    account: AccountId,
    leaving: Option<AccountId>,
    expires_at: OffsetDateTime,
    (events, entry): (&[Event], &PlatformEntry),
) -> DbResult<Option<String>> {
    let name: Option<TextRow> =
        sql("SELECT name AS text FROM accounts WHERE id = $1 AND deleting_at IS NULL FOR KEY SHARE")
            .bind(account)
            .get_result(&mut *conn)
            .await
            .optional()?;
    let Some(name) = name else { return Ok(None) };
    sql(
        "INSERT INTO account_users (account_id, user_id, role, is_support, expires_at)
         VALUES ($1, $2, 'admin', true, $3)
         ON CONFLICT ON CONSTRAINT account_users_pkey DO UPDATE SET expires_at = excluded.expires_at
           WHERE account_users.is_support",
    )
    .bind(account)
    .bind(user)
    .bind(expires_at)
    .execute(&mut *conn)
    .await?;
    if let Some(previous) = leaving {
        delete_membership(user, previous).execute(&mut *conn).await?;
    }
    outbox::append(conn, account, events).await?;
    platform_audit::insert(conn, entry).await?;
    Ok(Some(name.text))
}

async fn stop(conn: &mut AsyncPgConnection, user: UserId, account: AccountId, entry: &PlatformEntry) -> DbResult<bool> {
    let removed = delete_membership(user, account).execute(&mut *conn).await?;
    platform_audit::insert(conn, entry).await?;
    Ok(removed > 0)
}

#[async_trait]
impl SupportStore for PgSupport {
    async fn start(
        &self,
        admin: &Admin,
        account: AccountId,
        leaving: Option<AccountId>,
        expires_at: OffsetDateTime,
        events: &[Event],
        entry: PlatformEntry,
    ) -> Result<Option<String>, StoreError> {
        in_owner!(self.0, |conn| start(
            conn,
            admin.user_id,
            account,
            leaving,
            expires_at,
            (events, &entry)
        ))
    }

    async fn stop(&self, user: UserId, account: AccountId, entry: PlatformEntry) -> Result<RowOutcome, StoreError> {
        in_owner!(self.0, |conn| stop(conn, user, account, &entry)).map(RowOutcome::of)
    }

    async fn sweep(&self, limit: i64) -> Result<usize, StoreError> {
        let statement = sql(
            "WITH expired AS MATERIALIZED (SELECT account_id, user_id FROM account_users
               WHERE is_support AND expires_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)
             DELETE FROM account_users WHERE (account_id, user_id) IN (SELECT account_id, user_id FROM expired)
             AND is_support AND expires_at <= now()",
        )
        .bind(limit);
        self.0.run(statement).await
    }
}
