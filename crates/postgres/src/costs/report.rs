//! Reads the sums of an account's costs.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text, Uuid as SqlUuid};
use recado_domain::analytics::{CostGroupBy, CostReportRows, CostRow, CostStore, MonthlyServiceMessages, Window};
use recado_domain::costs::CostSums;
use recado_domain::shared::{AccountId, CampaignId, StoreError};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::ingestion::amount;
use crate::pool::TenantPool;
use crate::sql::{FENCE, Sql, sql};

#[derive(Clone, Debug)]
pub struct PgCosts(TenantPool);

impl PgCosts {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool.in_index_order_with_custom_plans())
    }
}

#[derive(QueryableByName)]
struct GroupRow {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Nullable<Text>)]
    label: Option<String>,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Text)]
    amount: String,
    #[diesel(sql_type = BigInt)]
    messages: i64,
    #[diesel(sql_type = BigInt)]
    billable: i64,
    #[diesel(sql_type = BigInt)]
    free: i64,
    #[diesel(sql_type = BigInt)]
    unpriced: i64,
}

fn cost_row(row: GroupRow) -> DbResult<CostRow> {
    Ok(CostRow {
        key: row.key,
        label: row.label,
        currency: row.currency,
        sums: CostSums {
            amount: amount(&row.amount)?,
            messages: row.messages,
            billable: row.billable,
            free: row.free,
            unpriced: row.unpriced,
        },
    })
}

#[derive(QueryableByName)]
struct ServiceRow {
    #[diesel(sql_type = SqlUuid)]
    profile_id: Uuid,
    #[diesel(sql_type = Text)]
    month: String,
    #[diesel(sql_type = BigInt)]
    used: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    free: Option<i64>,
}

/// The key of a group as an expression over the rollup `r`, and the table with its name.
fn dimension(group_by: CostGroupBy) -> (&'static str, Option<&'static str>) {
    match group_by {
        CostGroupBy::Campaign => (
            "nullif(r.campaign_id, '00000000-0000-0000-0000-000000000000')",
            Some("campaigns"),
        ),
        CostGroupBy::Number => (
            "nullif(r.profile_id, '00000000-0000-0000-0000-000000000000')",
            Some("whatsapp_profiles"),
        ),
        CostGroupBy::Template => (
            "nullif(r.template_id, '00000000-0000-0000-0000-000000000000')",
            Some("message_templates"),
        ),
        CostGroupBy::Category => ("r.category", None),
        CostGroupBy::Market => ("r.market", None),
        CostGroupBy::Day => ("width_bucket(r.bucket_start, $2) - 1", None),
    }
}

/// `$1` account, `$2` bounds of the days, `$3` start, `$4` end, `$5` campaign.
///
/// Of an account without statistics the planner expects one row, and then either index seems as good. The order selects
/// the primary key for a period; an expression keeps the planner from using it for the sums of one campaign.
fn groups<'a>(account: AccountId, window: &Window, group_by: CostGroupBy, campaign: Option<CampaignId>) -> Sql<'a> {
    let (key, names) = dimension(group_by);
    let (rows, order) = match campaign {
        Some(_) => {
            let since = "r.bucket_start + interval '0'";
            (format!("r.campaign_id = $5 AND {since} >= $3 AND {since} < $4"), "")
        }
        None => (
            "$5 IS NULL AND r.bucket_start >= $3 AND r.bucket_start < $4".to_owned(),
            "ORDER BY r.bucket_start",
        ),
    };
    let label = names.map_or("NULL::text".to_owned(), |table| {
        format!("(SELECT n.name FROM {table} n WHERE n.account_id = $1 AND n.id = g.key)")
    });
    sql(format!(
        "SELECT coalesce(g.key::text, '') AS key, {label} AS label, g.currency, g.amount::text AS amount, g.messages,
           g.billable, g.free, g.unpriced
         FROM (SELECT {key} AS key, r.currency, sum(r.amount) AS amount, sum(r.messages)::bigint AS messages,
             sum(r.billable)::bigint AS billable, sum(r.free)::bigint AS free, sum(r.unpriced)::bigint AS unpriced
           FROM (SELECT * FROM cost_rollups r WHERE r.account_id = $1 AND {rows} {order} {FENCE}) r
           WHERE cardinality($2) > 0
           GROUP BY 1, 2) g"
    ))
    .bind(account)
    .bind(window.bounds.clone())
    .bind(window.start())
    .bind(window.end())
    .bind(campaign)
}

/// The service messages of each number in the months of the window.
fn service_messages<'a>(account: AccountId, window: &Window) -> Sql<'a> {
    sql(
        "SELECT p.id AS profile_id, to_char(m.month, 'YYYY-MM') AS month, m.messages AS used,
           (SELECT r.free_per_number_month FROM rate_card_rows r JOIN rate_cards c ON c.id = r.card_id
             WHERE r.category = 'service' AND r.free_per_number_month IS NOT NULL
               AND r.effective_at < (m.month + interval '1 month') AT TIME ZONE 'UTC'
             ORDER BY c.created_at DESC, c.id DESC, r.effective_at DESC LIMIT 1) AS free
         FROM service_message_months m
         JOIN whatsapp_profiles p ON p.account_id = m.account_id AND p.id = m.profile_id
         WHERE m.account_id = $1 AND m.month < ($3 AT TIME ZONE 'UTC')::date
           AND m.month + interval '1 month' > $2 AT TIME ZONE 'UTC'
         ORDER BY p.created_at, p.id, m.month",
    )
    .bind(account)
    .bind(window.start())
    .bind(window.end())
}

#[async_trait]
impl CostStore for PgCosts {
    async fn report(
        &self,
        account: AccountId,
        window: &Window,
        group_by: CostGroupBy,
        campaign: Option<CampaignId>,
    ) -> Result<CostReportRows, StoreError> {
        let groups = groups(account, window, group_by, campaign);
        let (groups, service) = self
            .0
            .read_both::<GroupRow, ServiceRow, _, _>(account, groups, service_messages(account, window))
            .await?;
        let groups: DbResult<Vec<CostRow>> = groups.into_iter().map(cost_row).collect();
        let service_messages = service.into_iter().map(|row| MonthlyServiceMessages {
            profile_id: row.profile_id.into(),
            month: row.month,
            used: row.used,
            free: row.free,
        });
        Ok(CostReportRows {
            groups: groups?,
            service_messages: service_messages.collect(),
        })
    }
}
