//! When users ended their sessions. Every statement runs on the owner pool, because users belong to no tenant.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::SessionStore;
use recado_domain::shared::{StoreError, UserId};
use time::OffsetDateTime;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::schema::{account_users, users};
use crate::sql::sql;
use crate::transactions::in_owner;

#[derive(Clone, Debug)]
pub struct PgSessions(OwnerPool);

impl PgSessions {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = users, check_for_backend(Pg))]
struct SignedOutRow {
    sessions_valid_from: Option<OffsetDateTime>,
}

/// Ends all sessions and the support mode of a user. `None`: the user does not exist.
pub(crate) async fn end_all(
    conn: &mut AsyncPgConnection,
    user: UserId,
    at: OffsetDateTime,
) -> DbResult<Option<OffsetDateTime>> {
    // `greatest` ignores null. Another server's clock may be ahead, so the stored time may be later.
    let ended: Option<SignedOutRow> = sql(
        "UPDATE users SET sessions_valid_from = greatest(sessions_valid_from, $2), updated_at = now()
         WHERE id = $1 RETURNING sessions_valid_from",
    )
    .bind(user)
    .bind(at)
    .get_result(&mut *conn)
    .await
    .optional()?;
    diesel::delete(account_users::table)
        .filter(account_users::user_id.eq(user.0))
        .filter(account_users::is_support)
        .execute(conn)
        .await?;
    Ok(ended.and_then(|row| row.sessions_valid_from))
}

#[async_trait]
impl SessionStore for PgSessions {
    async fn signed_out_at(&self, user: UserId) -> Result<Option<OffsetDateTime>, StoreError> {
        let query = users::table.find(user.0).select(users::sessions_valid_from);
        Ok(self.0.row_if_any(query).await?.flatten())
    }

    async fn end_all(&self, user: UserId, at: OffsetDateTime) -> Result<Option<OffsetDateTime>, StoreError> {
        in_owner!(self.0, |conn| end_all(conn, user, at))
    }
}
