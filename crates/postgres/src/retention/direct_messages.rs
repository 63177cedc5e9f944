//! Removes direct messages that have ended. Their references stay, with a hash of the request.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;

use super::conditions;
use crate::direct_messages::{ENDED_MESSAGE, EndedMessage, store_references};
use crate::errors::DbResult;
use crate::sql::{collect_column, key_rows, sql};

/// Locks the rows: a status update that comes meanwhile finds no message afterwards. The rollup of messages counts them
/// by `send_at`, so that time is compared, too.
fn old() -> String {
    format!(
        "SELECT {ENDED_MESSAGE} FROM direct_messages m WHERE {} ORDER BY m.created_at LIMIT $3 FOR UPDATE OF m",
        conditions::removable_message(),
    )
}

pub(super) async fn remove(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    horizon: OffsetDateTime,
    limit: i64,
) -> DbResult<i64> {
    let old: Vec<EndedMessage> = sql(old())
        .bind(account)
        .bind(horizon)
        .bind(limit)
        .load(&mut *conn)
        .await?;
    store_references(conn, account, &old).await?;
    let removed = sql(format!(
        "DELETE FROM direct_messages m USING {keys} k WHERE m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(collect_column(&old, |row| row.id))
    .execute(conn)
    .await?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}
