//! Row types of campaigns, their counters and their queue entries, with conversions to the domain.

use diesel::OptionalExtension;
use diesel::dsl::{AsSelect, auto_type};
use diesel::pg::Pg;
use diesel::prelude::{
    AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper,
};
use diesel::sql_types::{BigInt, Jsonb, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{
    Campaign, CampaignStats, CampaignStatus, QueuedRun, QueuedStart, Scheduler, SendCounts,
};
use recado_domain::costs::CampaignCost;
use recado_domain::shared::{AccountId, Actor, CampaignId, StoreError, WriteOutcome};
use serde_json::Value;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::id_of_campaign;
use crate::errors::{DbResult, corrupt, failed, parse_enum};
use crate::omitted_columns::omitted_column;
use crate::schema::{campaign_queue, campaigns};
use crate::sql::{Sql, sql};

omitted_column!(LatePolicyColumn, campaigns.late_policy: Nullable<Jsonb>);
omitted_column!(SkippedAtColumn, campaigns.skipped_at: Nullable<Timestamptz>);
omitted_column!(ArchivingAtColumn, campaigns.archiving_at: Nullable<Timestamptz>);
omitted_column!(ArchivedAtColumn, campaigns.archived_at: Nullable<Timestamptz>);

#[derive(Queryable, Selectable)]
#[diesel(table_name = campaigns, check_for_backend(Pg))]
pub(super) struct OmittedRow {
    #[diesel(select_expression = LatePolicyColumn, select_expression_type = LatePolicyColumn)]
    late_policy: Option<Value>,
    #[diesel(select_expression = SkippedAtColumn, select_expression_type = SkippedAtColumn)]
    skipped_at: Option<OffsetDateTime>,
    #[diesel(select_expression = ArchivingAtColumn, select_expression_type = ArchivingAtColumn)]
    archiving_at: Option<OffsetDateTime>,
    #[diesel(select_expression = ArchivedAtColumn, select_expression_type = ArchivedAtColumn)]
    archived_at: Option<OffsetDateTime>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = campaigns, check_for_backend(Pg))]
pub(super) struct CampaignRow {
    account_id: Uuid,
    id: Uuid,
    name: String,
    template_id: Option<Uuid>,
    segment_id: Option<Uuid>,
    segment_config: Option<Value>,
    rfm_segments: Vec<String>,
    scheduled_at: Option<OffsetDateTime>,
    scheduled_by: Option<Uuid>,
    scheduled_support_admin: Option<String>,
    variables: Option<Value>,
    header_location: Option<Value>,
    offer_expires_at: Option<OffsetDateTime>,
    reach: String,
    budget: Option<Value>,
    newcomers_only: bool,
    folder_id: Option<Uuid>,
    status: String,
    total_recipients: i64,
    simulated: bool,
    executed_at: Option<OffsetDateTime>,
    completed_at: Option<OffsetDateTime>,
    paused_at: Option<OffsetDateTime>,
    pause_reason: Option<String>,
    retry_scheduled_at: Option<OffsetDateTime>,
    #[diesel(embed)]
    omitted: OmittedRow,
    pub(super) profile_id: Option<Uuid>,
    pub(super) run_quota_month: Option<Date>,
    created_by: Option<Uuid>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    version: i64,
}

impl TryFrom<CampaignRow> for Campaign {
    type Error = StoreError;

    fn try_from(row: CampaignRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            account_id: row.account_id.into(),
            name: row.name,
            template_id: row.template_id.map(Into::into),
            segment_id: row.segment_id.map(Into::into),
            segment_config: row
                .segment_config
                .map(serde_json::from_value)
                .transpose()
                .map_err(corrupt)?,
            rfm_segments: row.rfm_segments,
            scheduled_at: row.scheduled_at,
            scheduled_by: row.scheduled_by.map(|user_id| Scheduler {
                user_id: user_id.into(),
                support_admin: row.scheduled_support_admin,
            }),
            variables: row.variables.map(serde_json::from_value).transpose().map_err(corrupt)?,
            header_location: row
                .header_location
                .map(serde_json::from_value)
                .transpose()
                .map_err(corrupt)?,
            offer_expires_at: row.offer_expires_at,
            reach: parse_enum(&row.reach)?,
            budget: row.budget.map(serde_json::from_value).transpose().map_err(corrupt)?,
            cost: CampaignCost::default(),
            newcomers_only: row.newcomers_only,
            folder_id: row.folder_id.map(Into::into),
            status: parse_enum(&row.status)?,
            total_recipients: row.total_recipients,
            simulated: row.simulated,
            executed_at: row.executed_at,
            completed_at: row.completed_at,
            paused_at: row.paused_at,
            pause_reason: row.pause_reason,
            late_policy: row
                .omitted
                .late_policy
                .map(serde_json::from_value)
                .transpose()
                .map_err(corrupt)?,
            skipped_at: row.omitted.skipped_at,
            retry_scheduled_at: row.retry_scheduled_at,
            waiting_until: None,
            held: 0,
            archiving_at: row.omitted.archiving_at,
            archived_at: row.omitted.archived_at,
            created_by: row.created_by.map(Into::into),
            created_at: row.created_at,
            updated_at: row.updated_at,
            version: row.version,
        })
    }
}

