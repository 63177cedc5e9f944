//! When users ended their sessions. Every statement runs on the owner pool, because users belong to no tenant.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::SessionStore;
use recado_domain::shared::{StoreError, UserId};
use time::OffsetDateTime;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
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
struct SignedOutRow {
    #[diesel(sql_type = Nullable<Timestamptz>)]
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
    sql("DELETE FROM account_users WHERE user_id = $1 AND is_support")
        .bind(user)
        .execute(conn)
        .await?;
    Ok(ended.and_then(|row| row.sessions_valid_from))
}

#[async_trait]
impl SessionStore for PgSessions {
    async fn signed_out_at(&self, user: UserId) -> Result<Option<OffsetDateTime>, StoreError> {
        let query = sql("SELECT sessions_valid_from FROM users WHERE id = $1").bind(user);
        let row = self.0.row_if_any::<SignedOutRow>(query).await?;
        Ok(row.and_then(|row| row.sessions_valid_from))
    }

    async fn end_all(&self, user: UserId, at: OffsetDateTime) -> Result<Option<OffsetDateTime>, StoreError> {
        in_owner!(self.0, |conn| end_all(conn, user, at))
    }
}
