//! The store of campaigns, with their statistics and lists of sends.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, PgSortExpressionMethods, QueryDsl, QueryableByName, SelectableHelper};
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{
    Campaign, CampaignQuery, CampaignSend, CampaignSort, CampaignStats, CampaignStatus, CampaignStore, Failure,
    PreviewFacts, SendContact, SendsPage,
};
use recado_domain::holds::HoldCause;
use recado_domain::messaging::{AddressKind, ErrorCodes, SendStatus};
use recado_domain::shared::{AccountId, CampaignId, Event, Page, PageQuery, StoreError, WriteOutcome};
use serde_json::Value;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::rows::{self, CampaignRow, Content, CountsRow};
use super::send_ids::id_of_campaign;
use super::{budgets, end, preview, queue, retries};
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::TenantPool;
use crate::pricing::published;
use crate::schema::{campaign_sends, campaigns};
use crate::segments;
use crate::sql::{FENCE, Sql, TextRow, equals_without_index, sql, uuids};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgCampaigns(TenantPool, ErrorCodes);

impl PgCampaigns {
    pub fn new(pool: TenantPool, codes: ErrorCodes) -> Self {
        Self(pool, codes)
    }
}

type Query = campaigns::BoxedQuery<'static, Pg>;

fn filtered(account: AccountId, query: &CampaignQuery) -> Query {
    let live = campaigns::table
        .filter(campaigns::account_id.eq(account.0))
        .filter(campaigns::deleted_at.is_null())
        .into_boxed();
    match query.folder_id {
        Some(folder) => live.filter(campaigns::folder_id.eq(folder.0)),
        None => live,
    }
}

fn ordered(campaigns: Query, query: &CampaignQuery) -> Query {
    /// Orders by one column, then by id.
    macro_rules! by {
        ($column:ident) => {
            if query.descending {
                campaigns.order((campaigns::$column.desc(), campaigns::id.desc()))
            } else {
                campaigns.order((campaigns::$column.asc(), campaigns::id.asc()))
            }
        };
    }
    match query.sort {
        CampaignSort::CreatedAt => by!(created_at),
        CampaignSort::UpdatedAt => by!(updated_at),
        CampaignSort::Name => by!(name),
        CampaignSort::Status => by!(status),
        CampaignSort::ScheduledAt if query.descending => {
            campaigns.order((campaigns::scheduled_at.desc().nulls_last(), campaigns::id.desc()))
        }
        CampaignSort::ScheduledAt => campaigns.order((campaigns::scheduled_at.asc().nulls_last(), campaigns::id.asc())),
    }
}

fn unknown_references<'a>(account: AccountId, campaign: &Campaign) -> Sql<'a> {
    let tags = campaign
        .segment_config
        .as_ref()
        .and_then(|config| config.tag_ids.as_deref())
        .map(uuids)
        .unwrap_or_default();
    sql("SELECT 'template_id' AS text WHERE $2 IS NOT NULL AND NOT EXISTS
           (SELECT 1 FROM message_templates WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL)
         UNION ALL SELECT 'segment_id' WHERE $3 IS NOT NULL AND NOT EXISTS
           (SELECT 1 FROM segments WHERE account_id = $1 AND id = $3 AND deleted_at IS NULL)
         UNION ALL SELECT 'folder_id' WHERE $4 IS NOT NULL AND NOT EXISTS
           (SELECT 1 FROM folders WHERE account_id = $1 AND id = $4 AND kind = 'campaign')
         UNION ALL (SELECT format('segment_config.tag_ids[%s]', t.position - 1)
           FROM unnest($5) WITH ORDINALITY AS t (id, position)
           WHERE NOT EXISTS (SELECT 1 FROM tags WHERE account_id = $1 AND tags.id = t.id) ORDER BY t.position)")
    .bind(account)
    .bind(campaign.template_id)
    .bind(campaign.segment_id)
    .bind(campaign.folder_id)
    .bind(tags)
}

async fn insert(conn: &mut AsyncPgConnection, campaign: &Campaign, events: &[Event]) -> DbResult<()> {
    let rest = (
        campaigns::account_id.eq(campaign.account_id.0),
        campaigns::id.eq(campaign.id.0),
        campaigns::total_recipients.eq(campaign.total_recipients),
        campaigns::simulated.eq(campaign.simulated),
        campaigns::executed_at.eq(campaign.executed_at),
        campaigns::created_by.eq(campaign.created_by.map(Uuid::from)),
        campaigns::created_at.eq(campaign.created_at),
    );
    let values = (rest, Content::try_from(campaign)?);
    diesel::insert_into(campaigns::table)
        .values(values)
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, campaign.account_id, events).await
}

