//! The report of costs: totals by currency, and groups by one dimension.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use time::Date;

use super::{AnalyticsError, Period, Window};
use crate::costs::CostSums;
use crate::shared::string_enum;
use crate::shared::{AccountId, Amount, CampaignId, Clock, FieldErrors, ProfileId, StoreError, Tenant, Zone};

/// The most groups of a report, without `other`.
const MAX_GROUPS: usize = 1000;

/// The longest report.
const MAX_DAYS: i64 = 366;

/// The key of all groups beyond `MAX_GROUPS`.
const OTHER: &str = "other";

string_enum! {
    /// The dimension by which costs are grouped.
    CostGroupBy {
        /// By campaign.
        Campaign = "campaign",
        /// By WhatsApp's category of the price.
        Category = "category",
        /// By market.
        Market = "market",
        /// By WhatsApp number.
        Number = "number",
        /// By template.
        Template = "template",
        /// By calendar day.
        Day = "day",
    }
}

/// An unchecked request for a report.
#[derive(Clone, Debug, PartialEq)]
pub struct CostQuery {
    pub period: Option<Period>,
    pub from: Option<Date>,
    pub to: Option<Date>,
    pub zone: Zone,
    pub group_by: CostGroupBy,
    pub campaign_id: Option<CampaignId>,
}

impl CostQuery {
    /// The window of the report, and its published period.
    fn window(&self, now: time::OffsetDateTime) -> Result<(Window, String), FieldErrors> {
        let outside = || FieldErrors::one("tz", "has no calendar days for this period");
        let (from, to) = match (self.from, self.to) {
            (None, None) => {
                let period = self.period.unwrap_or(Period::Month);
                let window = Window::new(period, &self.zone, now).ok_or_else(outside)?;
                return Ok((window, period.to_string()));
            }
            (Some(from), Some(to)) => (from, to),
            (Some(_), None) => return Err(FieldErrors::one("to", "is required with from")),
            (None, Some(_)) => return Err(FieldErrors::one("from", "is required with to")),
        };
        if from > to {
            return Err(FieldErrors::one("to", "must not be before from"));
        }
        if (to - from).whole_days() >= MAX_DAYS {
            return Err(FieldErrors::one(
                "to",
                "must be at most 366 days from from, both included",
            ));
        }
        let window = Window::between(from, to, &self.zone).ok_or_else(outside)?;
        Ok((window, format!("{from}/{to}")))
    }
}

/// The stored sums of one group and currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRow {
    /// Empty: the messages have no value in this dimension. Of a day: its position in the window, from 0.
    pub key: String,
    /// The name of the campaign, number or template.
    pub label: Option<String>,
    /// Empty: unknown.
    pub currency: String,
    pub sums: CostSums,
}

/// The service messages of a number in a month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MonthlyServiceMessages {
    /// The number's profile.
    pub profile_id: ProfileId,
    /// The month in UTC.
    #[schemars(example = &"2026-11")]
    pub month: String,
    /// The service messages that WhatsApp accepted from the number in the month.
    #[schemars(example = 120)]
    pub used: i64,
    /// The number of service messages that are free in a month, by the newest rate card; null if no card has it.
    #[schemars(example = 1000)]
    pub free: Option<i64>,
}

/// What a report is built from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostReportRows {
    pub groups: Vec<CostRow>,
    pub service_messages: Vec<MonthlyServiceMessages>,
}

/// The costs of a period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CostReport {
    /// The length of the report, or its first and last day with a slash between them.
    #[schemars(example = &"30d")]
    pub period: String,
    /// The totals by currency, largest amount first.
    pub totals: Vec<CostTotal>,
    /// The groups by amount, largest first, or all days in order, each with the currencies of the totals. At most 1,000,
    /// and the rest as `other`.
    pub groups: Vec<CostGroup>,
    /// The service messages of each number.
    pub service_messages: Vec<MonthlyServiceMessages>,
}

/// The costs in one currency.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CostTotal {
    /// The ISO 4217 code; null for messages whose price is unknown.
    #[schemars(example = &"USD")]
    pub currency: Option<String>,
    /// The exact sum, rounded half to even to four decimals; null where the price is unknown.
    #[schemars(example = 115.0625)]
    pub amount: Option<Amount>,
    /// The messages that were delivered or read and have a price or a category.
    #[schemars(example = 1841)]
    pub messages: i64,
    /// Those that WhatsApp charges for.
    #[schemars(example = 1841)]
    pub billable: i64,
    /// Those that are free of charge.
    #[schemars(example = 0)]
    pub free: i64,
    /// Those of `billable` whose price is unknown. They are not part of `amount`.
    #[schemars(example = 0)]
    pub unpriced: i64,
}

