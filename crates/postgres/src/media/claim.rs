//! Claims of due files, within the requests that a number may make.

use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::media::{
    ClaimedFile, FETCH_FOR, FetchFacts, FileClaim, FileState, MAX_FAILED_REQUESTS, MessageFile,
};
use recado_domain::shared::StoreError;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{DbResult, parse_enum};
use crate::sql::sql;

/// Class of advisory locks with two keys: this and a hash of the number. No other lock in the database uses it.
const REQUESTS_LOCK: i32 = 0x6d65_6469;

/// The maximum number of files that one claim postpones.
const POSTPONED: i64 = 1000;

#[derive(QueryableByName)]
struct DueRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    phone_number_id: String,
    #[diesel(sql_type = Bool)]
    is_abandoned: bool,
    #[diesel(sql_type = Bool)]
    is_over: bool,
}

#[derive(QueryableByName)]
struct RequestsRow {
    #[diesel(sql_type = BigInt)]
    taken: i64,
    #[diesel(sql_type = Timestamptz)]
    free_at: OffsetDateTime,
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = SqlUuid)]
    message_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    conversation_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    profile_id: Uuid,
    #[diesel(sql_type = Text)]
    wa_media_id: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Nullable<Text>)]
    mime_type: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    file_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    expected_sha256: Option<String>,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Integer)]
    mismatches: i32,
    #[diesel(sql_type = Timestamptz)]
    written_at: OffsetDateTime,
    #[diesel(sql_type = Array<SqlUuid>)]
    abandoned: Vec<Uuid>,
}

fn count(stored: i32) -> u16 {
    u16::try_from(stored).unwrap_or(u16::MAX)
}

impl ClaimedRow {
    fn into_claimed(self, due: &DueRow, claim: Uuid) -> Result<ClaimedFile, StoreError> {
        Ok(ClaimedFile {
            account_id: due.account_id.into(),
            message_id: self.message_id.into(),
            conversation_id: self.conversation_id.into(),
            contact_id: self.contact_id,
            profile_id: self.profile_id.into(),
            wa_media_id: self.wa_media_id,
            expected_sha256: self.expected_sha256.and_then(|hash| hex::decode(hash).ok()),
            facts: FetchFacts {
                attempts: count(self.attempts),
                mismatches: count(self.mismatches),
                written_at: self.written_at,
            },
            file: MessageFile {
                id: due.id.into(),
                kind: parse_enum(&self.kind)?,
                mime_type: self.mime_type,
                file_name: self.file_name,
                size: None,
                sha256: None,
                state: FileState::Pending,
                reason: None,
                expires_at: None,
            },
            claim,
            abandoned: self.abandoned,
        })
    }
}

pub(super) async fn claim(conn: &mut AsyncPgConnection, claim: Uuid, lease: Duration) -> DbResult<FileClaim> {
    let due: Option<DueRow> = sql(
        "SELECT account_id, id, phone_number_id, claim_id IS NOT NULL AS is_abandoned,
           written_at <= now() - $1 * interval '1 microsecond' AS is_over
         FROM message_media WHERE state = 'pending' AND due_at <= now()
         ORDER BY due_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED",
    )
    .bind(FETCH_FOR)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(due) = due else { return Ok(FileClaim::Idle) };
    if due.is_abandoned {
        abandon(conn, &due).await?;
    }
    // A file whose time is over makes no request.
    if !due.is_over && !may_request(conn, &due.phone_number_id).await? {
        return Ok(FileClaim::Postponed);
    }
    let claimed: Option<ClaimedRow> = sql(
        "UPDATE message_media f SET claim_id = $3, due_at = now() + $4 * interval '1 microsecond'
         FROM conversations v
         WHERE f.account_id = $1 AND f.id = $2 AND v.account_id = f.account_id AND v.id = f.conversation_id
         RETURNING f.message_id, f.conversation_id, v.contact_id, f.profile_id, f.wa_media_id, f.type AS kind,
           f.mime_type, f.file_name, f.expected_sha256, f.attempts::int, f.mismatches::int, f.written_at, f.abandoned",
    )
    .bind(due.account_id)
    .bind(due.id)
    .bind(claim)
    .bind(lease)
    .get_result(&mut *conn)
    .await
    .optional()?;
    match claimed {
        Some(row) => Ok(FileClaim::Claimed(Box::new(row.into_claimed(&due, claim)?))),
        // The conversation is being removed with its account.
        None => {
            sql("UPDATE message_media SET state = 'expired', due_at = NULL WHERE account_id = $1 AND id = $2")
                .bind(due.account_id)
                .bind(due.id)
                .execute(conn)
                .await?;
            Ok(FileClaim::Postponed)
        }
    }
}

/// Takes a file from a worker whose lease has expired. The outcome of its request is unknown, so it counts as failed.
async fn abandon(conn: &mut AsyncPgConnection, due: &DueRow) -> DbResult<()> {
    sql("WITH taken AS (
           UPDATE message_media SET claim_id = NULL, abandoned = abandoned || claim_id WHERE account_id = $1 AND id = $2)
         INSERT INTO whatsapp_media_failures (phone_number_id) VALUES ($3)")
    .bind(due.account_id)
    .bind(due.id)
    .bind(&*due.phone_number_id)
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether a request of the number stays below `MAX_FAILED_REQUESTS` even if it and all requests in flight fail. If not,
/// the due files of the number wait until a failure is an hour old, those with fewer attempts before the others. A claim
/// whose lease has expired is in flight until the file is taken from its worker.
async fn may_request(conn: &mut AsyncPgConnection, phone_number_id: &str) -> DbResult<bool> {
    sql("SELECT pg_advisory_xact_lock($1, hashtext($2))")
        .bind(REQUESTS_LOCK)
        .bind(phone_number_id)
        .execute(&mut *conn)
        .await?;
    let requests: RequestsRow = sql(
        "SELECT count(*) + (SELECT count(*) FROM message_media WHERE phone_number_id = $1 AND state = 'pending'
             AND claim_id IS NOT NULL) AS taken,
           CASE WHEN count(*) < $2 THEN now() + interval '1 second'
             ELSE min(failed_at) + interval '1 hour' END AS free_at
         FROM whatsapp_media_failures WHERE phone_number_id = $1 AND failed_at > now() - interval '1 hour'",
    )
    .bind(phone_number_id)
    .bind(MAX_FAILED_REQUESTS)
    .get_result(&mut *conn)
    .await?;
    if requests.taken < MAX_FAILED_REQUESTS {
        return Ok(true);
    }
    sql("WITH waiting AS (
           UPDATE message_media f SET claim_id = NULL,
             abandoned = CASE WHEN f.claim_id IS NULL THEN f.abandoned ELSE f.abandoned || f.claim_id END,
             due_at = least($2 + f.attempts * interval '1 second',
               greatest(f.written_at + $3 * interval '1 microsecond', now() + interval '1 second'))
           FROM (SELECT account_id, id, claim_id FROM message_media
             WHERE phone_number_id = $1 AND state = 'pending' AND due_at <= now()
             LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED) k
           WHERE f.account_id = k.account_id AND f.id = k.id
           RETURNING k.claim_id)
         INSERT INTO whatsapp_media_failures (phone_number_id)
         SELECT $1 FROM waiting WHERE claim_id IS NOT NULL")
    .bind(phone_number_id)
    .bind(requests.free_at)
    .bind(FETCH_FOR)
    .bind(POSTPONED)
    .execute(conn)
    .await?;
    Ok(false)
}
