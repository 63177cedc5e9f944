//! The archives of campaigns that may have sends to an erased contact.

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{
    ArchiveClaim, ArchiveReplacement, BatchEnd, ErasedArchive, ErasureArchives, ErasureClaim, ErasureStep,
};
use recado_domain::media::MessageFilePath;
use recado_domain::shared::{CampaignId, StoreError};
use time::Duration;
use uuid::Uuid;

use super::PgErasures;
use super::batch::{Batch, kind};
use super::queue::{record, renew};
use crate::errors::DbResult;
use crate::retention::FileRow;
use crate::sql::{FlagRow, sql};
use crate::transactions::in_owner;

#[derive(QueryableByName)]
struct ArchiveRow {
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(embed)]
    file: FileRow,
    #[diesel(sql_type = BigInt)]
    sends: i64,
    #[diesel(sql_type = Array<SqlUuid>)]
    abandoned: Vec<Uuid>,
}

/// Class of advisory locks with two keys: this and a hash of the account. No other lock in the database uses it.
const ARCHIVES_LOCK: i32 = 0x6172_6368;

/// Whether another erasure of the account has begun to rewrite archives, and is not done. It has a position.
const IS_TAKEN: &str = "SELECT EXISTS (SELECT FROM erasures
     WHERE account_id = $1 AND id <> $2 AND state = 'running' AND step = $3 AND after IS NOT NULL) AS yes";

/// Makes the attempts that may have read sends to the contact begin again, under another key: the sends of a campaign are
/// in their table until its file is verified. Attempts that begin later see that the contact is erased.
const RESTART_ATTEMPTS: &str =
    "UPDATE campaign_archives a SET abandoned = a.abandoned || a.file_key, file_key = gen_random_uuid()
     WHERE a.account_id = $1 AND a.verified_at IS NULL AND a.campaign_id IN
       (SELECT s.campaign_id FROM campaign_sends s WHERE s.account_id = $1 AND s.contact_id = $2)";

/// A campaign that froze its recipients before the contact existed has no sends to it. A day: clocks of servers differ.
const NEXT: &str = "UPDATE campaign_archives u SET abandoned = a.abandoned || $4::uuid FROM (
       SELECT a.account_id, a.campaign_id, a.abandoned FROM campaign_archives a
       JOIN campaigns c ON c.account_id = a.account_id AND c.id = a.campaign_id
       WHERE a.account_id = $1 AND a.campaign_id > $3 AND a.verified_at IS NOT NULL
         AND c.frozen_at > (SELECT created_at FROM contacts WHERE account_id = $1 AND id = $2) - interval '1 day'
       ORDER BY a.campaign_id LIMIT 1 FOR NO KEY UPDATE OF a) a
     WHERE u.account_id = $1 AND u.campaign_id = a.campaign_id
     RETURNING u.campaign_id, u.file_key, u.size, u.sha256, u.sends, a.abandoned";

/// Begins the step, which one erasure of an account has until it is done: two would replace the same file. Returns false
/// if another one has it. From then on the receipt has a position. The lock makes a concurrent erasure wait, which then
/// finds the position.
async fn begin(conn: &mut AsyncPgConnection, claim: &ErasureClaim) -> DbResult<bool> {
    sql("SELECT pg_advisory_xact_lock($1, hashtext($2))")
        .bind(ARCHIVES_LOCK)
        .bind(claim.account_id.to_string())
        .execute(&mut *conn)
        .await?;
    let taken: FlagRow = sql(IS_TAKEN)
        .bind(claim.account_id)
        .bind(claim.id)
        .bind(ErasureStep::ArchivedSends.as_str())
        .get_result(&mut *conn)
        .await?;
    if taken.yes {
        return Ok(false);
    }
    let first = Batch {
        after: Some(Uuid::nil().to_string()),
        ..Batch::default()
    };
    record(conn, claim, &first).await?;
    sql(RESTART_ATTEMPTS)
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .execute(conn)
        .await?;
    Ok(true)
}