/// The columns that commands on a campaign write. The columns of a run are written by the run alone.
#[derive(Insertable, AsChangeset)]
#[diesel(table_name = campaigns, treat_none_as_null = true)]
pub(super) struct Content<'a> {
    name: &'a str,
    template_id: Option<Uuid>,
    segment_id: Option<Uuid>,
    segment_config: Option<Value>,
    rfm_segments: &'a [String],
    scheduled_at: Option<OffsetDateTime>,
    scheduled_by: Option<Uuid>,
    scheduled_support_admin: Option<&'a str>,
    variables: Option<Value>,
    header_location: Option<Value>,
    offer_expires_at: Option<OffsetDateTime>,
    reach: &'a str,
    budget: Option<Value>,
    newcomers_only: bool,
    folder_id: Option<Uuid>,
    status: &'a str,
    completed_at: Option<OffsetDateTime>,
    paused_at: Option<OffsetDateTime>,
    pause_reason: Option<&'a str>,
    retry_scheduled_at: Option<OffsetDateTime>,
    updated_at: OffsetDateTime,
}

impl<'a> TryFrom<&'a Campaign> for Content<'a> {
    type Error = StoreError;

    fn try_from(campaign: &'a Campaign) -> Result<Self, StoreError> {
        Ok(Self {
            name: &campaign.name,
            template_id: campaign.template_id.map(Uuid::from),
            segment_id: campaign.segment_id.map(Uuid::from),
            segment_config: campaign
                .segment_config
                .as_ref()
                .map(serde_json::to_value)
                .transpose()
                .map_err(failed)?,
            rfm_segments: &campaign.rfm_segments,
            scheduled_at: campaign.scheduled_at,
            scheduled_by: campaign.scheduled_by.as_ref().map(|scheduler| scheduler.user_id.into()),
            scheduled_support_admin: campaign
                .scheduled_by
                .as_ref()
                .and_then(|scheduler| scheduler.support_admin.as_deref()),
            variables: campaign
                .variables
                .as_ref()
                .map(serde_json::to_value)
                .transpose()
                .map_err(failed)?,
            header_location: campaign
                .header_location
                .as_ref()
                .map(serde_json::to_value)
                .transpose()
                .map_err(failed)?,
            offer_expires_at: campaign.offer_expires_at,
            reach: campaign.reach.as_str(),
            budget: campaign
                .budget
                .as_ref()
                .map(serde_json::to_value)
                .transpose()
                .map_err(failed)?,
            newcomers_only: campaign.newcomers_only,
            folder_id: campaign.folder_id.map(Uuid::from),
            status: campaign.status.as_str(),
            completed_at: campaign.completed_at,
            paused_at: campaign.paused_at,
            pause_reason: campaign.pause_reason.as_deref(),
            retry_scheduled_at: campaign.retry_scheduled_at,
            updated_at: campaign.updated_at,
        })
    }
}

/// Writes the columns that [`Content`] cannot name. The caller MUST have locked the campaign.
pub(super) async fn write_late_columns(conn: &mut AsyncPgConnection, campaign: &Campaign) -> DbResult<()> {
    let policy = campaign.late_policy.as_ref().map(serde_json::to_value);
    sql("UPDATE campaigns SET late_policy = $3, skipped_at = $4, version = version + 1 WHERE account_id = $1 AND id = $2")
        .bind(campaign.account_id)
        .bind(campaign.id)
        .bind(policy.transpose().map_err(failed)?)
        .bind(campaign.skipped_at)
        .execute(conn)
        .await?;
    Ok(())
}

/// A campaign that is not deleted.
#[auto_type]
pub(super) fn live(account: AccountId, id: CampaignId) -> _ {
    let key: (Uuid, Uuid) = (account.0, id.0);
    campaigns::table.find(key).filter(campaigns::deleted_at.is_null())
}

