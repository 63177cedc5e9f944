//! The files of messages whose term is over.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::media::MessageFilePath;
use recado_domain::retention::ReleasedFile;
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{Sql, key_rows, sql};

#[derive(QueryableByName)]
struct ReleasedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Array<SqlUuid>)]
    keys: Vec<Uuid>,
}

/// `abandoned` keeps every key under which bytes may be stored, until they are deleted. A worker that still fetches the
/// file finds its claim gone and deletes its own bytes. The file is not lost, so no report counts it.
const RELEASE: &str = "UPDATE message_media f SET state = CASE WHEN f.state = 'failed' THEN f.state ELSE 'expired' END,
       abandoned = f.abandoned || array_remove(ARRAY[f.file_id, f.claim_id], NULL), file_id = NULL, claim_id = NULL,
       due_at = NULL, lost_reported_at = coalesce(f.lost_reported_at, f.written_at)
     FROM (SELECT id FROM message_media
       WHERE account_id = $1 AND written_at < $2 AND message_id IS NOT NULL
         AND (state IN ('pending', 'ready') OR abandoned <> '{}')
       ORDER BY written_at LIMIT $3 FOR UPDATE) k
     WHERE f.account_id = $1 AND f.id = k.id
     RETURNING f.id, f.abandoned AS keys";

pub(super) async fn release(
    conn: &mut AsyncPgConnection,
    account_id: AccountId,
    horizon: OffsetDateTime,
    limit: i64,
) -> DbResult<Vec<ReleasedFile>> {
    let rows: Vec<ReleasedRow> = sql(RELEASE)
        .bind(account_id)
        .bind(horizon)
        .bind(limit)
        .load(conn)
        .await?;
    let released = rows.into_iter().map(|row| ReleasedFile {
        id: row.id.into(),
        paths: row
            .keys
            .into_iter()
            .map(|key| MessageFilePath { account_id, key })
            .collect(),
    });
    Ok(released.collect())
}

pub(super) fn record_deleted<'a>(account: AccountId, files: &[ReleasedFile]) -> Sql<'a> {
    sql(format!(
        "UPDATE message_media f SET abandoned = '{{}}' FROM {keys} k WHERE f.account_id = $1 AND f.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(files.iter().map(|file| file.id.0).collect::<Vec<_>>())
}
