//! Recounts every report from the whole history.
#![allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "the counts of a test are small"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use recado_domain::analytics::{
    AutomationsReport, EcommerceReport, MetricReport, MetricsReport, RevenueReport, TopContacts,
};
use recado_domain::shared::Amount;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::history::{Event, History, METRICS, Order, UNIT};
use super::{NOW, quotient};
use crate::support::DbFixture;

pub(super) struct Recount<'a> {
    history: &'a History,
    days: HashMap<OffsetDateTime, Date>,
    dates: Vec<Date>,
}

fn money(units: i128) -> Amount {
    quotient(units, UNIT)
}

impl<'a> Recount<'a> {
    pub(super) async fn new(fixture: &DbFixture, history: &'a History, zone: &str, days: i64) -> Self {
        let mut times = vec![NOW];
        times.extend(
            history
                .orders
                .values()
                .flat_map(|order| order.paid.into_iter().chain([order.placed])),
        );
        times.extend(history.carts.values().map(|(_, at)| *at));
        times.extend(history.events.values().map(|event| event.at));
        times.extend(history.runs.values().map(|(_, _, at, _)| *at));
        times.extend(history.clicks.iter().map(|(_, at)| *at));
        let list: Vec<String> = times.iter().map(|at| format!("'{at}'")).collect();
        let query = format!(
            "SELECT string_agg((m AT TIME ZONE '{zone}')::date::text, ' ' ORDER BY position)
             FROM unnest(ARRAY[{}]::timestamptz[]) WITH ORDINALITY AS u (m, position)",
            list.join(", ")
        );
        let shape = time::macros::format_description!("[year]-[month]-[day]");
        let text = fixture.text(&query).await.unwrap();
        let found = text.split(' ').map(|day| Date::parse(day, &shape).unwrap());
        let day_of_time: HashMap<OffsetDateTime, Date> = times.iter().copied().zip(found).collect();
        let today = day_of_time[&NOW];
        let dates = (0..days).rev().map(|back| today - Duration::days(back)).collect();
        Self {
            history,
            days: day_of_time,
            dates,
        }
    }

    fn is_in_period(&self, at: OffsetDateTime) -> bool {
        self.dates.contains(&self.days[&at])
    }

    fn paid(&self) -> Vec<(&'a Order, Date)> {
        let paid = self.history.orders.values().filter(|order| order.status == "paid");
        let dated = paid.map(|order| (order, self.days[&order.paid.unwrap()]));
        dated.filter(|(_, date)| self.dates.contains(date)).collect()
    }

    /// Order count and revenue per campaign, automation or link; `target` selects it from an order.
    fn attributed_sums(&self, target: impl Fn(&Order) -> Option<Uuid>) -> BTreeMap<Uuid, (i64, i128)> {
        let mut sums: BTreeMap<Uuid, (i64, i128)> = BTreeMap::new();
        for (order, _) in self.paid() {
            if let Some(id) = target(order) {
                let (orders, revenue) = sums.entry(id).or_default();
                *orders += 1;
                *revenue += order.total;
            }
        }
        sums
    }

    pub(super) fn check_revenue(&self, report: &RevenueReport) {
        let paid = self.paid();
        let is_attributed = |order: &Order| order.campaign.or(order.automation).or(order.link).is_some();
        let revenue: i128 = paid.iter().map(|(order, _)| order.total).sum();
        let attributed: i128 = paid
            .iter()
            .filter(|(order, _)| is_attributed(order))
            .map(|(order, _)| order.total)
            .sum();
        let costs: i128 = paid.iter().flat_map(|(order, _)| &order.items).map(|item| item.3).sum();
        let fees: i128 = paid.iter().map(|(order, _)| order.fee).sum();
        let spend: i128 = self
            .history
            .spend
            .iter()
            .filter(|((days, _), _)| self.dates.contains(&(NOW.date() - Duration::days(*days))))
            .map(|(_, amount)| *amount)
            .sum();
        let count = paid.len() as i128;
        let overview = &report.overview;
        assert_eq!(overview.total_revenue, money(revenue));
        assert_eq!(overview.attributed_revenue, money(attributed));
        assert_eq!(overview.product_costs, money(costs));
        assert_eq!(overview.gateway_fees, money(fees));
        assert_eq!(overview.ad_spend, money(spend));
        assert_eq!(overview.profit, money(revenue - costs - fees - spend));
        assert_eq!(overview.roas, quotient(attributed, spend));
        assert_eq!(i128::from(overview.total_orders), count);
        assert_eq!(
            overview.attributed_orders as usize,
            paid.iter().filter(|(order, _)| is_attributed(order)).count()
        );
        assert_eq!(overview.avg_order_value, quotient(revenue, count * UNIT));
        assert_eq!(report.daily.iter().map(|day| day.date).collect::<Vec<_>>(), self.dates);
        for day in &report.daily {
            let of_day: Vec<&Order> = paid
                .iter()
                .filter(|(_, date)| *date == day.date)
                .map(|(order, _)| *order)
                .collect();
            assert_eq!(day.order_count as usize, of_day.len(), "{}", day.date);
            assert_eq!(day.total_revenue, money(of_day.iter().map(|order| order.total).sum()));
            let attributed = of_day
                .iter()
                .filter(|order| is_attributed(order))
                .map(|order| order.total)
                .sum();
            assert_eq!(day.attributed_revenue, money(attributed));
        }
        self.check_attributions(report);
    }

