//! Insights, read from rollups.

use async_trait::async_trait;
use recado_domain::analytics::{
    CampaignTotals, DashboardTotals, HeatCell, InsightStore, MessageCounts, NewSince, OffsetInterval, Window,
};
use recado_domain::shared::{AccountId, StoreError};
use serde::de::DeserializeOwned;

use super::window::TotalsRow;
use crate::pool::TenantPool;
use crate::sql::{FENCE, Sql, sql};

#[derive(Clone, Debug)]
pub struct PgInsights(TenantPool);

impl PgInsights {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool.with_custom_plans())
    }

    async fn read<T: DeserializeOwned>(&self, account: AccountId, statement: Sql<'static>) -> Result<T, StoreError> {
        let row: TotalsRow = self.0.read_row(account, statement).await?;
        row.read()
    }
}

/// Sums of the message columns as a JSON object. Counter slots are added directly: grouping ten thousand campaigns
/// first would be useless work.
const SUMS: &str = "json_build_object('sent', coalesce(sum(sent), 0)::bigint,
    'delivered', coalesce(sum(delivered), 0)::bigint, 'read', coalesce(sum(read), 0)::bigint,
    'failed', coalesce(sum(failed), 0)::bigint, 'received', coalesce(sum(received), 0)::bigint)";

/// Messages of deleted campaigns still count.
fn dashboard() -> String {
    format!(include_str!("dashboard.sql"), sums = SUMS)
}

/// `$2`: the bounds of the days; `$3`: the granularity of the days; `$4` to `$5`: the window.
fn messages() -> String {
    format!(
        "SELECT json_agg(coalesce(d.sums, '{{\"sent\":0,\"delivered\":0,\"read\":0,\"failed\":0,\"received\":0}}')
           ORDER BY slot)::text AS totals
         FROM generate_series(1, cardinality($2) - 1) AS slot
         LEFT JOIN (SELECT slot, {SUMS} AS sums FROM (
             SELECT width_bucket(bucket_start, $2) AS slot, sent, delivered, read, failed, received FROM message_rollups
             WHERE account_id = $1 AND bucket_minutes = $3 AND bucket_start >= $4 AND bucket_start < $5
             UNION ALL SELECT width_bucket(created_at, $2), sent, delivered, read, failed, 0
             FROM campaign_counter_slots
             WHERE account_id = $1 AND created_at >= $4 AND created_at < $5) m GROUP BY slot) d USING (slot)"
    )
}

/// Only the counters of these campaigns are summed.
fn campaigns() -> String {
    format!(include_str!("campaign_totals.sql"), fence = FENCE)
}

/// `$2`, `$3`, `$4`: the start, the end and the UTC offset in seconds of each interval. The hour of the week is
/// counted from the Unix epoch, a Thursday, in integers, because there are many rows.
const HEAT_MAP: &str = "
    SELECT coalesce(json_agg(json_build_object('day', day, 'hour', hour, 'count', received) ORDER BY day, hour), '[]')::text
      AS totals
    FROM (SELECT (hour_of_week / 24 + 4) % 7 AS day, hour_of_week % 24 AS hour, received
      FROM (SELECT (date_part('epoch', r.bucket_start)::bigint + s.ahead) / 3600 % 168 AS hour_of_week,
          sum(r.received)::bigint AS received
        FROM unnest($2, $3, $4) AS s (starts, ends, ahead)
        JOIN message_rollups r ON r.account_id = $1 AND r.bucket_minutes = 15 AND r.bucket_start >= s.starts
          AND r.bucket_start < s.ends
        WHERE r.received <> 0 GROUP BY 1) AS hours) AS cells";

#[async_trait]
impl InsightStore for PgInsights {
    async fn dashboard(&self, account: AccountId, new_since: &NewSince) -> Result<DashboardTotals, StoreError> {
        let statement = sql(dashboard())
            .bind(account)
            .bind(new_since.week)
            .bind(new_since.month);
        self.read(account, statement).await
    }

    async fn messages(&self, account: AccountId, window: &Window) -> Result<Vec<MessageCounts>, StoreError> {
        let statement = sql(messages())
            .bind(account)
            .bind(window.bounds.clone())
            .bind(window.granularity().minutes())
            .bind(window.start())
            .bind(window.end());
        self.read(account, statement).await
    }

    async fn campaigns(
        &self,
        account: AccountId,
        window: &Window,
        limit: i64,
    ) -> Result<Vec<CampaignTotals>, StoreError> {
        let statement = sql(campaigns())
            .bind(account)
            .bind(window.start())
            .bind(window.end())
            .bind(limit);
        self.read(account, statement).await
    }

    async fn heat_map(
        &self,
        account: AccountId,
        offset_intervals: &[OffsetInterval],
    ) -> Result<Vec<HeatCell>, StoreError> {
        let statement = sql(HEAT_MAP)
            .bind(account)
            .bind(
                offset_intervals
                    .iter()
                    .map(|offset_interval| offset_interval.start)
                    .collect::<Vec<_>>(),
            )
            .bind(
                offset_intervals
                    .iter()
                    .map(|offset_interval| offset_interval.end)
                    .collect::<Vec<_>>(),
            )
            .bind(
                offset_intervals
                    .iter()
                    .map(|offset_interval| offset_interval.offset.whole_seconds())
                    .collect::<Vec<_>>(),
            );
        self.read(account, statement).await
    }
}
