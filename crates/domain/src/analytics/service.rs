//! The use cases of analytics: converts totals to rounded reports.

use std::sync::Arc;

use super::*;
use crate::shared::{Amount, Clock, FieldErrors, MetricEventId, Tenant};

/// The most links, products and automations of a report.
const MAX_LINKS: i64 = 20;
const MAX_PRODUCTS: i64 = 10;
const MAX_AUTOMATIONS: i64 = 20;

const MICROSECONDS_PER_SECOND: i64 = 1_000_000;

/// The days of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportPeriod {
    pub period: Period,
    /// The time zone of the days.
    pub zone: Zone,
}

pub struct Analytics {
    store: Arc<dyn AnalyticsStore>,
    clock: Arc<dyn Clock>,
}

impl Analytics {
    pub fn new(store: Arc<dyn AnalyticsStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    fn window(&self, report_period: &ReportPeriod) -> Result<Window, FieldErrors> {
        let window = Window::new(report_period.period, &report_period.zone, self.clock.now());
        window.ok_or_else(|| FieldErrors::one("tz", "has no calendar days for this period"))
    }

    /// Reports revenue, costs and the attribution of revenue.
    pub async fn revenue(
        &self,
        tenant: &Tenant,
        report_period: &ReportPeriod,
    ) -> Result<RevenueReport, AnalyticsError> {
        let window = self.window(report_period)?;
        let totals = self.store.revenue(tenant.account_id, &window, MAX_LINKS).await?;
        Ok(revenue(&window, totals))
    }

    /// Reports orders, carts, platforms and products.
    pub async fn ecommerce(
        &self,
        tenant: &Tenant,
        report_period: &ReportPeriod,
    ) -> Result<EcommerceReport, AnalyticsError> {
        let window = self.window(report_period)?;
        let totals = self.store.ecommerce(tenant.account_id, &window, MAX_PRODUCTS).await?;
        Ok(ecommerce(&window, totals))
    }

    /// Reports the executions of automations.
    pub async fn automations(
        &self,
        tenant: &Tenant,
        report_period: &ReportPeriod,
    ) -> Result<AutomationsReport, AnalyticsError> {
        let window = self.window(report_period)?;
        let totals = self
            .store
            .automations(tenant.account_id, &window, MAX_AUTOMATIONS)
            .await?;
        Ok(automations(totals))
    }

    /// Reports all metrics, or those with `source`.
    pub async fn metrics(&self, tenant: &Tenant, source: Option<&str>) -> Result<MetricsReport, AnalyticsError> {
        let (mut metrics, available_sources) = self.store.metrics(tenant.account_id, source).await?;
        for metric in &mut metrics {
            metric.total_value = metric.total_value.rounded();
        }
        Ok(MetricsReport {
            metrics,
            available_sources,
        })
    }

    /// Reports one metric in a period.
    pub async fn metric(
        &self,
        tenant: &Tenant,
        name: &str,
        report_period: &ReportPeriod,
    ) -> Result<MetricReport, AnalyticsError> {
        let window = self.window(report_period)?;
        let totals = self.store.metric(tenant.account_id, name, &window).await?;
        let totals = totals.ok_or(AnalyticsError::NotFound)?;
        Ok(metric(&window, report_period.period, totals))
    }

    /// Reports the contacts with the largest totals of a metric.
    pub async fn top_contacts(&self, tenant: &Tenant, name: &str, limit: i64) -> Result<TopContacts, AnalyticsError> {
        let contacts = self.store.top_contacts(tenant.account_id, name, limit).await?;
        let mut contacts = contacts.ok_or(AnalyticsError::NotFound)?;
        for contact in &mut contacts {
            contact.total_value = contact.total_value.rounded();
        }
        Ok(TopContacts { contacts })
    }

    /// Lists a metric's events after the cursor, newest first.
    pub async fn activity(
        &self,
        tenant: &Tenant,
        name: &str,
        cursor: Option<MetricEventId>,
        limit: i64,
    ) -> Result<Activity, AnalyticsError> {
        let read = self.store.activity(tenant.account_id, name, cursor, limit).await?;
        let mut items = match read {
            ActivityRead::NoMetric => return Err(AnalyticsError::NotFound),
            ActivityRead::NoCursor => {
                return Err(FieldErrors::one("cursor", "must be a cursor of an earlier response").into());
            }
            ActivityRead::Events(items) => items,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().map(|item| item.id);
        Ok(Activity {
            items,
            next_cursor: last.filter(|_| more),
        })
    }
}

fn revenue(window: &Window, totals: RevenueTotals) -> RevenueReport {
    let overview = revenue_overview(&totals);
    let days = window.dates.iter().zip(&totals.days);
    let daily = days.map(|(&date, day)| RevenueDay {
        date,
        total_revenue: day.revenue.rounded(),
        attributed_revenue: day.attributed_revenue.rounded(),
        order_count: day.orders,
    });
    let by_automation = totals.automations.into_iter().map(|attributed| AutomationRevenue {
        automation_id: attributed.id.into(),
        automation_name: attributed.name,
        revenue: attributed.revenue.rounded(),
        order_count: attributed.orders,
        avg_order_value: attributed.revenue.ratio(attributed.orders),
    });
    let by_campaign = totals.campaigns.into_iter().map(|attributed| CampaignRevenue {
        campaign_id: attributed.id.into(),
        campaign_name: attributed.name,
        revenue: attributed.revenue.rounded(),
        order_count: attributed.orders,
    });
    let by_link = totals.links.into_iter().map(|link| LinkRevenue {
        link_id: link.id,
        short_code: link.short_code,
        original_url: link.original_url,
        clicks: link.clicks,
        orders: link.orders,
        revenue: link.revenue.rounded(),
        conversion_rate: Amount::from(link.orders).percent_of(link.clicks),
    });
    RevenueReport {
        overview,
        daily: daily.collect(),
        by_automation: by_automation.collect(),
        by_campaign: by_campaign.collect(),
        by_link: by_link.collect(),
    }
}

/// Computes every total from exact sums and rounds only the result, so that rounding errors do not add up.
fn revenue_overview(totals: &RevenueTotals) -> RevenueOverview {
    let sum = |part: fn(&DayTotals) -> Amount| totals.days.iter().map(part).sum::<Amount>();
    let revenue = sum(|day| day.revenue);
    let attributed = sum(|day| day.attributed_revenue);
    let costs = sum(|day| day.product_costs);
    let fees = sum(|day| day.gateway_fees);
    let orders: i64 = totals.days.iter().map(|day| day.orders).sum();
    RevenueOverview {
        total_revenue: revenue.rounded(),
        attributed_revenue: attributed.rounded(),
        product_costs: costs.rounded(),
        gateway_fees: fees.rounded(),
        ad_spend: totals.ad_spend.rounded(),
        profit: (revenue - costs - fees - totals.ad_spend).rounded(),
        roas: attributed.ratio(totals.ad_spend),
        total_orders: orders,
        attributed_orders: totals.days.iter().map(|day| day.attributed_orders).sum(),
        avg_order_value: revenue.ratio(orders),
    }
}

fn ecommerce(window: &Window, totals: EcommerceTotals) -> EcommerceReport {
    let revenue: Amount = totals.days.iter().map(|day| day.revenue).sum();
    let paid: i64 = totals.days.iter().map(|day| day.orders).sum();
    let overview = EcommerceOverview {
        total_orders: totals.placed,
        total_revenue: revenue.rounded(),
        avg_ticket: revenue.ratio(paid),
        pending_orders: totals.pending,
        cancelled_orders: totals.cancelled,
        refunded_orders: totals.refunded,
        total_carts: totals.carts,
        recovered_carts: totals.recovered,
        recovery_rate: Amount::from(totals.recovered).percent_of(totals.carts),
    };
    let daily = window.dates.iter().zip(&totals.days).map(|(&date, day)| SalesDay {
        date,
        orders: day.orders,
        revenue: day.revenue.rounded(),
    });
    let platforms = totals.platforms.into_iter().map(|platform| PlatformSales {
        revenue: platform.revenue.rounded(),
        ..platform
    });
    let products = totals.products.into_iter().map(|product| ProductSales {
        revenue: product.revenue.rounded(),
        ..product
    });
    EcommerceReport {
        overview,
        by_platform: platforms.collect(),
        top_products: products.collect(),
        daily: daily.collect(),
    }
}

fn automations(totals: AutomationsTotals) -> AutomationsReport {
    let seconds = |latency: Amount, executions: i64| latency.ratio(executions.saturating_mul(MICROSECONDS_PER_SECOND));
    let total = totals.completed + totals.failed;
    let data = totals.automations.into_iter().map(|automation| {
        let executions = automation.completed + automation.failed;
        AutomationExecutions {
            automation_id: automation.id,
            automation_name: automation.name,
            total_executions: executions,
            completed: automation.completed,
            failed: automation.failed,
            avg_latency_seconds: seconds(automation.latency, executions),
        }
    });
    AutomationsReport {
        data: data.collect(),
        summary: ExecutionsSummary {
            total_executions: total,
            success_rate: Amount::from(totals.completed).percent_of(total),
            avg_latency: seconds(totals.latency, total),
        },
    }
}

fn metric(window: &Window, period: Period, totals: MetricPeriodTotals) -> MetricReport {
    let events: i64 = totals.days.iter().map(|day| day.events).sum();
    let value: Amount = totals.days.iter().map(|day| day.value).sum();
    let daily = window.dates.iter().zip(&totals.days).map(|(&date, day)| MetricDay {
        date,
        count: day.events,
        value: day.value.rounded(),
    });
    MetricReport {
        metric_name: totals.metric_name,
        display_name: totals.display_name,
        period,
        summary: MetricSummary {
            total_events: events,
            total_value: value.rounded(),
            avg_value: value.ratio(events),
            unique_contacts: totals.unique_contacts,
        },
        daily: daily.collect(),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    fn week() -> Window {
        Window::new(Period::Week, &Zone::UTC, datetime!(2026-03-01 12:00 UTC)).unwrap()
    }

    #[test]
    fn revenue_report_rounds_only_final_totals() {
        let day = DayTotals {
            orders: 3,
            revenue: amount("10.005"),
            attributed_orders: 1,
            attributed_revenue: amount("5"),
            product_costs: amount("3.001"),
            gateway_fees: amount("0.001"),
        };
        let totals = RevenueTotals {
            days: vec![day; 7],
            ad_spend: amount("3"),
            ..RevenueTotals::default()
        };
        let report = revenue(&week(), totals);
        let overview = &report.overview;
        assert_eq!(overview.total_revenue, amount("70.04"));
        assert_eq!(overview.profit, amount("46.02"));
        assert_eq!(overview.roas, amount("11.67"));
        assert_eq!(overview.avg_order_value, amount("3.34"));
        assert_eq!((overview.total_orders, report.daily.len()), (21, 7));
    }

    #[test]
    fn reports_without_data_have_zero_rates() {
        let report = revenue(&week(), RevenueTotals::default());
        assert_eq!(report.overview, RevenueOverview::default());
        let report = ecommerce(&week(), EcommerceTotals::default());
        assert_eq!(report.overview, EcommerceOverview::default());
        assert_eq!(
            automations(AutomationsTotals::default()).summary,
            ExecutionsSummary::default()
        );
    }

    #[test]
    fn automation_latency_is_in_seconds() {
        let report = automations(AutomationsTotals {
            automations: vec![],
            completed: 2,
            failed: 1,
            latency: amount("4000000"),
        });
        assert_eq!(report.summary.avg_latency, amount("1.33"));
        assert_eq!(report.summary.success_rate, amount("66.67"));
    }
}