/// The costs of one group in one currency.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CostGroup {
    /// The id, category, market or day; `other` for the groups beyond the first 1,000; null for messages without one.
    #[schemars(example = &"2026-03-01")]
    pub key: Option<String>,
    /// The name to show.
    #[schemars(example = &"2026-03-01")]
    pub label: String,
    /// The sums of the group.
    #[serde(flatten)]
    pub total: CostTotal,
}

fn total(currency: &str, sums: &CostSums) -> CostTotal {
    let currency = Some(currency.to_owned()).filter(|currency| !currency.is_empty());
    CostTotal {
        amount: currency.as_ref().map(|_| sums.amount.rounded_cost()),
        currency,
        messages: sums.messages,
        billable: sums.billable,
        free: sums.free,
        unpriced: sums.unpriced,
    }
}

fn sort_order(currency: &str, amount: Amount) -> (bool, std::cmp::Reverse<Amount>) {
    (currency.is_empty(), std::cmp::Reverse(amount))
}

/// Builds the report of a window.
fn report(period: String, window: &Window, group_by: CostGroupBy, rows: CostReportRows) -> CostReport {
    let mut currencies: BTreeMap<String, CostSums> = BTreeMap::new();
    for row in &rows.groups {
        currencies.entry(row.currency.clone()).or_default().add(row.sums);
    }
    let mut totals: Vec<(String, CostSums)> = currencies
        .into_iter()
        .filter(|(_, sums)| *sums != CostSums::default())
        .collect();
    totals.sort_by_key(|(currency, sums)| sort_order(currency, sums.amount));
    let groups = match group_by {
        CostGroupBy::Day => days(window, &totals, &rows.groups),
        _ => largest(group_by, rows.groups),
    };
    CostReport {
        period,
        totals: totals.iter().map(|(currency, sums)| total(currency, sums)).collect(),
        groups,
        service_messages: rows.service_messages,
    }
}

/// The days of the window in order, by currency. Every day has each of the known currencies of the totals, with zeros
/// where it has no messages. `totals`: by currency, largest amount first.
fn days(window: &Window, totals: &[(String, CostSums)], rows: &[CostRow]) -> Vec<CostGroup> {
    let mut by_day: BTreeMap<usize, BTreeMap<&str, CostSums>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.sums != CostSums::default()) {
        if let Ok(day) = row.key.parse() {
            by_day
                .entry(day)
                .or_default()
                .entry(&row.currency)
                .or_default()
                .add(row.sums);
        }
    }
    // Zeros never move a day with messages into `other`.
    let limit = (MAX_GROUPS / window.dates.len().max(1)).max(1);
    let currencies = totals.iter().map(|(currency, _)| currency.as_str());
    let known = currencies.filter(|currency| !currency.is_empty());
    let filled: Vec<&str> = known.take(limit).collect();
    let mut groups = Vec::new();
    for (position, date) in window.dates.iter().enumerate() {
        let mut sums = by_day.remove(&position).unwrap_or_default();
        for currency in &filled {
            sums.entry(currency).or_default();
        }
        if filled.is_empty() {
            sums.entry("").or_default();
        }
        groups.extend(sums.into_iter().map(|(currency, sums)| CostRow {
            key: date.to_string(),
            label: None,
            currency: currency.to_owned(),
            sums,
        }));
    }
    limited(CostGroupBy::Day, groups)
}

fn largest(group_by: CostGroupBy, mut rows: Vec<CostRow>) -> Vec<CostGroup> {
    rows.retain(|row| row.sums != CostSums::default());
    rows.sort_by(|a, b| {
        let order = |row: &CostRow| sort_order(&row.currency, row.sums.amount);
        let by_amount = order(a).cmp(&order(b));
        by_amount
            .then(b.sums.messages.cmp(&a.sums.messages))
            .then_with(|| a.key.cmp(&b.key))
    });
    limited(group_by, rows)
}

