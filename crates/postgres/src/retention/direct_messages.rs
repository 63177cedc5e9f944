//! Removes direct messages that have ended. Their references stay, with a hash of the request.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::direct_messages::request_hash;
use recado_domain::shared::AccountId;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::conditions;
use crate::errors::DbResult;
use crate::sql::{key_rows, sql};

#[derive(QueryableByName)]
struct OldRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    client_reference: Option<String>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Jsonb)]
    request: Value,
}

/// Locks the rows: a status update that comes meanwhile finds no message afterwards. The rollup of messages counts them
/// by `send_at`, so that time is compared, too.
fn old() -> String {
    format!(
        "SELECT m.id, m.client_reference, m.status, m.request FROM direct_messages m WHERE {}
         ORDER BY m.created_at LIMIT $3 FOR UPDATE OF m",
        conditions::removable_message(),
    )
}

pub(super) async fn remove(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    horizon: OffsetDateTime,
    limit: i64,
) -> DbResult<i64> {
    let old: Vec<OldRow> = sql(old())
        .bind(account)
        .bind(horizon)
        .bind(limit)
        .load(&mut *conn)
        .await?;
    let named = || old.iter().filter(|row| row.client_reference.is_some());
    let hash = |row: &OldRow| request_hash(row.id.into(), &row.request).to_vec();
    sql(format!(
        "INSERT INTO direct_message_references (account_id, client_reference, message_id, status, request_hash)
         SELECT $1, k.reference, k.id, k.status, k.hash FROM {keys} k ORDER BY k.reference ON CONFLICT DO NOTHING",
        keys = key_rows("$2, $3, $4, $5", "reference, id, status, hash"),
    ))
    .bind(account)
    .bind(
        named()
            .filter_map(|row| row.client_reference.clone())
            .collect::<Vec<_>>(),
    )
    .bind(named().map(|row| row.id).collect::<Vec<_>>())
    .bind(named().map(|row| row.status.clone()).collect::<Vec<_>>())
    .bind(named().map(hash).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    let removed = sql(format!(
        "DELETE FROM direct_messages m USING {keys} k WHERE m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(old.iter().map(|row| row.id).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}
