//! Revenue and churn reports over all accounts, and their definitions.
//!
//! - The monthly value of a subscription is its price; of a yearly one a twelfth of it, rounded half-even to whole
//!   cents. Each subscription is rounded here once, so that rows add up to totals.
//! - Only active and past due subscriptions count as revenue. A subscription is paid if its price is above 0.
//! - A subscription is live from its creation until it is cancelled or inactivated, whichever comes first.
//! - The churn rate of a period is the share of subscriptions live at its start that ended in it.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use time::{Date, Duration, OffsetDateTime, UtcOffset};

use crate::billing::{Cents, Cycle};
use crate::shared::Amount;
use crate::shared::schema::Day;

const MONTHS_PER_YEAR: i64 = 12;

/// Returns the monthly value of a subscription.
pub fn monthly_value(value: Cents, cycle: Cycle) -> Cents {
    match cycle {
        Cycle::Monthly => value,
        Cycle::Yearly => {
            // `Decimal::round` rounds half-even.
            let month = (Decimal::from(value.0) / Decimal::from(MONTHS_PER_YEAR)).round();
            Cents(month.to_i64().unwrap_or_default())
        }
    }
}

/// Returns the annual recurring revenue of a monthly recurring revenue.
pub fn arr(mrr: Cents) -> Cents {
    Cents(mrr.0.saturating_mul(MONTHS_PER_YEAR))
}

/// Consecutive UTC days that end today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    pub first: Date,
    /// Today.
    pub last: Date,
}

impl Days {
    /// Returns the last `count` days including today; at least one.
    pub fn until(now: OffsetDateTime, count: i64) -> Self {
        let last = now.to_offset(UtcOffset::UTC).date();
        let first = last.saturating_sub(Duration::days(count.max(1) - 1));
        Self { first, last }
    }

    /// Iterates over the days, oldest first.
    pub fn each(self) -> impl Iterator<Item = Date> {
        let next = move |day: &Date| day.next_day().filter(|day| *day <= self.last);
        std::iter::successors(Some(self.first), next)
    }
}

/// Row counts over all accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub accounts: i64,
    pub users: i64,
    pub contacts: i64,
    pub conversations: i64,
}

/// Totals over all subscriptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionTotals {
    /// Monthly value of the active and past due subscriptions.
    pub mrr: Cents,
    /// Accounts with a paid subscription that is active or past due.
    pub paying_accounts: i64,
    /// Subscriptions that were live `CHURN_DAYS` ago.
    pub live_before: i64,
    /// Subscriptions of `live_before` that have ended since.
    pub ended_since: i64,
}

impl SubscriptionTotals {
    /// Length of the churn period in days.
    pub const CHURN_DAYS: i64 = 30;

    fn churn_rate(&self) -> Amount {
        Amount::from(self.ended_since).percent_of(self.live_before)
    }
}

/// Key numbers over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PlatformStats")]
pub struct AdministrationStats {
    /// Number of accounts.
    #[schemars(example = 412)]
    total_accounts: i64,
    /// Number of users.
    #[schemars(example = 903)]
    total_users: i64,
    /// Number of contacts of all accounts.
    #[schemars(example = 1204311)]
    total_contacts: i64,
    /// Number of conversations of all accounts.
    #[schemars(example = 84210)]
    total_conversations: i64,
    /// Monthly recurring revenue of all active and past due subscriptions, in cents.
    #[schemars(example = 4120000)]
    mrr: Cents,
    /// Annual recurring revenue: twelve times `mrr`, in cents.
    #[schemars(example = 49440000)]
    arr: Cents,
    /// Number of accounts with a paid subscription that is active or past due.
    #[schemars(example = 207)]
    paying_accounts: i64,
    /// Percentage of the subscriptions live 30 days ago that have ended since.
    #[schemars(range(min = 0, max = 100), example = 1.94)]
    churn_rate: Amount,
}

impl AdministrationStats {
    pub fn new(totals: Totals, subscriptions: SubscriptionTotals) -> Self {
        Self {
            total_accounts: totals.accounts,
            total_users: totals.users,
            total_contacts: totals.contacts,
            total_conversations: totals.conversations,
            mrr: subscriptions.mrr,
            arr: arr(subscriptions.mrr),
            paying_accounts: subscriptions.paying_accounts,
            churn_rate: subscriptions.churn_rate(),
        }
    }
}

