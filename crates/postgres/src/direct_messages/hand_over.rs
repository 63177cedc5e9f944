//! Moves messages that were made when the account had no number to the queues of its numbers.

use std::collections::BTreeSet;

use diesel::prelude::QueryableByName;
use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::direct_messages::NumberQueue;
use recado_domain::shared::ProfileId;
use uuid::Uuid;

use super::creation::{DueTime, make_due};
use super::stored_profile;
use crate::errors::DbResult;
use crate::sql::{collect_column, key_rows, sql};

/// Messages per hand-over. The queue stays due while there are more.
const BATCH: i64 = 1000;

#[derive(QueryableByName)]
struct SuccessorRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    successor: Uuid,
}

/// Moves a batch of due messages of a queue that the caller has locked. A message goes to the number of its contact's
/// conversation if that is verified, else to `number`.
pub(super) async fn move_due(conn: &mut AsyncPgConnection, queue: NumberQueue, number: ProfileId) -> DbResult<()> {
    let account = queue.account_id;
    let rows: Vec<SuccessorRow> = sql("SELECT m.id, coalesce(p.id, $3) AS successor FROM direct_messages m
         LEFT JOIN conversations v ON v.account_id = $1 AND v.contact_id = m.contact_id
         LEFT JOIN whatsapp_profiles p ON p.account_id = $1 AND p.id = v.profile_id AND p.verification_state = 'verified'
         WHERE m.account_id = $1 AND m.profile_id = $2 AND m.due_at <= now() ORDER BY m.due_at, m.id LIMIT $4")
    .bind(account)
    .bind(stored_profile(queue.profile_id))
    .bind(number)
    .bind(BATCH)
    .load(&mut *conn)
    .await?;
    let successors: BTreeSet<Uuid> = rows.iter().map(|row| row.successor).collect();
    let successors: Vec<_> = successors.into_iter().map(|id| (id, DueTime::AT_ONCE)).collect();
    // Queues are locked before messages.
    make_due(conn, account, &successors).await?;
    sql(format!(
        "WITH locked AS MATERIALIZED (SELECT m.id, k.successor FROM {keys} k
           JOIN direct_messages m ON m.account_id = $1 AND m.id = k.id AND m.profile_id = $4 AND m.due_at IS NOT NULL
           ORDER BY m.id FOR NO KEY UPDATE OF m)
         UPDATE direct_messages m SET profile_id = l.successor, updated_at = now()
         FROM locked l WHERE m.account_id = $1 AND m.id = l.id",
        keys = key_rows("$2, $3", "id, successor"),
    ))
    .bind(account)
    .bind(collect_column(&rows, |row| row.id))
    .bind(collect_column(&rows, |row| row.successor))
    .bind(stored_profile(queue.profile_id))
    .execute(conn)
    .await?;
    Ok(())
}
