//! The queue of erasures: claims, and the batches of their steps.

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{BatchEnd, ErasedFile, ErasureClaim, ErasureQueue, ErasureStep};
use recado_domain::shared::{Cipher, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::batch::{Batch, kind};
use super::{PgErasures, files, in_progress, rows, sealed, searches};
use crate::direct_messages::fail_unsent;
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::sql::{Sql, sql};
use crate::transactions::in_owner;

#[derive(QueryableByName)]
struct ClaimRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Text)]
    step: String,
    #[diesel(sql_type = Timestamptz)]
    requested_at: OffsetDateTime,
    #[diesel(sql_type = Jsonb)]
    marks: Value,
}

#[derive(QueryableByName)]
struct PositionRow {
    #[diesel(sql_type = Nullable<Text>)]
    after: Option<String>,
}

const CLAIM: &str = "UPDATE erasures e SET due_at = now() + $2 * interval '1 microsecond', claim_id = $1
     FROM (SELECT account_id, id FROM erasures WHERE due_at <= now() ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) k
     WHERE e.account_id = k.account_id AND e.id = k.id
     RETURNING e.account_id, e.id, e.contact_id, e.step, e.requested_at, e.marks";

const IS_CLAIMED: &str = "account_id = $1 AND id = $2 AND claim_id = $3 AND state = 'running'";

fn of_claim<'a>(text: String, claim: &ErasureClaim) -> Sql<'a> {
    sql(text).bind(claim.account_id).bind(claim.id).bind(claim.claim)
}

/// Extends the lease and locks the receipt. Returns the position of the step; None if the claim is not current any more.
pub(super) async fn renew(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    lease: Duration,
) -> DbResult<Option<Option<String>>> {
    let statement = format!(
        "UPDATE erasures SET due_at = now() + $4 * interval '1 microsecond' WHERE {IS_CLAIMED} RETURNING after"
    );
    let row: Option<PositionRow> = of_claim(statement, claim)
        .bind(lease)
        .get_result(conn)
        .await
        .optional()?;
    Ok(row.map(|row| row.after))
}

/// Stores what a batch has removed, and its position.
pub(super) async fn record(conn: &mut AsyncPgConnection, claim: &ErasureClaim, batch: &Batch) -> DbResult<()> {
    let counts: Vec<&(&str, i64)> = batch.removed.iter().filter(|(_, count)| *count > 0).collect();
    if counts.is_empty() && batch.after.is_none() {
        return Ok(());
    }
    let statement = format!(
        "UPDATE erasures SET after = $4, removed = removed || coalesce((
           SELECT jsonb_object_agg(c.kind, coalesce((removed ->> c.kind)::bigint, 0) + c.n)
           FROM unnest($5, $6) AS c (kind, n)), '{{}}') WHERE {IS_CLAIMED}"
    );
    of_claim(statement, claim)
        .bind(batch.after.clone())
        .bind(counts.iter().map(|(kind, _)| (*kind).to_owned()).collect::<Vec<_>>())
        .bind(counts.iter().map(|(_, count)| *count).collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(())
}

async fn run_batch(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    step: ErasureStep,
    limit: i64,
    lease: Duration,
    cipher: &dyn Cipher,
) -> DbResult<BatchEnd> {
    let Some(after) = renew(conn, claim, lease).await? else {
        return Ok(BatchEnd::Lost);
    };
    let batch = match step {
        ErasureStep::Unsent => {
            let failed = fail_unsent(conn, claim.account_id, claim.contact_id, limit).await?;
            Batch {
                has_more: failed >= limit,
                ..Batch::default()
            }
        }
        ErasureStep::InProgress => in_progress::wait(conn, claim, limit).await?,
        ErasureStep::DirectMessages => rows::direct_messages(conn, claim, limit).await?,
        ErasureStep::HeldMessages => sealed::held_messages(conn, claim, after, limit, cipher).await?,
        ErasureStep::StoredResponses => sealed::stored_responses(conn, claim, after, limit, cipher).await?,
        ErasureStep::OutboxEvents => searches::outbox_events(conn, claim, limit).await?,
        ErasureStep::WebhookEvents | ErasureStep::WebhookLogs | ErasureStep::Notifications | ErasureStep::AuditLogs => {
            searches::search(conn, claim, step, after, limit).await?
        }
        step => rows::empty(conn, claim, step, limit).await?,
    };
    record(conn, claim, &batch).await?;
    Ok(batch.end())
}