/// Recurring revenue and churn over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlatformRevenueOverview {
    /// Monthly recurring revenue of all active and past due subscriptions, in cents.
    #[schemars(example = 4120000)]
    total_mrr: Cents,
    /// Annual recurring revenue: twelve times `total_mrr`, in cents.
    #[schemars(example = 49440000)]
    total_arr: Cents,
    /// Number of accounts with a paid subscription that is active or past due.
    #[schemars(example = 207)]
    paying_accounts: i64,
    /// Percentage of the subscriptions live 30 days ago that have ended since.
    #[schemars(range(min = 0, max = 100), example = 1.94)]
    churn_rate_30d: Amount,
}

impl From<SubscriptionTotals> for PlatformRevenueOverview {
    fn from(subscriptions: SubscriptionTotals) -> Self {
        Self {
            total_mrr: subscriptions.mrr,
            total_arr: arr(subscriptions.mrr),
            paying_accounts: subscriptions.paying_accounts,
            churn_rate_30d: subscriptions.churn_rate(),
        }
    }
}

/// Amount and number of payments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revenue {
    pub revenue: Cents,
    pub payments: i64,
}

/// Revenue of a day with at least one payment.
pub type DayRevenue = (Date, Revenue);

/// Revenue of one day over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlatformRevenueDay {
    /// Day in UTC.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "as_date")]
    date: Date,
    /// Sum of the payments of the day, in cents.
    #[schemars(example = 139300)]
    revenue: Cents,
    /// Number of payments of the day.
    #[schemars(example = 7)]
    payments: i64,
}

impl PlatformRevenueDay {
    /// Returns one row for every day, also for days without a payment.
    pub fn each(days: Days, paid_days: &[DayRevenue]) -> Vec<Self> {
        let day = |date: Date| {
            let found = paid_days.iter().find(|(day, _)| *day == date);
            let revenue = found.map_or_else(Revenue::default, |(_, revenue)| *revenue);
            Self {
                date,
                revenue: revenue.revenue,
                payments: revenue.payments,
            }
        };
        days.each().map(day).collect()
    }
}

/// Subscription counts of one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayChurn {
    pub date: Date,
    /// Subscriptions that ended on the day.
    pub ended: i64,
    /// Monthly value of the ended subscriptions.
    pub ended_value: Cents,
    /// Subscriptions that were live at the start of the day.
    pub live_before: i64,
    /// Subscriptions of `live_before` that ended on the day.
    pub ended_of_these: i64,
}

/// Subscription churn of one day over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChurnDay {
    /// Day in UTC.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "as_date")]
    date: Date,
    /// Number of subscriptions that ended on the day.
    #[schemars(example = 1)]
    cancelled: i64,
    /// Monthly value of the ended subscriptions, in cents.
    #[schemars(example = 19900)]
    churned_mrr: Cents,
    /// Number of subscriptions that were live at the start of the day.
    #[schemars(example = 207)]
    active_start: i64,
    /// Percentage of the subscriptions live at the start of the day that ended on it.
    #[schemars(range(min = 0, max = 100), example = 0.48)]
    churn_rate: Amount,
}

impl From<DayChurn> for ChurnDay {
    fn from(day: DayChurn) -> Self {
        Self {
            date: day.date,
            cancelled: day.ended,
            churned_mrr: day.ended_value,
            active_start: day.live_before,
            churn_rate: Amount::from(day.ended_of_these).percent_of(day.live_before),
        }
    }
}