/// The first groups, and the others as one for each currency.
fn limited(group_by: CostGroupBy, mut rows: Vec<CostRow>) -> Vec<CostGroup> {
    let rest = rows.split_off(rows.len().min(MAX_GROUPS));
    let mut other: BTreeMap<String, CostSums> = BTreeMap::new();
    for row in rest {
        other.entry(row.currency).or_default().add(row.sums);
    }
    let groups = rows.into_iter().map(|row| {
        let key = Some(row.key).filter(|key| !key.is_empty());
        CostGroup {
            label: row
                .label
                .or_else(|| key.clone())
                .unwrap_or_else(|| unnamed(group_by).to_owned()),
            key,
            total: total(&row.currency, &row.sums),
        }
    });
    let other = other.iter().map(|(currency, sums)| CostGroup {
        key: Some(OTHER.to_owned()),
        label: "Other".to_owned(),
        total: total(currency, sums),
    });
    groups.chain(other).collect()
}

/// The label of messages without a value.
fn unnamed(group_by: CostGroupBy) -> &'static str {
    match group_by {
        CostGroupBy::Campaign => "No campaign",
        CostGroupBy::Template => "No template",
        CostGroupBy::Category | CostGroupBy::Market | CostGroupBy::Number | CostGroupBy::Day => "Unknown",
    }
}

/// The sums of an account's costs.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait CostStore: Send + Sync {
    /// The exact sums of a window by group and currency, in one snapshot, and the service messages of the months in it.
    async fn report(
        &self,
        account: AccountId,
        window: &Window,
        group_by: CostGroupBy,
        campaign: Option<CampaignId>,
    ) -> Result<CostReportRows, StoreError>;
}

/// The report of an account's costs.
pub struct Costs {
    store: Arc<dyn CostStore>,
    clock: Arc<dyn Clock>,
}

impl Costs {
    pub fn new(store: Arc<dyn CostStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    pub async fn report(&self, tenant: &Tenant, query: &CostQuery) -> Result<CostReport, AnalyticsError> {
        let (window, period) = query.window(self.clock.now())?;
        let rows = self
            .store
            .report(tenant.account_id, &window, query.group_by, query.campaign_id)
            .await?;
        Ok(report(period, &window, query.group_by, rows))
    }
}

#[cfg(test)]
mod tests {
    use time::macros::{date, datetime};

    use super::*;

    fn row(key: &str, currency: &str, amount: &str, unpriced: i64) -> CostRow {
        CostRow {
            key: key.into(),
            label: None,
            currency: currency.into(),
            sums: CostSums {
                amount: Amount::parse(amount).unwrap(),
                messages: 1,
                billable: 1,
                free: 0,
                unpriced,
            },
        }
    }

    fn query(from: Option<Date>, to: Option<Date>) -> CostQuery {
        CostQuery {
            period: None,
            from,
            to,
            zone: Zone::UTC,
            group_by: CostGroupBy::Day,
            campaign_id: None,
        }
    }

    fn window() -> Window {
        let query = query(Some(date!(2026 - 03 - 01)), Some(date!(2026 - 03 - 03)));
        query.window(datetime!(2026-04-01 0:00 UTC)).unwrap().0
    }

    fn built(group_by: CostGroupBy, groups: Vec<CostRow>) -> CostReport {
        let rows = CostReportRows {
            groups,
            service_messages: vec![],
        };
        report("30d".into(), &window(), group_by, rows)
    }

    fn shown(report: &CostReport) -> Vec<String> {
        let groups = report.groups.iter().map(|group| {
            let amount = group.total.amount.map_or("-".to_owned(), |amount| amount.to_string());
            let currency = group.total.currency.as_deref().unwrap_or("-");
            format!("{} {amount} {currency}", group.key.as_deref().unwrap_or("-"))
        });
        groups.collect()
    }

    #[test]
    fn window_is_a_period_or_two_dates() {
        let now = datetime!(2026-04-01 12:00 UTC);
        assert_eq!(query(None, None).window(now).unwrap().1, "30d");
        let (window, period) = query(Some(date!(2026 - 03 - 01)), Some(date!(2026 - 03 - 01)))
            .window(now)
            .unwrap();
        assert_eq!((window.dates.len(), period.as_str()), (1, "2026-03-01/2026-03-01"));
        let year = query(Some(date!(2025 - 01 - 01)), Some(date!(2026 - 01 - 01)));
        assert_eq!(year.window(now).unwrap().0.dates.len(), 366);
        for (from, to) in [
            (Some(date!(2025 - 01 - 01)), Some(date!(2026 - 01 - 02))),
            (Some(date!(2026 - 01 - 02)), Some(date!(2026 - 01 - 01))),
            (Some(date!(2026 - 01 - 02)), None),
            (None, Some(date!(2026 - 01 - 02))),
        ] {
            assert!(query(from, to).window(now).is_err(), "{from:?} {to:?}");
        }
    }

