//! Removes direct messages that have ended. Their references stay, with a hash of the request.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Timestamptz;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::retention::{RemovedRows, RetainedRowKey, RowBatch};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use super::conditions;
use crate::direct_messages::{ENDED_MESSAGE, EndedMessage, store_references};
use crate::errors::DbResult;
use crate::sql::{collect_column, key_rows, sql};

#[derive(QueryableByName)]
struct OldMessage {
    #[diesel(embed)]
    message: EndedMessage,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

/// Locks the rows: a status update that comes meanwhile finds no message afterwards. The rollup of messages counts them
/// by `send_at`, so that time is compared, too. Messages that a limit counts stay among them, so a batch begins after the
/// last row of the one before.
fn old() -> String {
    format!(
        "SELECT {ENDED_MESSAGE}, m.created_at FROM direct_messages m
         WHERE {} AND (m.created_at, m.id) > ($4, $5)
         ORDER BY m.created_at, m.id LIMIT $3 FOR UPDATE OF m",
        conditions::removable_message(),
    )
}

pub(super) async fn remove(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    horizon: OffsetDateTime,
    batch: RowBatch,
) -> DbResult<RemovedRows> {
    let after = batch.after.unwrap_or(RetainedRowKey {
        at: OffsetDateTime::UNIX_EPOCH,
        id: Uuid::nil(),
    });
    let old: Vec<OldMessage> = sql(old())
        .bind(account)
        .bind(horizon)
        .bind(batch.limit)
        .bind(after.at)
        .bind(after.id)
        .load(&mut *conn)
        .await?;
    let last = old.last().map(|row| RetainedRowKey {
        at: row.created_at,
        id: row.message.id,
    });
    let messages: Vec<EndedMessage> = old.into_iter().map(|row| row.message).collect();
    store_references(conn, account, &messages).await?;
    let removed = sql(format!(
        "DELETE FROM direct_messages m USING {keys} k WHERE m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(collect_column(&messages, |row| row.id))
    .execute(conn)
    .await?;
    Ok(RemovedRows {
        count: i64::try_from(removed).unwrap_or(i64::MAX),
        last,
    })
}
