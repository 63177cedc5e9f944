//! The rows of the files of messages: uploads, and files that workers fetch from WhatsApp.

mod claim;
mod lost;

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::media::{
    ClaimedFile, FetchDecision, FileClaim, FileState, FoundFile, KEPT_FOR, MessageFilePath, MessageFileStore,
    NewUpload, StoredFile,
};
use recado_domain::shared::{AccountId, Event, MediaId, StoreError};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use self::claim::claim;
use self::lost::{AccountRow, IS_LOST, IS_REPORT_DUE, report_account};
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{key_rows, sql};
use crate::transactions::in_owner;

/// The maximum number of accounts that one report notifies.
const REPORTED: i64 = 100;

#[derive(Clone, Debug)]
pub struct PgMessageFiles {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgMessageFiles {
    /// `owner` claims files of all accounts.
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

/// Keeps uploads for `KEPT_FOR` after their last use, which is at these times. The file of a message is kept as long as
/// the message.
pub(crate) async fn keep_uploads(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    uses: &BTreeMap<MediaId, OffsetDateTime>,
) -> DbResult<()> {
    if uses.is_empty() {
        return Ok(());
    }
    sql(format!(
        "UPDATE message_media f SET expires_at = greatest(f.expires_at, k.used_at + $4 * interval '1 microsecond')
         FROM {keys} k
         WHERE f.account_id = $1 AND f.id = k.id AND f.message_id IS NULL AND f.expires_at > now()",
        keys = key_rows("$2, $3", "id, used_at"),
    ))
    .bind(account)
    .bind(uses.keys().map(|id| id.0).collect::<Vec<_>>())
    .bind(uses.values().copied().collect::<Vec<_>>())
    .bind(KEPT_FOR)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct FileRow {
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    file_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<BigInt>)]
    size: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    sha256: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    content_type: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    mime_type: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    file_name: Option<String>,
}

impl FileRow {
    fn into_found(self, account_id: AccountId, id: MediaId) -> Result<FoundFile, StoreError> {
        let state: FileState = parse_enum(&self.state)?;
        let (FileState::Ready, Some(key), Some(size), Some(sha256)) = (state, self.file_id, self.size, self.sha256)
        else {
            return Ok(FoundFile::Unavailable(state));
        };
        Ok(FoundFile::Ready(StoredFile {
            id,
            kind: parse_enum(&self.kind)?,
            path: MessageFilePath { account_id, key },
            size: size.unsigned_abs(),
            sha256,
            content_type: self.content_type.as_deref().map(parse_enum).transpose()?,
            mime_type: self.mime_type,
            file_name: self.file_name,
        }))
    }
}

/// The columns that a decision sets.
#[derive(Default)]
struct Recorded {
    due_at: Option<OffsetDateTime>,
    attempts: Option<i32>,
    mismatches: Option<i32>,
    reason: Option<&'static str>,
    size: Option<i64>,
    sha256: Option<String>,
    content_type: Option<&'static str>,
}

fn recorded(decision: &FetchDecision) -> (FileState, Recorded) {
    match decision {
        FetchDecision::Ready(content) => (
            FileState::Ready,
            Recorded {
                size: i64::try_from(content.size).ok(),
                sha256: Some(hex::encode(content.sha256)),
                content_type: content.content_type.map(|kind| kind.as_str()),
                ..Recorded::default()
            },
        ),
        FetchDecision::Retry {
            due_at,
            attempts,
            mismatches,
        } => (
            FileState::Pending,
            Recorded {
                due_at: Some(*due_at),
                attempts: Some(i32::from(*attempts)),
                mismatches: Some(i32::from(*mismatches)),
                ..Recorded::default()
            },
        ),
        FetchDecision::Failed(reason) => (
            FileState::Failed,
            Recorded {
                reason: Some(reason.as_str()),
                ..Recorded::default()
            },
        ),
        FetchDecision::Expired => (FileState::Expired, Recorded::default()),
    }
}

async fn record(
    conn: &mut AsyncPgConnection,
    file: &ClaimedFile,
    decision: &FetchDecision,
    failed_requests: u16,
    events: &[Event],
) -> DbResult<bool> {
    let (state, values) = recorded(decision);
    let written = sql(
        "UPDATE message_media SET state = $4, due_at = $5, attempts = coalesce($6, attempts),
           mismatches = coalesce($7, mismatches), reason = $8, size = $9, sha256 = $10, content_type = $11,
           mime_type = coalesce(mime_type, $11), claim_id = NULL, abandoned = $12,
           file_id = CASE WHEN $4 = 'ready' THEN claim_id END
         WHERE account_id = $1 AND id = $2 AND claim_id = $3 AND state = 'pending'",
    )
    .bind(file.account_id)
    .bind(file.file.id)
    .bind(file.claim)
    .bind(state.as_str())
    .bind(values.due_at)
    .bind(values.attempts)
    .bind(values.mismatches)
    .bind(values.reason)
    .bind(values.size)
    .bind(values.sha256)
    .bind(values.content_type)
    .bind(file.abandoned.clone())
    .execute(&mut *conn)
    .await?;
    if failed_requests > 0 {
        note_failures(conn, file, failed_requests).await?;
    }
    if written == 0 {
        return Ok(false);
    }
    outbox::append(conn, file.account_id, events).await?;
    Ok(true)
}

/// Stores failed requests of the file's number, and deletes those that are older than an hour.
async fn note_failures(conn: &mut AsyncPgConnection, file: &ClaimedFile, failed_requests: u16) -> DbResult<()> {
    sql(
        "WITH number AS (SELECT phone_number_id FROM message_media WHERE account_id = $1 AND id = $2),
         removed AS (DELETE FROM whatsapp_media_failures o USING number n
           WHERE o.phone_number_id = n.phone_number_id AND o.failed_at <= now() - interval '1 hour')
         INSERT INTO whatsapp_media_failures (phone_number_id)
         SELECT n.phone_number_id FROM number n CROSS JOIN generate_series(1, $3)
         WHERE n.phone_number_id IS NOT NULL",
    )
    .bind(file.account_id)
    .bind(file.file.id)
    .bind(i32::from(failed_requests))
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct ExpiredRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    file_id: Uuid,
}

#[async_trait]
impl MessageFileStore for PgMessageFiles {
    async fn find(&self, account: AccountId, id: MediaId) -> Result<Option<FoundFile>, StoreError> {
        let query = sql(
            "SELECT type AS kind, file_id, size, sha256, content_type, mime_type, file_name,
               CASE WHEN state = 'ready' AND expires_at <= now() THEN 'expired' ELSE state END AS state
             FROM message_media WHERE account_id = $1 AND id = $2",
        )
        .bind(account)
        .bind(id);
        let row: Option<FileRow> = self.tenants.read_row_if_any(account, query).await?;
        row.map(|row| row.into_found(account, id)).transpose()
    }