async fn update(
    conn: &mut AsyncPgConnection,
    campaign: &Campaign,
    expected: &Campaign,
    events: &[Event],
) -> DbResult<WriteOutcome<CampaignStatus>> {
    let (account, id) = (campaign.account_id, campaign.id);
    let guarded = rows::live(account, id)
        .filter(campaigns::status.eq(expected.status.as_str()))
        .filter(campaigns::version.eq(expected.version));
    let month: Option<Option<Date>> = diesel::update(guarded)
        .set((
            Content::try_from(campaign)?,
            campaigns::version.eq(campaigns::version + 1),
        ))
        .returning(campaigns::run_quota_month)
        .get_result(&mut *conn)
        .await
        .optional()?;
    let Some(month) = month else {
        return rows::stale(conn, account, id).await;
    };
    if (campaign.late_policy, campaign.skipped_at) != (expected.late_policy, expected.skipped_at) {
        rows::write_late_columns(conn, campaign).await?;
    }
    if campaign.status == CampaignStatus::Cancelled && expected.status == CampaignStatus::Sending {
        end::end_run(conn, account, id, month).await?;
    }
    if campaign.paused_at.is_none() && expected.paused_at.is_some() {
        queue::clear_postponement(conn, account, id).await?;
    }
    if campaign.retry_scheduled_at.is_none() && expected.retry_scheduled_at.is_some() {
        retries::unschedule(conn, account, id).await?;
    }
    outbox::append(conn, account, events).await?;
    Ok(WriteOutcome::Done)
}

async fn delete(
    conn: &mut AsyncPgConnection,
    campaign: &Campaign,
    expected: CampaignStatus,
    events: &[Event],
) -> DbResult<WriteOutcome<CampaignStatus>> {
    let (account, id) = (campaign.account_id, campaign.id);
    let guarded = rows::live(account, id).filter(campaigns::status.eq(expected.as_str()));
    let deletion = (
        campaigns::deleted_at.eq(campaign.updated_at),
        campaigns::updated_at.eq(campaign.updated_at),
        campaigns::version.eq(campaigns::version + 1),
    );
    if diesel::update(guarded).set(deletion).execute(&mut *conn).await? == 0 {
        return rows::stale(conn, account, id).await;
    }
    retries::unschedule(conn, account, id).await?;
    outbox::append(conn, account, events).await?;
    Ok(WriteOutcome::Done)
}

#[derive(QueryableByName)]
#[diesel(table_name = campaign_sends, check_for_backend(Pg))]
struct SentRow {
    id: Uuid,
    contact_id: Uuid,
    status: String,
    sent_at: Option<OffsetDateTime>,
    error_code: Option<i64>,
    error_message: Option<String>,
    failed_at: Option<OffsetDateTime>,
    hold_reason: Option<String>,
    retry_at: Option<OffsetDateTime>,
    #[diesel(sql_type = BigInt)]
    times: i64,
    #[diesel(sql_type = Bool)]
    opted_in_since: bool,
    wa_message_id: Option<String>,
    pricing: Option<Value>,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    by_user_id: bool,
    #[diesel(sql_type = Bool)]
    has_left: bool,
}