fn as_date<S: Serializer>(date: &Date, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(date)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::{date, datetime};

    use super::*;

    #[test]
    fn monthly_value_of_yearly_price_is_rounded_half_even() {
        for (year, month) in [
            (0, 0),
            (5, 0),
            (6, 0),
            (7, 1),
            (17, 1),
            (18, 2),
            (30, 2),
            (42, 4),
            (97_000, 8_083),
            (297_000, 24_750),
            (797_000, 66_417),
            (i64::MAX, 768_614_336_404_564_651),
        ] {
            assert_eq!(monthly_value(Cents(year), Cycle::Yearly), Cents(month), "{year}");
            assert_eq!(monthly_value(Cents(year), Cycle::Monthly), Cents(year));
        }
        assert_eq!(arr(Cents(9_700)), Cents(116_400));
    }

    #[test]
    fn percent_serializes_as_a_decimal_number() {
        for (part, whole, text) in [
            (0, 0, "0"),
            (3, 0, "0"),
            (1, 3, "33.33"),
            (2, 3, "66.67"),
            (1, 1, "100"),
            (1, 8, "12.5"),
            (1, 32, "3.12"),
            (3, 32, "9.38"),
            (1, 20_001, "0"),
        ] {
            assert_eq!(
                json!(Amount::from(part).percent_of(whole)).to_string(),
                text,
                "{part}/{whole}"
            );
        }
    }

    #[test]
    fn days_are_utc_days_and_end_today() {
        let now = datetime!(2026-03-01 00:30 +02:00);
        let days: Vec<String> = Days::until(now, 3).each().map(|day| day.to_string()).collect();
        assert_eq!(days, ["2026-02-26", "2026-02-27", "2026-02-28"]);
        assert_eq!(Days::until(now, 0).each().count(), 1);
        assert_eq!(Days::until(now, 365).each().count(), 365);
    }

    #[test]
    fn revenue_report_has_a_row_for_every_day() {
        let days = Days {
            first: date!(2026 - 02 - 27),
            last: date!(2026 - 03 - 01),
        };
        let paid = Revenue {
            revenue: Cents(9_700),
            payments: 2,
        };
        let rows = PlatformRevenueDay::each(days, &[(date!(2026 - 02 - 28), paid)]);
        let expected = json!([
            { "date": "2026-02-27", "revenue": 0, "payments": 0 },
            { "date": "2026-02-28", "revenue": 9_700, "payments": 2 },
            { "date": "2026-03-01", "revenue": 0, "payments": 0 },
        ]);
        assert_eq!(json!(rows), expected);
    }

    #[test]
    fn reports_serialize_with_the_published_fields() {
        let totals = Totals {
            accounts: 1,
            users: 2,
            contacts: 3,
            conversations: 4,
        };
        let subscriptions = SubscriptionTotals {
            mrr: Cents(5),
            paying_accounts: 6,
            live_before: 8,
            ended_since: 1,
        };
        let stats = json!({ "totalAccounts": 1, "totalUsers": 2, "totalContacts": 3, "totalConversations": 4, "mrr": 5,
                            "arr": 60, "payingAccounts": 6, "churnRate": 12.5 });
        assert_eq!(json!(AdministrationStats::new(totals, subscriptions)), stats);
        let revenue = json!({ "total_mrr": 5, "total_arr": 60, "paying_accounts": 6, "churn_rate_30d": 12.5 });
        assert_eq!(json!(PlatformRevenueOverview::from(subscriptions)), revenue);
        let churn = ChurnDay::from(DayChurn {
            date: date!(2026 - 03 - 01),
            ended: 2,
            ended_value: Cents(7),
            live_before: 4,
            ended_of_these: 1,
        });
        let day =
            json!({ "date": "2026-03-01", "cancelled": 2, "churned_mrr": 7, "active_start": 4, "churn_rate": 25 });
        assert_eq!(json!(churn), day);
    }

    proptest! {
        /// Definition of half-even rounding: no integer is nearer, and of two equally near ones it is the even one.
        #[test]
        fn monthly_value_rounds_to_the_nearest_integer(year in -1_000_000_i64..1_000_000) {
            let Cents(month) = monthly_value(Cents(year), Cycle::Yearly);
            let distance = (month * 12 - year).abs() * 2;
            prop_assert!(distance < 12 || (distance == 12 && month % 2 == 0));
        }

        /// The same for percentages, in hundredths. The largest counts are exact, too.
        #[test]
        fn percentage_rounds_to_the_nearest_hundredth(
            (part, whole) in prop_oneof![1_i64..1000, 1_i64..i64::MAX].prop_flat_map(|whole| (0..=whole, Just(whole))),
        ) {
            let percentage = json!(Amount::from(part).percent_of(whole)).to_string();
            let hundredths: i128 = (percentage.parse::<Decimal>().unwrap() * Decimal::ONE_HUNDRED).to_i128().unwrap();
            let (part, whole) = (i128::from(part), i128::from(whole));
            let distance = (hundredths * whole - part * 10_000).abs() * 2;
            prop_assert!(distance < whole || (distance == whole && hundredths % 2 == 0));
        }
    }
}