    fn check_attributions(&self, report: &RevenueReport) {
        let reported: BTreeMap<Uuid, _> = report
            .by_campaign
            .iter()
            .map(|row| (row.campaign_id.into(), (row.order_count, row.revenue)))
            .collect();
        let rounded = |sums: BTreeMap<Uuid, (i64, i128)>| -> BTreeMap<Uuid, (i64, Amount)> {
            sums.into_iter()
                .map(|(id, (orders, revenue))| (id, (orders, money(revenue))))
                .collect()
        };
        assert_eq!(reported, rounded(self.attributed_sums(|order| order.campaign)));
        let automations = self.attributed_sums(|order| order.automation);
        let reported: BTreeMap<Uuid, _> = report
            .by_automation
            .iter()
            .map(|row| (row.automation_id.into(), (row.order_count, row.revenue)))
            .collect();
        assert_eq!(reported, rounded(automations.clone()));
        for row in &report.by_automation {
            let (orders, revenue) = automations[&row.automation_id.into()];
            assert_eq!(row.avg_order_value, quotient(revenue, i128::from(orders) * UNIT));
        }
        let sums = self.attributed_sums(|order| order.link);
        let mut links: BTreeMap<Uuid, (i64, i64, i128)> = BTreeMap::new();
        for (link, _) in self.history.clicks.iter().filter(|(_, at)| self.is_in_period(*at)) {
            links.entry(*link).or_default().0 += 1;
        }
        for (link, (orders, revenue)) in sums {
            let row = links.entry(link).or_default();
            (row.1, row.2) = (orders, revenue);
        }
        assert_eq!(report.by_link.len(), links.len());
        for row in &report.by_link {
            let (clicks, orders, revenue) = links[&row.link_id.into()];
            assert_eq!((row.clicks, row.orders, row.revenue), (clicks, orders, money(revenue)));
            assert_eq!(
                row.conversion_rate,
                quotient(i128::from(orders) * 100, i128::from(clicks))
            );
        }
        assert!(report.by_link.is_sorted_by(|a, b| a.revenue >= b.revenue));
    }

    pub(super) fn check_ecommerce(&self, report: &EcommerceReport) {
        let placed: Vec<&Order> = self
            .history
            .orders
            .values()
            .filter(|order| self.is_in_period(order.placed))
            .collect();
        let count_with_status = |status: &str| placed.iter().filter(|order| order.status == status).count() as i64;
        let paid = self.paid();
        let revenue: i128 = paid.iter().map(|(order, _)| order.total).sum();
        let overview = &report.overview;
        assert_eq!(overview.total_orders as usize, placed.len());
        assert_eq!(overview.total_revenue, money(revenue));
        assert_eq!(overview.avg_ticket, quotient(revenue, paid.len() as i128 * UNIT));
        assert_eq!(
            (
                overview.pending_orders,
                overview.cancelled_orders,
                overview.refunded_orders
            ),
            (
                count_with_status("pending"),
                count_with_status("cancelled"),
                count_with_status("refunded")
            )
        );
        let carts: Vec<usize> = self
            .history
            .carts
            .values()
            .filter(|(_, at)| self.is_in_period(*at))
            .map(|(s, _)| *s)
            .collect();
        let recovered = carts.iter().filter(|status| **status == 2).count();
        assert_eq!(
            (overview.total_carts as usize, overview.recovered_carts as usize),
            (carts.len(), recovered)
        );
        assert_eq!(
            overview.recovery_rate,
            quotient(recovered as i128 * 100, carts.len() as i128)
        );
        self.check_sales(report, &paid);
    }

    fn check_sales(&self, report: &EcommerceReport, paid: &[(&Order, Date)]) {
        let mut platforms: BTreeMap<&str, (i64, i128)> = BTreeMap::new();
        let mut products: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
        for (order, _) in paid {
            let sold = platforms.entry(&order.platform).or_default();
            *sold = (sold.0 + 1, sold.1 + order.total);
            for (product, quantity, revenue, _) in &order.items {
                let sold = products.entry(product).or_default();
                *sold = (sold.0 + quantity, sold.1 + revenue);
            }
        }
        assert_eq!(report.by_platform.len(), platforms.len());
        for row in &report.by_platform {
            let (orders, revenue) = platforms[row.platform.as_str()];
            assert_eq!((row.orders, row.revenue), (orders, money(revenue)));
        }
        assert_eq!(report.top_products.len(), products.len());
        for row in &report.top_products {
            let (quantity, revenue) = products[row.product_id.as_str()];
            assert_eq!(
                (row.quantity.rounded(), row.revenue),
                (quotient(quantity, 10_000), money(revenue))
            );
            assert_eq!(row.name, self.history.names[&row.product_id]);
        }
        assert!(report.top_products.is_sorted_by(|a, b| a.revenue >= b.revenue));
        for day in &report.daily {
            let of_day = paid
                .iter()
                .filter(|(_, date)| *date == day.date)
                .map(|(order, _)| order.total);
            assert_eq!(day.revenue, money(of_day.clone().sum()), "{}", day.date);
            assert_eq!(day.orders as usize, of_day.count());
        }
    }