impl SentRow {
    fn into_send(self, codes: &ErrorCodes) -> Result<CampaignSend, StoreError> {
        let row = self;
        let status: SendStatus = parse_enum(&row.status)?;
        let failed_at = row.failed_at.filter(|_| status == SendStatus::Failed);
        let failure = failed_at.map(|failed_at| Failure {
            error: row.error_code.map(|code| codes.class(code)),
            times: u32::try_from(row.times).unwrap_or(u32::MAX),
            failed_at,
            opted_in_since: row.opted_in_since,
            has_phone: row.phone.is_some(),
        });
        let class = failure.map(|failure| failure.class());
        let is_held = status == SendStatus::Pending && !row.has_left;
        let hold_reason = row.hold_reason.as_deref().filter(|_| is_held);
        let hold_reason: Option<HoldCause> = hold_reason.map(parse_enum).transpose()?;
        Ok(CampaignSend {
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            status,
            sent_at: row.sent_at,
            error_code: row.error_code,
            error_message: row.error_message,
            failure_class: class.map(|(class, _)| class),
            retry_after: class.and_then(|(_, after)| after),
            hold_reason,
            retry_at: row.retry_at.filter(|_| hold_reason.is_some()),
            wa_message_id: row.wa_message_id,
            pricing: published(row.pricing.as_ref())?,
            address: row.has_left.then(|| AddressKind::of(row.by_user_id)),
            contacts: SendContact {
                name: row.name,
                phone: row.phone,
                wa_user_id: row.wa_user_id,
                email: row.email,
            },
        })
    }
}

/// The contacts that were deleted since the run of campaign `$2` started. An audience has no deleted contact, so only
/// these can be among its recipients. The hour allows for clocks that differ.
const DELETED_SINCE_START: &str = "SELECT d.id FROM contacts d
     WHERE d.account_id = $1 AND d.deleted_at >= (SELECT coalesce(executed_at, created_at) - interval '1 hour'
       FROM campaigns WHERE account_id = $1 AND id = $2)";

/// The number of sends of a campaign, and when and how many of them were archived.
#[derive(QueryableByName)]
struct TotalRow {
    #[diesel(sql_type = BigInt)]
    n: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    archived_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<BigInt>)]
    archived: Option<i64>,
}

/// Counts a campaign's sends to contacts that are not deleted. Returns no row if the campaign does not exist.
fn count_sends<'a>(account: AccountId, id: CampaignId) -> Sql<'a> {
    sql(format!(
        "SELECT coalesce(
             (SELECT total FROM campaign_counters WHERE account_id = $1 AND campaign_id = $2),
             (SELECT count(*) FROM campaign_sends WHERE account_id = $1 AND campaign_id = $2 AND {all_ids}))
           - (SELECT count(*) FROM ({DELETED_SINCE_START}) c
             WHERE EXISTS (SELECT 1 FROM campaign_sends s
                 WHERE s.account_id = $1 AND s.campaign_id = $2 AND s.contact_id = c.id AND {ids} {FENCE})) AS n,
           archived_at, (SELECT sends FROM campaign_archives WHERE account_id = $1 AND campaign_id = $2) AS archived
         FROM campaigns WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL",
        all_ids = id_of_campaign!("campaign_sends.id"),
        ids = id_of_campaign!("s.id"),
    ))
    .bind(account)
    .bind(id)
}

/// Reads a page of a campaign's sends. Execute it with `TenantPool::in_index_order`: the planner could also sort all
/// sends. Each contact of the page is looked up by its key: with statistics from before a large import, a plain join
/// would read all contacts for each send.
fn list_sends<'a>(account: AccountId, id: CampaignId, page: PageQuery) -> Sql<'a> {
    sql(format!(
        include_str!("list_sends.sql"),
        deleted = DELETED_SINCE_START,
        fence = FENCE,
        ids = id_of_campaign!("campaign_sends.id"),
        time_ids = id_of_campaign!("t.first_send_id"),
        of_campaign = equals_without_index!("campaign_id", "$2"),
    ))
    .bind(account)
    .bind(id)
    .bind(page.limit())
    .bind(page.offset())
}

