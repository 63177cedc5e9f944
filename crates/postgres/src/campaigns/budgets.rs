//! Budgets of campaigns: what started sends have reserved, and which sends may start.
//!
//! A budget's row is locked after the sends and before the counters, by starts and by status updates. So the reserved
//! sum that a start reads does not change before it commits.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{Budget, CampaignQuery, CampaignSort, QueuedRun, admitted};
use recado_domain::costs::{CampaignCost, CostAmount, RateTable, category_word, country_of};
use recado_domain::messaging::Category;
use recado_domain::shared::{AccountId, Amount, CampaignId, SendId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::send_ids::smallest;
use crate::costs::{RatePeriod, rates};
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::filters::HAS_OPTED_OUT;
use crate::ingestion::amount;
use crate::sql::{FENCE, Sql, TextRow, key_rows, sql, uuids};
use crate::whatsapp::USER_ID_SCOPE;

/// Changes reserved amounts, by campaign. The caller has locked the sends.
pub(super) async fn change_reserved(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    changes: BTreeMap<Uuid, Amount>,
) -> DbResult<()> {
    for (campaign, change) in changes {
        add_reserved(conn, account, campaign, change).await?;
    }
    Ok(())
}

async fn add_reserved(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: Uuid,
    amount: Amount,
) -> DbResult<()> {
    sql("UPDATE campaign_budgets SET reserved = reserved + ($3::text)::numeric
         WHERE account_id = $1 AND campaign_id = $2")
    .bind(account)
    .bind(campaign)
    .bind(amount.to_string())
    .execute(conn)
    .await?;
    Ok(())
}

/// The sends of a batch that the budget admits, and the rate of each.
pub(super) struct AdmittedSends {
    pub(super) sends: Vec<(SendId, Amount)>,
    /// Those of `sends` whose contact can not be written to and has no rate. They have no reservation, so the worker MUST
    /// NOT send them.
    pub(super) unreachable: Vec<SendId>,
    /// Whether a send of the batch would exceed the budget, or has no rate.
    pub(super) is_over_budget: bool,
}

#[derive(QueryableByName)]
struct BudgetRow {
    #[diesel(sql_type = Nullable<Jsonb>)]
    budget: Option<Value>,
    #[diesel(sql_type = Bool)]
    simulated: bool,
    #[diesel(sql_type = Text)]
    category: String,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

#[derive(QueryableByName)]
struct AddressRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    /// Whether its contact may and can be written to. Another send costs nothing: it fails when it starts.
    #[diesel(sql_type = Bool)]
    is_reachable: bool,
}

impl AddressRow {
    fn country(&self) -> Option<String> {
        country_of(self.phone.as_deref(), self.wa_user_id.as_deref())
    }
}

/// Locks the sends and the budget, and decides which of the sends may start. None: the campaign has no budget now. The
/// caller MUST have locked the campaign and its queue entry.
pub(super) async fn admit(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    next: &[SendId],
) -> DbResult<Option<AdmittedSends>> {
    let (account, campaign) = (run.account_id, run.campaign_id);
    let row: BudgetRow = sql("SELECT c.budget, c.simulated, t.category, now() AS now FROM campaigns c
         JOIN message_templates t ON t.account_id = c.account_id AND t.id = c.template_id
         WHERE c.account_id = $1 AND c.id = $2")
    .bind(account)
    .bind(campaign)
    .get_result(&mut *conn)
    .await?;
    // A simulated run costs nothing.
    let Some(budget) = row.budget.filter(|_| !row.simulated) else {
        return Ok(None);
    };
    let budget: Budget = serde_json::from_value(budget).map_err(corrupt)?;
    let addresses = lock_addresses(conn, run, next).await?;
    let category: Category = parse_enum(&row.category)?;
    let committed = committed(conn, account, campaign, &budget.currency).await?;
    let countries: BTreeSet<String> = addresses.iter().filter_map(AddressRow::country).collect();
    let table = rates(conn, countries.into_iter().collect(), RatePeriod::at(row.now)).await?;
    let known = addresses.iter().map(|address| {
        let rate = rate_of(
            &table,
            address.country().as_deref(),
            category,
            &budget.currency,
            row.now,
        );
        (SendId(address.id), rate, address.is_reachable)
    });
    // A send that was started or ended meanwhile is in the list no more, and is not started again.
    let known: BTreeMap<SendId, (Option<Amount>, bool)> = known
        .map(|(send, rate, is_reachable)| (send, (rate, is_reachable)))
        .collect();
    let candidates = next.iter().filter_map(|send| Some((*send, *known.get(send)?)));
    let candidates: Vec<(SendId, (Option<Amount>, bool))> = candidates.collect();
    let rates: Vec<Option<Amount>> = candidates
        .iter()
        .map(|(_, (rate, is_reachable))| rate.or((!is_reachable).then_some(Amount::ZERO)))
        .collect();
    let count = admitted(&budget, committed, &rates);
    let without_rate = candidates.iter().take(count).filter(|(_, (rate, _))| rate.is_none());
    let unreachable = without_rate.map(|(send, _)| *send).collect();
    let admitted = candidates.iter().map(|(send, _)| *send).zip(rates).take(count);
    Ok(Some(AdmittedSends {
        sends: admitted.filter_map(|(send, rate)| Some((send, rate?))).collect(),
        unreachable,
        is_over_budget: count < candidates.len(),
    }))
}

fn rate_of(
    table: &RateTable,
    country: Option<&str>,
    category: Category,
    currency: &str,
    now: OffsetDateTime,
) -> Option<Amount> {
    let rate = table.rate(country?, &category_word(category), Some(currency), now)?;
    Some(rate.rate)
}

/// Locks the sends that can start, in the order of their ids.
async fn lock_addresses(conn: &mut AsyncPgConnection, run: QueuedRun, next: &[SendId]) -> DbResult<Vec<AddressRow>> {
    let rows = sql(format!(
        include_str!("due_addresses.sql"),
        keys = key_rows("$2", "id"),
        has_opted_out = HAS_OPTED_OUT,
        scope = USER_ID_SCOPE,
        fence = FENCE,
    ))
    .bind(run.account_id)
    .bind(uuids(next))
    .bind(smallest(next.iter().map(|send| &send.0)))
    .bind(run.campaign_id)
    .load(conn)
    .await?;
    Ok(rows)
}

/// Stores the currency in the budget's row, locks it, and returns what the started sends cost and have reserved.
async fn committed(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    currency: &str,
) -> DbResult<Amount> {
    sql(
        "INSERT INTO campaign_budgets (account_id, campaign_id, currency) VALUES ($1, $2, $3)
         ON CONFLICT (account_id, campaign_id) DO UPDATE SET currency = excluded.currency
         WHERE campaign_budgets.currency IS DISTINCT FROM excluded.currency",
    )
    .bind(account)
    .bind(campaign)
    .bind(currency)
    .execute(&mut *conn)
    .await?;
    let reserved: TextRow = sql("SELECT reserved::text AS text FROM campaign_budgets
         WHERE account_id = $1 AND campaign_id = $2 FOR UPDATE")
    .bind(account)
    .bind(campaign)
    .get_result(&mut *conn)
    .await?;
    let spent: TextRow = sql("SELECT coalesce(sum(amount), 0)::text AS text FROM cost_rollups
         WHERE account_id = $1 AND campaign_id = $2 AND currency = $3")
    .bind(account)
    .bind(campaign)
    .bind(currency)
    .get_result(&mut *conn)
    .await?;
    Ok(amount(&reserved.text)? + amount(&spent.text)?)
}

/// Reserves the rates of sends that were started, in the transaction of their start.
pub(super) async fn reserve(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    started: Vec<(SendId, Amount)>,
) -> DbResult<()> {
    if started.is_empty() {
        return Ok(());
    }
    let (ids, amounts): (Vec<Uuid>, Vec<Amount>) = started.into_iter().map(|(send, rate)| (send.0, rate)).unzip();
    let total: Amount = amounts.iter().copied().sum();
    sql(format!(
        "UPDATE campaign_sends s SET reserved_amount = k.amount::numeric
         FROM {keys} k WHERE s.account_id = $1 AND s.id = k.id AND s.id >= $4",
        keys = key_rows("$2, $3", "id, amount"),
    ))
    .bind(run.account_id)
    .bind(ids.clone())
    .bind(amounts)
    .bind(smallest(ids.iter()))
    .execute(&mut *conn)
    .await?;
    add_reserved(conn, run.account_id, run.campaign_id.0, total).await
}

/// What reads of campaigns add up: one row for each campaign and currency, one with what the budget has reserved, and one
/// of a waiting run.
#[derive(QueryableByName)]
pub(super) struct CostRow {
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Text)]
    amount: String,
    #[diesel(sql_type = BigInt)]
    unpriced: i64,
    #[diesel(sql_type = Text)]
    reserved: String,
    /// Of a waiting run: its held sends, and until when they are held.
    #[diesel(sql_type = BigInt)]
    held: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    waiting_until: Option<OffsetDateTime>,
}

/// The sums of the campaigns of `k`.
macro_rules! sums_of {
    () => {
        "SELECT k.id AS campaign_id, r.currency, sum(r.amount)::text AS amount, sum(r.unpriced)::bigint AS unpriced,
           '0' AS reserved, 0::bigint AS held, NULL::timestamptz AS waiting_until
         FROM k JOIN cost_rollups r ON r.account_id = $1 AND r.campaign_id = k.id GROUP BY 1, 2
         UNION ALL SELECT k.id, coalesce(b.currency, ''), '0', 0, b.reserved::text, 0, NULL
         FROM k JOIN campaign_budgets b ON b.account_id = $1 AND b.campaign_id = k.id
         UNION ALL SELECT k.id, '', '0', 0, '0', q.held, q.waiting_until
         FROM k JOIN campaign_queue q ON q.account_id = $1 AND q.campaign_id = k.id AND q.waiting_until > now()
           AND EXISTS (SELECT FROM campaigns c WHERE c.account_id = $1 AND c.id = k.id AND c.paused_at IS NULL)"
    };
}

pub(super) fn costs_query<'a>(account: AccountId, campaign: CampaignId) -> Sql<'a> {
    sql(concat!("WITH k AS (SELECT $2 AS id) ", sums_of!()))
        .bind(account)
        .bind(campaign)
}

/// The sums of the campaigns of a page of the list.
pub(super) fn page_costs_query<'a>(account: AccountId, query: &CampaignQuery) -> Sql<'a> {
    let direction = if query.descending { "DESC" } else { "ASC" };
    sql(format!(
        "WITH k AS MATERIALIZED (SELECT id FROM campaigns
           WHERE account_id = $1 AND deleted_at IS NULL AND {folder}
           ORDER BY {sort} {direction} NULLS {nulls}, id {direction} LIMIT $2 OFFSET $3) {sums}",
        folder = if query.folder_id.is_some() {
            "folder_id = $4"
        } else {
            "$4 IS NULL"
        },
        sort = query.sort.as_str(),
        nulls = if query.descending && query.sort != CampaignSort::ScheduledAt {
            "FIRST"
        } else {
            "LAST"
        },
        sums = sums_of!(),
    ))
    .bind(account)
    .bind(query.page.limit())
    .bind(query.page.offset())
    .bind(query.folder_id)
}

/// The cost of a campaign from the rows of [`costs_query`].
pub(super) fn cost_of(rows: &[CostRow], campaign: CampaignId, budget: Option<&Budget>) -> DbResult<CampaignCost> {
    let mut amounts = Vec::new();
    for row in rows.iter().filter(|row| row.campaign_id == campaign.0) {
        amounts.push(CostAmount {
            currency: row.currency.clone(),
            amount: amount(&row.amount)?,
            reserved: amount(&row.reserved)?,
            unpriced: row.unpriced,
        });
    }
    Ok(CampaignCost::of(
        budget.map(|budget| budget.currency.as_str()),
        &amounts,
    ))
}

/// What the run of a campaign waits for, from the rows of [`costs_query`].
pub(super) fn waiting_of(rows: &[CostRow], campaign: CampaignId) -> (i64, Option<OffsetDateTime>) {
    let mut of_campaign = rows.iter().filter(|row| row.campaign_id == campaign.0);
    let waiting = of_campaign.find(|row| row.waiting_until.is_some());
    waiting.map_or((0, None), |row| (row.held, row.waiting_until))
}

/// The cost of one campaign, read on a connection.
pub(super) async fn cost(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    budget: Option<&Budget>,
) -> DbResult<CampaignCost> {
    let rows: Vec<CostRow> = costs_query(account, campaign).load(conn).await?;
    cost_of(&rows, campaign, budget)
}