    #[test]
    fn currencies_are_never_added() {
        let report = built(
            CostGroupBy::Market,
            vec![
                row("BR", "USD", "0.1", 0),
                row("BR", "EUR", "0.2", 0),
                row("PT", "USD", "0.00005", 0),
                row("PT", "", "0", 1),
            ],
        );
        assert_eq!(shown(&report), ["BR 0.2 EUR", "BR 0.1 USD", "PT 0 USD", "PT - -"]);
        let totals: Vec<String> = report
            .totals
            .iter()
            .map(|total| format!("{:?}", total.currency))
            .collect();
        assert_eq!(totals, ["Some(\"EUR\")", "Some(\"USD\")", "None"]);
        assert_eq!(
            report.totals[1].amount,
            Amount::parse("0.1"),
            "0.10005 is rounded half to even"
        );
        assert_eq!(report.totals[2].unpriced, 1);
    }

    #[test]
    fn days_are_in_order_and_filled_with_zeros() {
        let report = built(CostGroupBy::Day, vec![row("1", "USD", "0.1", 0), row("1", "", "0", 1)]);
        assert_eq!(
            shown(&report),
            [
                "2026-03-01 0 USD",
                "2026-03-02 - -",
                "2026-03-02 0.1 USD",
                "2026-03-03 0 USD"
            ]
        );
        assert_eq!(shown(&built(CostGroupBy::Day, vec![])).len(), 3);
    }

    #[test]
    fn days_are_filled_in_every_currency_of_the_totals() {
        let rows = vec![
            row("0", "USD", "0.1", 0),
            row("2", "EUR", "0.2", 0),
            row("2", "", "0", 1),
        ];
        assert_eq!(
            shown(&built(CostGroupBy::Day, rows)),
            [
                "2026-03-01 0 EUR",
                "2026-03-01 0.1 USD",
                "2026-03-02 0 EUR",
                "2026-03-02 0 USD",
                "2026-03-03 - -",
                "2026-03-03 0.2 EUR",
                "2026-03-03 0 USD",
            ]
        );
    }

    #[test]
    fn zeros_of_a_year_leave_room_for_its_messages() {
        let year = query(Some(date!(2025 - 01 - 01)), Some(date!(2025 - 12 - 31)));
        let (window, period) = year.window(datetime!(2026-04-01 0:00 UTC)).unwrap();
        let days = |currency: &str, amount: &str| -> Vec<CostRow> {
            (0..365).map(|day| row(&day.to_string(), currency, amount, 0)).collect()
        };
        let of = |groups: [Vec<CostRow>; 3]| {
            let rows = CostReportRows {
                groups: groups.concat(),
                service_messages: vec![],
            };
            super::report(period.clone(), &window, CostGroupBy::Day, rows)
        };
        let report = of([days("EUR", "2"), days("BRL", "1"), vec![row("364", "USD", "0.5", 0)]]);
        assert_eq!(report.groups.len(), 731);
        assert_eq!(report.groups[730].total.currency.as_deref(), Some("USD"));
        let full = of([days("EUR", "3"), days("BRL", "2"), days("USD", "1")]);
        assert_eq!(
            full.groups.len(),
            MAX_GROUPS + 3,
            "the days beyond the limit are `other`"
        );
    }

    #[test]
    fn groups_beyond_the_limit_are_other() {
        let rows = (0..MAX_GROUPS + 2)
            .map(|n| row(&format!("m{n:04}"), "USD", "1", 0))
            .collect();
        let report = built(CostGroupBy::Market, rows);
        assert_eq!(report.groups.len(), MAX_GROUPS + 1);
        let other = report.groups.last().unwrap();
        assert_eq!((other.key.as_deref(), other.total.messages), (Some("other"), 2));
        assert_eq!(report.totals[0].messages, 1002);
    }
}
