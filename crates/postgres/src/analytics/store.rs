//! The port: runs the statements and reads their totals.

use async_trait::async_trait;
use recado_domain::analytics::{
    ActivityRead, AnalyticsStore, AutomationsTotals, EcommerceTotals, Metric, MetricEvent, MetricPeriodTotals,
    RevenueTotals, TopContact, Window,
};
use recado_domain::shared::{AccountId, MetricEventId, StoreError};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::window::{TotalsRow, bind_window, with_ranges};
use super::{metrics, sales};
use crate::pool::TenantPool;
use crate::sql::{Sql, sql};

#[derive(Clone, Debug)]
pub struct PgAnalytics(TenantPool);

#[derive(Deserialize)]
struct Metrics {
    metrics: Vec<Metric>,
    sources: Vec<String>,
}

/// A page of the activity feed, and whether its cursor exists.
#[derive(Deserialize)]
struct Feed {
    known: bool,
    items: Vec<MetricEvent>,
}

impl PgAnalytics {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool.with_custom_plans())
    }

    /// Returns `None` if the statement returns no row.
    async fn read<T: DeserializeOwned>(
        &self,
        account: AccountId,
        statement: Sql<'static>,
    ) -> Result<Option<T>, StoreError> {
        let row: Option<TotalsRow> = self.0.read_row_if_any(account, statement).await?;
        row.map(TotalsRow::read).transpose()
    }

    async fn read_required<T: DeserializeOwned>(
        &self,
        account: AccountId,
        statement: Sql<'static>,
    ) -> Result<T, StoreError> {
        let totals = self.read(account, statement).await?;
        totals.ok_or_else(|| StoreError::Corrupt("the report returned no row".to_owned()))
    }
}

#[async_trait]
impl AnalyticsStore for PgAnalytics {
    async fn revenue(&self, account: AccountId, window: &Window, links: i64) -> Result<RevenueTotals, StoreError> {
        let statement = bind_window(sales::revenue(), account, window)
            .bind(window.dates.as_slice().first().copied())
            .bind(window.dates.as_slice().last().copied())
            .bind(links);
        self.read_required(account, with_ranges(statement, window)).await
    }

    async fn ecommerce(
        &self,
        account: AccountId,
        window: &Window,
        products: i64,
    ) -> Result<EcommerceTotals, StoreError> {
        let statement = bind_window(sales::ecommerce(), account, window).bind(products);
        self.read_required(account, with_ranges(statement, window)).await
    }

    async fn automations(
        &self,
        account: AccountId,
        window: &Window,
        automations: i64,
    ) -> Result<AutomationsTotals, StoreError> {
        let statement = bind_window(sales::automations(), account, window).bind(automations);
        self.read_required(account, statement).await
    }

    async fn metrics<'a>(
        &self,
        account: AccountId,
        source: Option<&'a str>,
    ) -> Result<(Vec<Metric>, Vec<String>), StoreError> {
        let statement = sql(metrics::list()).bind(account).bind(source.map(str::to_owned));
        let Metrics { metrics, sources } = self.read_required(account, statement).await?;
        Ok((metrics, sources))
    }

    async fn metric(
        &self,
        account: AccountId,
        name: &str,
        window: &Window,
    ) -> Result<Option<MetricPeriodTotals>, StoreError> {
        let statement = bind_window(metrics::metric(), account, window).bind(name.to_owned());
        self.read(account, statement).await
    }

    async fn top_contacts(
        &self,
        account: AccountId,
        name: &str,
        limit: i64,
    ) -> Result<Option<Vec<TopContact>>, StoreError> {
        let statement = sql(metrics::TOP_CONTACTS)
            .bind(account)
            .bind(name.to_owned())
            .bind(limit);
        self.read(account, statement).await
    }

    async fn activity(
        &self,
        account: AccountId,
        name: &str,
        cursor: Option<MetricEventId>,
        limit: i64,
    ) -> Result<ActivityRead, StoreError> {
        let statement = sql(metrics::activity(cursor.is_some()))
            .bind(account)
            .bind(name.to_owned())
            .bind(limit + 1);
        let statement = match cursor {
            Some(cursor) => statement.bind(cursor),
            None => statement,
        };
        Ok(match self.read::<Feed>(account, statement).await? {
            None => ActivityRead::NoMetric,
            Some(Feed { known: false, .. }) => ActivityRead::NoCursor,
            Some(Feed { items, .. }) => ActivityRead::Events(items),
        })
    }
}
