//! The archives of campaigns that may have sends to an erased contact.

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{
    ArchiveClaim, ArchiveReplacement, BatchEnd, ErasedArchive, ErasureArchives, ErasureClaim, ErasureStep,
};
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
    #[diesel(sql_type = Array<SqlUuid>)]
    abandoned: Vec<Uuid>,
}

/// Whether an earlier erasure of the account rewrites archives.
const WAITS: &str = "SELECT EXISTS (SELECT FROM erasures
     WHERE account_id = $1 AND state = 'running' AND step = $3 AND id < $2) AS yes";

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
     RETURNING u.campaign_id, u.file_key, u.size, u.sha256, a.abandoned";

async fn next(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    key: Uuid,
    lease: Duration,
) -> DbResult<ArchiveClaim> {
    let Some(after) = renew(conn, claim, lease).await? else {
        return Ok(ArchiveClaim::End(BatchEnd::Lost));
    };
    let waits: FlagRow = sql(WAITS)
        .bind(claim.account_id)
        .bind(claim.id)
        .bind(ErasureStep::ArchivedSends.as_str())
        .get_result(&mut *conn)
        .await?;
    if waits.yes {
        return Ok(ArchiveClaim::End(BatchEnd::Wait));
    }
    if after.is_none() {
        sql(RESTART_ATTEMPTS)
            .bind(claim.account_id)
            .bind(claim.contact_id)
            .execute(&mut *conn)
            .await?;
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
    let replaced = sql(
        "UPDATE campaign_archives SET file_key = $4, size = $5, sha256 = $6, abandoned = ARRAY[file_key]
         WHERE account_id = $1 AND campaign_id = $2 AND file_key = $3 AND $4 = ANY (abandoned)",
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
    lease: Duration,
) -> DbResult<bool> {
    if renew(conn, claim, lease).await?.is_none() {
        return Ok(false);
    }
    sql("UPDATE campaign_archives SET abandoned = '{}' WHERE account_id = $1 AND campaign_id = $2")
        .bind(claim.account_id)
        .bind(campaign)
        .execute(&mut *conn)
        .await?;
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
        lease: Duration,
    ) -> Result<bool, StoreError> {
        in_owner!(self.owner, |conn| record_archive(conn, claim, campaign, lease))
    }
}