async fn next(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    key: Uuid,
    lease: Duration,
) -> DbResult<ArchiveClaim> {
    let Some(after) = renew(conn, claim, lease).await? else {
        return Ok(ArchiveClaim::End(BatchEnd::Lost));
    };
    if after.is_none() && !begin(conn, claim).await? {
        return Ok(ArchiveClaim::End(BatchEnd::Wait));
    }
    let after = after.and_then(|after| after.parse::<Uuid>().ok());
    let row: Option<ArchiveRow> = sql(NEXT)
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .bind(after.unwrap_or(Uuid::nil()))
        .bind(key)
        .get_result(conn)
        .await
        .optional()?;
    let Some(row) = row else {
        return Ok(ArchiveClaim::End(BatchEnd::Done));
    };
    let (path, stored) = row.file.stored(claim.account_id)?;
    Ok(ArchiveClaim::Archive(ErasedArchive {
        campaign_id: row.campaign_id.into(),
        path,
        stored,
        sends: row.sends,
        abandoned: row.abandoned,
    }))
}

async fn replace(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    archive: &ErasedArchive,
    ArchiveReplacement { key, stored, lines }: ArchiveReplacement,
    lease: Duration,
) -> DbResult<bool> {
    let Some(after) = renew(conn, claim, lease).await? else {
        return Ok(false);
    };
    // An archive that was claimed again, under another key, is not replaced by the file of the claim before.
    let replaced = sql(
        "UPDATE campaign_archives SET file_key = $4, size = $5, sha256 = $6, abandoned = ARRAY[file_key]
         WHERE account_id = $1 AND campaign_id = $2 AND file_key = $3
           AND abandoned[cardinality(abandoned)] = $4",
    )
    .bind(claim.account_id)
    .bind(archive.campaign_id)
    .bind(archive.path.key)
    .bind(key)
    .bind(i64::try_from(stored.size).unwrap_or(i64::MAX))
    .bind(stored.sha256.to_vec())
    .execute(&mut *conn)
    .await?;
    if replaced == 0 {
        return Ok(false);
    }
    let batch = Batch {
        after,
        ..Batch::of(kind(ErasureStep::ArchivedSends), lines, i64::MAX)
    };
    record(conn, claim, &batch).await?;
    Ok(true)
}

async fn record_archive(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    campaign: CampaignId,
    file_key: Uuid,
    lease: Duration,
) -> DbResult<bool> {
    if renew(conn, claim, lease).await?.is_none() {
        return Ok(false);
    }
    let recorded = sql("UPDATE campaign_archives SET abandoned = '{}'
         WHERE account_id = $1 AND campaign_id = $2 AND file_key = $3")
    .bind(claim.account_id)
    .bind(campaign)
    .bind(file_key)
    .execute(&mut *conn)
    .await?;
    if recorded == 0 {
        // The position stays, so the archive is read again.
        return Ok(true);
    }
    let batch = Batch {
        after: Some(campaign.0.to_string()),
        ..Batch::default()
    };
    record(conn, claim, &batch).await?;
    Ok(true)
}

#[async_trait]
impl ErasureArchives for PgErasures {
    async fn next_archive(&self, claim: &ErasureClaim, key: Uuid, lease: Duration) -> Result<ArchiveClaim, StoreError> {
        in_owner!(self.owner, |conn| next(conn, claim, key, lease))
    }

    async fn renew(&self, claim: &ErasureClaim, lease: Duration) -> Result<bool, StoreError> {
        let renewed = in_owner!(self.owner, |conn| renew(conn, claim, lease))?;
        Ok(renewed.is_some())
    }

    async fn has_file(&self, campaign: CampaignId, path: &MessageFilePath) -> Result<bool, StoreError> {
        let query = sql("SELECT EXISTS (SELECT FROM campaign_archives
             WHERE account_id = $1 AND campaign_id = $2 AND file_key = $3) AS yes")
        .bind(path.account_id)
        .bind(campaign)
        .bind(path.key);
        Ok(self.owner.row::<FlagRow>(query).await?.yes)
    }

    async fn replace_archive(
        &self,
        claim: &ErasureClaim,
        archive: &ErasedArchive,
        replacement: ArchiveReplacement,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        in_owner!(self.owner, |conn| replace(conn, claim, archive, replacement, lease))
    }

    async fn record_archive(
        &self,
        claim: &ErasureClaim,
        campaign: CampaignId,
        file_key: Uuid,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        in_owner!(self.owner, |conn| record_archive(
            conn, claim, campaign, file_key, lease
        ))
    }
}