#[async_trait]
impl CampaignStore for PgCampaigns {
    async fn unknown_references(&self, account: AccountId, campaign: &Campaign) -> Result<Vec<String>, StoreError> {
        let mut rows: Vec<TextRow> = self.0.read_rows(account, unknown_references(account, campaign)).await?;
        let filters = campaign
            .segment_config
            .as_ref()
            .and_then(|config| config.filters.as_ref());
        let named = filters.map(|filters| filters.references("segment_config.filters"));
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let unknown = segments::unknown_references(account, &named);
            rows.extend(self.0.read_rows::<TextRow, _>(account, unknown).await?);
        }
        Ok(rows.into_iter().map(|row| row.text).collect())
    }

    async fn insert(&self, campaign: &Campaign, events: &[Event]) -> Result<(), StoreError> {
        in_tenant!(self.0, campaign.account_id, |conn| insert(conn, campaign, events))
    }

    async fn find(&self, account: AccountId, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        let campaign = rows::live(account, id).select(CampaignRow::as_select());
        let costs = budgets::costs_query(account, id);
        let (rows, costs) = self
            .0
            .read_both::<CampaignRow, budgets::CostRow, _, _>(account, campaign, costs)
            .await?;
        let Some(row) = rows.into_iter().next() else {
            return Ok(None);
        };
        let mut campaign = Campaign::try_from(row)?;
        campaign.cost = budgets::cost_of(&costs, id, campaign.budget.as_ref())?;
        (campaign.held, campaign.waiting_until) = budgets::waiting_of(&costs, id);
        Ok(Some(campaign))
    }

    async fn list(&self, account: AccountId, query: &CampaignQuery) -> Result<Page<Campaign>, StoreError> {
        let matching = filtered(account, query);
        let page = ordered(filtered(account, query), query)
            .limit(query.page.limit())
            .offset(query.page.offset());
        let costs = budgets::page_costs_query(account, query);
        let (total, rows, costs) = self
            .0
            .read_page_and::<i64, CampaignRow, budgets::CostRow, _, _, _>(
                account,
                matching.count(),
                page.select(CampaignRow::as_select()),
                costs,
            )
            .await?;
        let mut campaigns: Vec<Campaign> = rows.into_iter().map(Campaign::try_from).collect::<Result<_, _>>()?;
        for campaign in &mut campaigns {
            campaign.cost = budgets::cost_of(&costs, campaign.id, campaign.budget.as_ref())?;
            (campaign.held, campaign.waiting_until) = budgets::waiting_of(&costs, campaign.id);
        }
        Ok(Page::new(query.page, campaigns, total))
    }

    async fn update(
        &self,
        campaign: &Campaign,
        expected: &Campaign,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        in_tenant!(self.0, campaign.account_id, |conn| update(
            conn, campaign, expected, events
        ))
    }

    async fn delete(
        &self,
        campaign: &Campaign,
        expected: CampaignStatus,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        in_tenant!(self.0, campaign.account_id, |conn| delete(
            conn, campaign, expected, events
        ))
    }

    async fn preview_facts(
        &self,
        account: AccountId,
        id: CampaignId,
        first: i64,
    ) -> Result<Option<PreviewFacts>, StoreError> {
        in_tenant!(self.0, account, |conn| preview::preview_facts(
            conn, account, id, first, &self.1
        ))
    }

    async fn stats(&self, account: AccountId, id: CampaignId) -> Result<Option<CampaignStats>, StoreError> {
        Ok(self
            .0
            .read_row_if_any::<CountsRow, _>(account, rows::counts_query(account, id))
            .await?
            .map(CampaignStats::from))
    }

    async fn sends(
        &self,
        account: AccountId,
        id: CampaignId,
        page: PageQuery,
    ) -> Result<Option<SendsPage>, StoreError> {
        let (totals, rows) = self
            .0
            .in_index_order()
            .read_both::<TotalRow, SentRow, _, _>(account, count_sends(account, id), list_sends(account, id, page))
            .await?;
        let Some(total) = totals.into_iter().next() else {
            return Ok(None);
        };
        if let Some(at) = total.archived_at {
            let sends = total.archived.unwrap_or(0);
            return Ok(Some(SendsPage::Archived { at, sends }));
        }
        let sends = rows
            .into_iter()
            .map(|row| row.into_send(&self.1))
            .collect::<Result<_, StoreError>>()?;
        Ok(Some(SendsPage::Stored(Page::new(page, sends, total.n))))
    }
}