    async fn insert_upload(
        &self,
        account: AccountId,
        NewUpload { file, expires_at }: &NewUpload,
    ) -> Result<(), StoreError> {
        let statement = sql(
            "INSERT INTO message_media (account_id, id, type, mime_type, file_name, sha256, size,
               content_type, state, file_id, written_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now(), $11)",
        )
        .bind(account)
        .bind(file.id)
        .bind(file.kind.as_str())
        .bind(file.mime_type.as_deref())
        .bind(file.file_name.as_deref())
        .bind(file.sha256.as_str())
        .bind(i64::try_from(file.size).unwrap_or(i64::MAX))
        .bind(file.content_type.map(|kind| kind.as_str()))
        .bind(FileState::Ready.as_str())
        .bind(file.path.key)
        .bind(*expires_at);
        self.tenants.run(account, statement).await.map(drop)
    }

    async fn claim(&self, id: Uuid, lease: Duration) -> Result<FileClaim, StoreError> {
        in_owner!(self.owner, |conn| claim(conn, id, lease))
    }

    async fn renew(&self, file: &ClaimedFile, lease: Duration) -> Result<bool, StoreError> {
        let statement = sql("UPDATE message_media SET due_at = now() + $4 * interval '1 microsecond'
             WHERE account_id = $1 AND id = $2 AND claim_id = $3 AND state = 'pending'")
        .bind(file.account_id)
        .bind(file.file.id)
        .bind(file.claim)
        .bind(lease);
        Ok(self.owner.run(statement).await? > 0)
    }

    async fn record(
        &self,
        file: &ClaimedFile,
        decision: &FetchDecision,
        failed_requests: u16,
        events: &[Event],
    ) -> Result<bool, StoreError> {
        in_owner!(self.owner, |conn| record(conn, file, decision, failed_requests, events))
    }

    async fn report_lost(&self, interval: Duration, event: fn(u64) -> Event) -> Result<bool, StoreError> {
        let query = sql(format!(
            "SELECT DISTINCT l.account_id FROM message_media l WHERE {IS_LOST} AND {IS_REPORT_DUE} LIMIT $1"
        ))
        .bind(REPORTED)
        .bind(interval);
        let accounts: Vec<AccountRow> = self.owner.rows(query).await?;
        let mut reported = false;
        for AccountRow { account_id } in accounts {
            let account = AccountId(account_id);
            reported |= in_owner!(self.owner, |conn| report_account(conn, account, interval, event))?;
        }
        Ok(reported)
    }

    async fn expired(&self, limit: i64) -> Result<Vec<(MediaId, MessageFilePath)>, StoreError> {
        let query = sql("SELECT account_id, id, file_id FROM message_media
             WHERE state = 'ready' AND expires_at <= now() AND file_id IS NOT NULL ORDER BY expires_at LIMIT $1")
        .bind(limit);
        let rows: Vec<ExpiredRow> = self.owner.rows(query).await?;
        let path = |row: ExpiredRow| {
            let (account_id, key) = (row.account_id.into(), row.file_id);
            (MediaId(row.id), MessageFilePath { account_id, key })
        };
        Ok(rows.into_iter().map(path).collect())
    }

    async fn set_expired(&self, account: AccountId, id: MediaId) -> Result<(), StoreError> {
        let statement = sql("UPDATE message_media SET state = 'expired', file_id = NULL
             WHERE account_id = $1 AND id = $2 AND state = 'ready' AND expires_at <= now()")
        .bind(account)
        .bind(id);
        self.owner.run(statement).await.map(drop)
    }
}
