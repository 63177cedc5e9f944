//! The archives of sends: which campaigns are over, the rows that go into files, and the sends that leave.
//!
//! `campaigns.archiving_at` closes a campaign: a status update locks the campaign before it changes a send, and a retry
//! compares the campaign's version, so from its commit on no send of the campaign changes. `archived_at` is set with the
//! verified file. Only then rows leave.

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Date as SqlDate, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::SendCounts;
use recado_domain::media::MessageFilePath;
use recado_domain::messaging::AddressKind;
use recado_domain::retention::{ArchiveFile, ArchiveStep, ArchiveStore, ArchiveTask, ArchivedSend, StoredArchive};
use recado_domain::shared::{AccountId, CampaignId, Event, SendId, StoreError};
use serde_json::Value;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::conditions;
use super::{FileRow, PgRetention};
use crate::campaigns::id_of_campaign;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pricing::published;
use crate::sql::{FlagRow, IdRow, sql};
use crate::transactions::in_owner;

#[derive(QueryableByName)]
struct TaskRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
}

#[derive(QueryableByName)]
struct AttemptRow {
    #[diesel(sql_type = Array<SqlUuid>)]
    abandoned: Vec<Uuid>,
    #[diesel(sql_type = BigInt)]
    total: i64,
    #[diesel(sql_type = BigInt)]
    pending: i64,
    #[diesel(sql_type = BigInt)]
    sent: i64,
    #[diesel(sql_type = BigInt)]
    delivered: i64,
    #[diesel(sql_type = BigInt)]
    read: i64,
    #[diesel(sql_type = BigInt)]
    failed: i64,
}

#[derive(QueryableByName)]
struct SendRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    /// Null: the contact was erased.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    contact_id: Option<Uuid>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Bool)]
    by_user_id: bool,
    #[diesel(sql_type = Bool)]
    has_left: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    sent_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    delivered_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    read_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    failed_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<BigInt>)]
    error_code: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_message_id: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    pricing: Option<Value>,
    #[diesel(sql_type = Nullable<SqlDate>)]
    quota_month: Option<Date>,
}

impl TryFrom<SendRow> for ArchivedSend {
    type Error = StoreError;

    fn try_from(row: SendRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            contact_id: row.contact_id.map(Into::into),
            status: parse_enum(&row.status)?,
            address_kind: row.has_left.then(|| AddressKind::of(row.by_user_id)),
            sent_at: row.sent_at,
            delivered_at: row.delivered_at,
            read_at: row.read_at,
            failed_at: row.failed_at,
            error_code: row.error_code,
            wa_message_id: row.wa_message_id.filter(|_| row.contact_id.is_some()),
            price: published(row.pricing.as_ref())?.map(Into::into).unwrap_or_default(),
            quota_month: row.quota_month,
        })
    }
}

/// Opens the campaigns again that are closed without a verified file, and not over any more: their term became longer.
async fn reopen(conn: &mut AsyncPgConnection, account: AccountId, horizon: Option<OffsetDateTime>) -> DbResult<()> {
    sql(format!(
        "UPDATE campaigns c SET archiving_at = NULL, version = version + 1
         WHERE c.account_id = $1 AND c.archiving_at IS NOT NULL AND c.archived_at IS NULL AND ({}) IS NOT TRUE",
        conditions::over(),
    ))
    .bind(account)
    .bind(horizon)
    .execute(conn)
    .await?;
    Ok(())
}

