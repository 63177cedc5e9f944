//! The files of a person: exports, and the files of messages. Their rows say first that they are not stored any more.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{BatchEnd, ErasedFile, ErasureClaim, ErasureStep};
use recado_domain::media::MessageFilePath;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{key_rows, sql};

#[derive(QueryableByName)]
struct FileRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Array<SqlUuid>)]
    keys: Vec<Uuid>,
}

#[derive(QueryableByName)]
struct ExportRow {
    #[diesel(embed)]
    file: FileRow,
    /// Whether a worker may be writing the file.
    #[diesel(sql_type = Bool)]
    is_leased: bool,
}

fn erased(claim: &ErasureClaim, row: FileRow) -> ErasedFile {
    let account_id = claim.account_id;
    let paths = row.keys.into_iter().map(|key| MessageFilePath { account_id, key });
    ErasedFile {
        id: row.id,
        paths: paths.collect(),
    }
}

fn end(files: usize, limit: i64) -> BatchEnd {
    match i64::try_from(files).is_ok_and(|files| files < limit) {
        true => BatchEnd::Done,
        false => BatchEnd::More,
    }
}

/// The files of messages, in both directions. An upload that another person's message still needs stays; it expires.
const MEDIA: &str = include_str!("media.sql");

pub(super) async fn release_media(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    limit: i64,
) -> DbResult<(BatchEnd, Vec<ErasedFile>)> {
    let rows: Vec<FileRow> = sql(MEDIA)
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .bind(limit)
        .load(conn)
        .await?;
    Ok((
        end(rows.len(), limit),
        rows.into_iter().map(|row| erased(claim, row)).collect(),
    ))
}

/// An expired export is not claimed again, so its file is deleted once its last worker's lease is over.
pub(super) async fn release_exports(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    limit: i64,
) -> DbResult<(BatchEnd, Vec<ErasedFile>)> {
    // An export has the data of all contacts of a person. A linked one can be requested again.
    let exported: Vec<Uuid> = [&[claim.contact_id.0], claim.marks.linked_contacts.as_slice()].concat();
    let rows: Vec<ExportRow> = sql(
        "UPDATE contact_exports e SET expires_at = least(e.expires_at, now()) FROM (
           SELECT id FROM contact_exports WHERE account_id = $1 AND contact_id = ANY ($2) ORDER BY id LIMIT $3 FOR UPDATE) k
         WHERE e.account_id = $1 AND e.id = k.id
         RETURNING e.id, e.abandoned || array_remove(ARRAY[e.file_key], NULL) AS keys,
           (e.due_at > now()) IS TRUE AS is_leased",
    )
    .bind(claim.account_id)
    .bind(exported)
    .bind(limit)
    .load(conn)
    .await?;
    let (count, is_leased) = (rows.len(), rows.iter().any(|row| row.is_leased));
    let released = rows.into_iter().filter(|row| !row.is_leased);
    let files = released.map(|row| erased(claim, row.file)).collect();
    let end = if is_leased { BatchEnd::Wait } else { end(count, limit) };
    Ok((end, files))
}

/// Returns how many rows there were.
pub(super) async fn record_deleted(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    step: ErasureStep,
    ids: Vec<Uuid>,
) -> DbResult<i64> {
    let keys = key_rows("$2", "id");
    let statement = match step {
        ErasureStep::Exports => {
            format!("DELETE FROM contact_exports e USING {keys} k WHERE e.account_id = $1 AND e.id = k.id")
        }
        _ => format!(
            "UPDATE message_media f SET abandoned = '{{}}' FROM {keys} k WHERE f.account_id = $1 AND f.id = k.id"
        ),
    };
    let count = sql(statement).bind(claim.account_id).bind(ids).execute(conn).await?;
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}