    pub(super) fn check_automations(&self, report: &AutomationsReport) {
        let mut sums: BTreeMap<Uuid, (i64, i64, i128)> = BTreeMap::new();
        let mut totals = (0, 0, 0);
        for (automation, completed, at, milliseconds) in self.history.runs.values() {
            if !self.is_in_period(*at) {
                continue;
            }
            let sum = sums.entry(*automation).or_default();
            for sum in [sum, &mut totals] {
                sum.0 += i64::from(*completed);
                sum.1 += i64::from(!*completed);
                sum.2 += i128::from(*milliseconds);
            }
        }
        assert_eq!(report.data.len(), sums.len());
        for row in &report.data {
            let (completed, failed, latency) = sums[&row.automation_id.into()];
            assert_eq!(
                (row.completed, row.failed, row.total_executions),
                (completed, failed, completed + failed)
            );
            assert_eq!(
                row.avg_latency_seconds,
                quotient(latency, i128::from(completed + failed) * 1000)
            );
        }
        let total = i128::from(totals.0 + totals.1);
        assert_eq!(i128::from(report.summary.total_executions), total);
        assert_eq!(report.summary.success_rate, quotient(i128::from(totals.0) * 100, total));
        assert_eq!(report.summary.avg_latency, quotient(totals.2, total * 1000));
    }

    fn events(&self, metric: &str) -> Vec<&'a Event> {
        self.history
            .events
            .values()
            .filter(|event| event.metric == metric)
            .collect()
    }

    pub(super) fn has_metric(&self, metric: &str) -> bool {
        !self.events(metric).is_empty()
    }

    pub(super) fn check_metrics(&self, report: &MetricsReport) {
        assert_eq!(
            report.metrics.len(),
            METRICS.iter().filter(|name| self.has_metric(name)).count()
        );
        assert!(report.metrics.is_sorted_by(|a, b| a.total_events >= b.total_events));
        for metric in &report.metrics {
            let events = self.events(&metric.metric_name);
            assert_eq!(metric.total_events as usize, events.len());
            assert_eq!(metric.total_value, money(events.iter().map(|event| event.value).sum()));
            assert_eq!(metric.last_event_at, events.iter().map(|event| event.at).max());
        }
    }

    pub(super) fn check_metric(&self, name: &str, report: &MetricReport) {
        let events: Vec<&Event> = self
            .events(name)
            .into_iter()
            .filter(|event| self.is_in_period(event.at))
            .collect();
        let value: i128 = events.iter().map(|event| event.value).sum();
        let contacts: BTreeSet<Uuid> = events.iter().filter_map(|event| event.contact).collect();
        let summary = &report.summary;
        assert_eq!(summary.total_events as usize, events.len());
        assert_eq!(summary.total_value, money(value));
        assert_eq!(summary.avg_value, quotient(value, events.len() as i128 * UNIT));
        assert_eq!(summary.unique_contacts as usize, contacts.len());
        assert_eq!(report.daily.iter().map(|day| day.date).collect::<Vec<_>>(), self.dates);
        for day in &report.daily {
            let of_day = events.iter().filter(|event| self.days[&event.at] == day.date);
            assert_eq!(day.count as usize, of_day.clone().count());
            assert_eq!(day.value, money(of_day.map(|event| event.value).sum()));
        }
    }

    pub(super) fn check_top(&self, name: &str, top: &TopContacts) {
        let mut sums: BTreeMap<Uuid, (i64, i128, Option<OffsetDateTime>)> = BTreeMap::new();
        for event in self.events(name) {
            let Some(contact) = event.contact else { continue };
            let sum = sums.entry(contact).or_default();
            *sum = (sum.0 + 1, sum.1 + event.value, sum.2.max(Some(event.at)));
        }
        assert_eq!(top.contacts.len(), sums.len());
        assert!(top.contacts.is_sorted_by(|a, b| a.total_value >= b.total_value));
        for row in &top.contacts {
            let (events, value, last) = sums[&row.contact_id.into()];
            assert_eq!((row.event_count, row.total_value), (events, money(value)));
            assert_eq!(Some(row.last_event_at), last);
        }
    }
}