/// Returns a campaign that is not deleted.
pub(super) async fn find(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<Option<CampaignRow>> {
    let row = live(account, id)
        .select(CampaignRow::as_select())
        .first(conn)
        .await
        .optional()?;
    Ok(row)
}

/// [`find`] that also locks the campaign until the transaction ends.
pub(super) async fn find_locked(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<Option<CampaignRow>> {
    let row = live(account, id)
        .select(CampaignRow::as_select())
        .for_no_key_update()
        .first(conn)
        .await
        .optional()?;
    Ok(row)
}

/// Locks the campaign of a run, deleted or not. Every change of its queue entry MUST take this lock first.
pub(super) async fn lock(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<()> {
    campaigns::table
        .find((run.account_id.0, run.campaign_id.0))
        .select(campaigns::id)
        .for_no_key_update()
        .execute(conn)
        .await?;
    Ok(())
}

/// Locks the campaign and its queue entry against changes: a cancel or a lower budget waits until the sends of this
/// transaction have started, or is read by it.
pub(super) async fn share_lock(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<()> {
    for lock in [
        "SELECT FROM campaigns WHERE account_id = $1 AND id = $2 FOR SHARE",
        "SELECT FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2 FOR SHARE",
    ] {
        sql(lock)
            .bind(run.account_id)
            .bind(run.campaign_id)
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
pub(super) struct CountsRow {
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
    #[diesel(sql_type = BigInt)]
    held: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    waiting_until: Option<OffsetDateTime>,
}

impl From<CountsRow> for SendCounts {
    fn from(row: CountsRow) -> Self {
        Self {
            total: row.total,
            pending: row.pending,
            sent: row.sent,
            delivered: row.delivered,
            read: row.read,
            failed: row.failed,
        }
    }
}

impl From<CountsRow> for CampaignStats {
    fn from(row: CountsRow) -> Self {
        Self {
            held: row.held,
            waiting_until: row.waiting_until,
            counts: row.into(),
        }
    }
}

/// Reads the counters of a campaign, or counts its sends if it has no counters: no run has started, or a backup or
/// another tool inserted the sends. The condition is inside of the lateral join: in its ON clause it would apply after
/// all sends were counted. Returns no row if the campaign does not exist.
pub(super) fn counts_query<'a>(account: AccountId, id: CampaignId) -> Sql<'a> {
    sql(format!(include_str!("send_counts.sql"), ids = id_of_campaign!("s.id")))
        .bind(account)
        .bind(id)
}

/// Runs [`counts_query`] on a connection.
pub(super) async fn stats(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<Option<CampaignStats>> {
    let row: Option<CountsRow> = counts_query(account, id).get_result(conn).await.optional()?;
    Ok(row.map(CampaignStats::from))
}

/// The counters alone.
pub(super) async fn counts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<Option<SendCounts>> {
    Ok(stats(conn, account, id).await?.map(|stats| stats.counts))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = campaign_queue, check_for_backend(Pg))]
pub(super) struct QueueEntryRow {
    trigger: String,
    user_id: Option<Uuid>,
    ip_address: Option<String>,
    support_admin: Option<String>,
}

/// Selects trigger and actor of a run's queue entry.
#[auto_type]
pub(super) fn queue_entry(run: QueuedRun) -> _ {
    let key: (Uuid, Uuid) = (run.account_id.0, run.campaign_id.0);
    let columns: AsSelect<QueueEntryRow, Pg> = QueueEntryRow::as_select();
    campaign_queue::table.find(key).select(columns)
}

impl TryFrom<QueueEntryRow> for QueuedStart {
    type Error = StoreError;

    fn try_from(row: QueueEntryRow) -> Result<Self, StoreError> {
        let (ip_address, support_admin) = (row.ip_address, row.support_admin);
        Ok(Self {
            trigger: parse_enum(&row.trigger)?,
            actor: row.user_id.map(|user_id| Actor {
                user_id: user_id.into(),
                ip_address,
                support_admin,
            }),
        })
    }
}

#[derive(QueryableByName)]
pub(super) struct RunRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
}

impl From<RunRow> for QueuedRun {
    fn from(row: RunRow) -> Self {
        Self {
            account_id: row.account_id.into(),
            campaign_id: row.campaign_id.into(),
        }
    }
}

/// How a guarded write that changed nothing ended.
pub(super) async fn stale(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<WriteOutcome<CampaignStatus>> {
    let status: Option<String> = live(account, id)
        .select(campaigns::status)
        .first(conn)
        .await
        .optional()?;
    Ok(match status {
        Some(status) => WriteOutcome::Stale(parse_enum(&status)?),
        None => WriteOutcome::Missing,
    })
}