async fn next(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    horizon: Option<OffsetDateTime>,
    key: Uuid,
) -> DbResult<ArchiveStep> {
    let verified: Option<IdRow> = sql("SELECT campaign_id AS id FROM campaign_archives
         WHERE account_id = $1 AND verified_at IS NOT NULL AND removed_at IS NULL ORDER BY verified_at LIMIT 1")
    .bind(account)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if let Some(campaign) = verified {
        return Ok(ArchiveStep::Remove(campaign.id.into()));
    }
    reopen(&mut *conn, account, horizon).await?;
    let campaign: Option<TaskRow> = sql(format!(
        "SELECT c.id, c.name FROM campaigns c
         LEFT JOIN campaign_archives a ON a.account_id = c.account_id AND a.campaign_id = c.id
         WHERE c.account_id = $1 AND c.archived_at IS NULL AND (a.retry_at IS NULL OR a.retry_at <= now()) AND {}
         ORDER BY c.archiving_at NULLS LAST, c.frozen_at LIMIT 1 FOR UPDATE OF c",
        conditions::over(),
    ))
    .bind(account)
    .bind(horizon)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(campaign) = campaign else {
        return Ok(ArchiveStep::None);
    };
    sql("UPDATE campaigns SET archiving_at = now(), version = version + 1
         WHERE account_id = $1 AND id = $2 AND archiving_at IS NULL")
    .bind(account)
    .bind(campaign.id)
    .execute(&mut *conn)
    .await?;
    begin(conn, account, campaign, key).await
}

/// Begins an attempt. The keys of earlier ones stay until theirs files are deleted, which the attempt does first.
async fn begin(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: TaskRow,
    key: Uuid,
) -> DbResult<ArchiveStep> {
    sql(
        "INSERT INTO campaign_archives AS a (account_id, campaign_id, file_key) VALUES ($1, $2, $3)
         ON CONFLICT (account_id, campaign_id) DO UPDATE
           SET abandoned = a.abandoned || a.file_key, file_key = excluded.file_key, retry_at = NULL",
    )
    .bind(account)
    .bind(campaign.id)
    .bind(key)
    .execute(&mut *conn)
    .await?;
    let attempt: AttemptRow = sql(
        "SELECT a.abandoned, coalesce(n.total, 0) AS total, coalesce(n.pending, 0) AS pending,
           coalesce(n.sent, 0) AS sent, coalesce(n.delivered, 0) AS delivered, coalesce(n.read, 0) AS read,
           coalesce(n.failed, 0) AS failed
         FROM campaign_archives a
         LEFT JOIN campaign_counters n ON n.account_id = a.account_id AND n.campaign_id = a.campaign_id
         WHERE a.account_id = $1 AND a.campaign_id = $2",
    )
    .bind(account)
    .bind(campaign.id)
    .get_result(conn)
    .await?;
    Ok(ArchiveStep::Write(ArchiveTask {
        campaign_id: campaign.id.into(),
        campaign_name: campaign.name,
        key,
        abandoned: attempt.abandoned,
        counts: SendCounts {
            total: attempt.total,
            pending: attempt.pending,
            sent: attempt.sent,
            delivered: attempt.delivered,
            read: attempt.read,
            failed: attempt.failed,
        },
    }))
}

async fn complete(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    file: &ArchiveFile,
) -> DbResult<bool> {
    let is_current = sql(
        "UPDATE campaign_archives SET verified_at = now(), abandoned = '{}', size = $4, sha256 = $5, sends = $6,
           months = $7
         WHERE account_id = $1 AND campaign_id = $2 AND file_key = $3 AND verified_at IS NULL",
    )
    .bind(account)
    .bind(campaign)
    .bind(file.key)
    .bind(i64::try_from(file.stored.size).unwrap_or(i64::MAX))
    .bind(file.stored.sha256.to_vec())
    .bind(file.sends)
    .bind(file.months.clone())
    .execute(&mut *conn)
    .await?;
    if is_current == 0 {
        return Ok(false);
    }
    let archived = sql("UPDATE campaigns SET archived_at = now(), version = version + 1
         WHERE account_id = $1 AND id = $2 AND archiving_at IS NOT NULL AND archived_at IS NULL")
    .bind(account)
    .bind(campaign)
    .execute(conn)
    .await?;
    Ok(archived > 0)
}

async fn refuse(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    task: &ArchiveTask,
    pause: Duration,
    event: &Event,
) -> DbResult<()> {
    let is_first: Option<FlagRow> = sql(
        "UPDATE campaign_archives a SET retry_at = now() + $4 * interval '1 microsecond',
           reported_at = coalesce(a.reported_at, now())
         FROM (SELECT account_id, campaign_id, reported_at IS NULL AS is_first FROM campaign_archives
           WHERE account_id = $1 AND campaign_id = $2 FOR UPDATE) b
         WHERE a.account_id = b.account_id AND a.campaign_id = b.campaign_id AND a.file_key = $3
           AND a.verified_at IS NULL
         RETURNING b.is_first AS yes",
    )
    .bind(account)
    .bind(task.campaign_id)
    .bind(task.key)
    .bind(pause)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(is_first) = is_first else {
        return Ok(());
    };
    sql("UPDATE campaigns SET archiving_at = NULL, version = version + 1
         WHERE account_id = $1 AND id = $2 AND archived_at IS NULL")
    .bind(account)
    .bind(task.campaign_id)
    .execute(&mut *conn)
    .await?;
    if is_first.yes {
        outbox::append(conn, account, std::slice::from_ref(event)).await?;
    }
    Ok(())
}

async fn remove_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    after: SendId,
    limit: i64,
) -> DbResult<Option<SendId>> {
    // The file was verified, or nothing leaves. The message ids of an archived send find nothing any more, and name the
    // number of a person who may be erased later.
    let last: Option<IdRow> = sql(concat!(
        "WITH old AS MATERIALIZED (
           SELECT id, array_remove(string_to_array(superseded_wa_message_id, ' ') || wa_message_id, NULL) AS message_ids
           FROM campaign_sends WHERE account_id = $1 AND campaign_id = $2 AND id > $3 AND ",
        id_of_campaign!("campaign_sends.id"),
        "    AND EXISTS (SELECT 1 FROM campaign_archives
               WHERE account_id = $1 AND campaign_id = $2 AND verified_at IS NOT NULL)
           ORDER BY id LIMIT $4
         ), named AS (
           DELETE FROM sent_messages m USING (SELECT id, unnest(message_ids) AS message_id FROM old) o
           WHERE m.account_id = $1 AND m.wa_message_id = o.message_id AND m.send_id = o.id
         ), gone AS (
           DELETE FROM campaign_sends s USING old o WHERE s.account_id = $1 AND s.id = o.id AND s.id > $3 AND ",
        id_of_campaign!("s.id"),
        ") SELECT id FROM old ORDER BY id DESC LIMIT 1"
    ))
    .bind(account)
    .bind(campaign)
    .bind(after)
    .bind(limit)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if last.is_some() {
        return Ok(last.map(|row| SendId(row.id)));
    }
    sql(concat!(
        "DELETE FROM campaign_send_times t WHERE t.account_id = $1 AND t.campaign_id = $2 AND ",
        id_of_campaign!("t.first_send_id"),
    ))
    .bind(account)
    .bind(campaign)
    .execute(&mut *conn)
    .await?;
    sql("UPDATE campaign_archives SET removed_at = now()
         WHERE account_id = $1 AND campaign_id = $2 AND verified_at IS NOT NULL")
    .bind(account)
    .bind(campaign)
    .execute(conn)
    .await?;
    Ok(None)
}

#[async_trait]
impl ArchiveStore for PgRetention {
    async fn next(
        &self,
        account: AccountId,
        horizon: Option<OffsetDateTime>,
        key: Uuid,
    ) -> Result<ArchiveStep, StoreError> {
        in_owner!(self.owner, |conn| next(conn, account, horizon, key))
    }

    async fn sends(
        &self,
        account: AccountId,
        campaign: CampaignId,
        after: SendId,
        limit: i64,
    ) -> Result<Vec<ArchivedSend>, StoreError> {
        let query = sql(concat!(
            "SELECT s.id, (SELECT o.id FROM contacts o
                 WHERE o.account_id = $1 AND o.id = s.contact_id AND o.erased_at IS NULL) AS contact_id, s.status, s.by_user_id, s.started_at IS NOT NULL AS has_left, s.sent_at,
               s.delivered_at, s.read_at, s.failed_at, s.error_code, s.wa_message_id, s.pricing,
               coalesce(s.quota_month, c.quota_month) AS quota_month
             FROM campaign_sends s JOIN campaigns c ON c.account_id = s.account_id AND c.id = s.campaign_id
             WHERE s.account_id = $1 AND s.campaign_id = $2 AND s.id > $3 AND ",
            id_of_campaign!("s.id"),
            " ORDER BY s.id LIMIT $4"
        ))
        .bind(account)
        .bind(campaign)
        .bind(after)
        .bind(limit);
        let rows: Vec<SendRow> = self.owner.rows(query).await?;
        rows.into_iter().map(ArchivedSend::try_from).collect()
    }

    async fn complete(&self, account: AccountId, campaign: CampaignId, file: &ArchiveFile) -> Result<bool, StoreError> {
        in_owner!(self.owner, |conn| complete(conn, account, campaign, file), unless false)
    }

    async fn refuse(
        &self,
        account: AccountId,
        task: &ArchiveTask,
        pause: Duration,
        event: &Event,
    ) -> Result<(), StoreError> {
        in_owner!(self.owner, |conn| refuse(conn, account, task, pause, event))
    }

    async fn remove_sends(
        &self,
        account: AccountId,
        campaign: CampaignId,
        after: SendId,
        limit: i64,
    ) -> Result<Option<SendId>, StoreError> {
        in_owner!(self.owner, |conn| remove_sends(conn, account, campaign, after, limit))
    }

    async fn find(
        &self,
        account: AccountId,
        campaign: CampaignId,
    ) -> Result<Option<(MessageFilePath, StoredArchive)>, StoreError> {
        let query = sql("SELECT a.file_key, a.size, a.sha256 FROM campaigns c
             JOIN campaign_archives a ON a.account_id = c.account_id AND a.campaign_id = c.id
             WHERE c.account_id = $1 AND c.id = $2 AND c.deleted_at IS NULL AND a.verified_at IS NOT NULL")
        .bind(account)
        .bind(campaign);
        let row: Option<FileRow> = self.tenants.read_row_if_any(account, query).await?;
        row.map(|row| row.stored(account)).transpose()
    }
}