async fn release_files(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    step: ErasureStep,
    limit: i64,
    lease: Duration,
) -> DbResult<(BatchEnd, Vec<ErasedFile>)> {
    if renew(conn, claim, lease).await?.is_none() {
        return Ok((BatchEnd::Lost, vec![]));
    }
    match step {
        ErasureStep::Exports => files::release_exports(conn, claim, limit).await,
        _ => files::release_media(conn, claim, limit).await,
    }
}

async fn record_deleted(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    step: ErasureStep,
    deleted: &[ErasedFile],
) -> DbResult<()> {
    let ids = deleted.iter().map(|file| file.id).collect();
    let count = files::record_deleted(conn, claim, step, ids).await?;
    record(conn, claim, &Batch::of(kind(step), count, i64::MAX)).await
}

/// The reason leaves, too: it may name the person in any spelling.
const FINISH: &str = "state = 'done', finished_at = now(), due_at = NULL, claim_id = NULL, marks = NULL, reason = NULL";

/// Transactions that are open when the step begins may still write what they read before the request. Those that begin
/// later see the erased contact.
const OPEN_TRANSACTIONS: &str = "transaction_id = pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1";

#[async_trait]
impl ErasureQueue for PgErasures {
    async fn claim(&self, claim: Uuid, lease: Duration) -> Result<Option<ErasureClaim>, StoreError> {
        let row: Option<ClaimRow> = self.owner.row_if_any(sql(CLAIM).bind(claim).bind(lease)).await?;
        row.map(|row| {
            Ok(ErasureClaim {
                account_id: row.account_id.into(),
                id: row.id.into(),
                contact_id: row.contact_id.into(),
                claim,
                step: parse_enum(&row.step)?,
                requested_at: row.requested_at,
                marks: serde_json::from_value(row.marks).map_err(corrupt)?,
            })
        })
        .transpose()
    }

    async fn run_batch(
        &self,
        claim: &ErasureClaim,
        step: ErasureStep,
        limit: i64,
        lease: Duration,
    ) -> Result<BatchEnd, StoreError> {
        in_owner!(self.owner, |conn| run_batch(
            conn,
            claim,
            step,
            limit,
            lease,
            self.cipher.as_ref()
        ))
    }

    async fn release_files(
        &self,
        claim: &ErasureClaim,
        step: ErasureStep,
        limit: i64,
        lease: Duration,
    ) -> Result<(BatchEnd, Vec<ErasedFile>), StoreError> {
        in_owner!(self.owner, |conn| release_files(conn, claim, step, limit, lease))
    }

    async fn record_deleted(
        &self,
        claim: &ErasureClaim,
        step: ErasureStep,
        files: &[ErasedFile],
    ) -> Result<(), StoreError> {
        in_owner!(self.owner, |conn| record_deleted(conn, claim, step, files))
    }

    async fn advance(&self, claim: &ErasureClaim, next: Option<ErasureStep>) -> Result<bool, StoreError> {
        let statement = match next {
            Some(next) => of_claim(
                format!("UPDATE erasures SET step = $4, after = NULL, {OPEN_TRANSACTIONS} WHERE {IS_CLAIMED}"),
                claim,
            )
            .bind(next.as_str()),
            None => of_claim(format!("UPDATE erasures SET {FINISH} WHERE {IS_CLAIMED}"), claim),
        };
        Ok(self.owner.run(statement).await? > 0)
    }

    async fn postpone(&self, claim: &ErasureClaim, delay: Duration) -> Result<(), StoreError> {
        let statement = format!(
            "UPDATE erasures SET due_at = now() + $4 * interval '1 microsecond', claim_id = NULL WHERE {IS_CLAIMED}"
        );
        self.owner.run(of_claim(statement, claim).bind(delay)).await.map(drop)
    }
}
