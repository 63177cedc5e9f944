//! Cost alerts: which amounts the messages of a month pass, and what the account is told then.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use time::{Date, OffsetDateTime};

use super::CostRollupDelta;
use crate::settings::CostAlert;
use crate::shared::{Amount, Event, NotificationDraft, NotificationKind, WebhookKind, Zone};

/// A month of the account's time zone, and a currency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostMonth {
    pub currency: String,
    /// The first day.
    pub first_day: Date,
}

impl CostMonth {
    fn of(currency: &str, at: OffsetDateTime, zone: &Zone) -> Option<Self> {
        let (first_day, _) = zone.month_of(at)?;
        Some(Self {
            currency: currency.to_owned(),
            first_day,
        })
    }

    /// The begin of the month, and that of the next.
    pub fn limits(&self, zone: &Zone) -> Option<(OffsetDateTime, OffsetDateTime)> {
        let begin = zone.begin_of(self.first_day)?;
        let (_, next) = zone.month_of(begin)?;
        Some((begin, zone.begin_of(next)?))
    }

    /// `YYYY-MM`.
    fn name(&self) -> String {
        format!("{:04}-{:02}", self.first_day.year(), u8::from(self.first_day.month()))
    }
}

/// What a change of the rollup adds to the months of the currencies that have an alert.
pub fn added_to_months(delta: &CostRollupDelta, alerts: &[CostAlert], zone: &Zone) -> BTreeMap<CostMonth, Amount> {
    let mut months: BTreeMap<CostMonth, Amount> = BTreeMap::new();
    for (key, sums) in delta.changes() {
        let has_alert = alerts.iter().any(|alert| alert.currency == key.currency);
        if let Some(month) = CostMonth::of(&key.currency, key.bucket_start, zone).filter(|_| has_alert) {
            *months.entry(month).or_default() += sums.amount;
        }
    }
    months.retain(|_, amount| !amount.is_zero());
    months
}

/// The amounts of the alerts that a sum passes which grows from `previous` to `amount`, in ascending order.
pub fn passed(alerts: &[CostAlert], currency: &str, previous: Amount, amount: Amount) -> Vec<Amount> {
    let of_currency = alerts.iter().filter(|alert| alert.currency == currency);
    let mut passed: Vec<Amount> = of_currency
        .map(|alert| alert.amount)
        .filter(|threshold| (previous < *threshold) && (*threshold <= amount))
        .collect();
    passed.sort_unstable();
    passed.dedup();
    passed
}

/// The webhook events and the notifications of alerts.
pub fn alert_events(month: &CostMonth, thresholds: &[Amount], previous: Amount, amount: Amount) -> Vec<Event> {
    let data = |threshold: &Amount| {
        json!({ "threshold": threshold, "currency": month.currency, "month": month.name(),
                "amount": amount.rounded_cost(), "previous": previous.rounded_cost() })
    };
    let items: Vec<Value> = thresholds.iter().map(data).collect();
    let notification = |(threshold, data): (&Amount, &Value)| {
        let currency = &month.currency;
        Event::Notification(NotificationDraft {
            kind: NotificationKind::Warning,
            title: format!("Message costs passed {threshold} {currency}"),
            message: format!(
                "The messages of {} cost {} {currency} so far.",
                month.name(),
                amount.rounded_cost()
            ),
            data: data.clone(),
        })
    };
    let notifications: Vec<Event> = thresholds.iter().zip(&items).map(notification).collect();
    let webhook = Event::webhook(WebhookKind::CostThreshold, items);
    std::iter::once(webhook).chain(notifications).collect()
}

#[cfg(test)]
mod tests {
    use time::macros::{date, datetime};
    use uuid::Uuid;

    use super::super::{CostEntry, CostKey, CostSums};
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    fn alert(text: &str, currency: &str) -> CostAlert {
        CostAlert {
            amount: amount(text),
            currency: currency.into(),
        }
    }

    fn entry(bucket_start: OffsetDateTime, currency: &str, text: &str) -> Option<CostEntry> {
        let key = CostKey {
            bucket_start,
            campaign_id: Uuid::nil(),
            profile_id: Uuid::nil(),
            template_id: Uuid::nil(),
            category: "marketing".into(),
            market: "BR".into(),
            currency: currency.into(),
        };
        let sums = CostSums {
            amount: amount(text),
            messages: 1,
            ..CostSums::default()
        };
        Some(CostEntry { key, sums })
    }

    #[test]
    fn month_is_that_of_the_accounts_zone() {
        let zone: Zone = "America/Sao_Paulo".parse().unwrap();
        let mut delta = CostRollupDelta::default();
        for (at, currency) in [
            (datetime!(2026-12-01 02:45 UTC), "USD"),
            (datetime!(2026-12-01 03:00 UTC), "USD"),
            (datetime!(2026-12-01 03:00 UTC), "BRL"),
        ] {
            delta.replace(None, entry(at, currency, "0.05"));
        }
        let months = added_to_months(&delta, &[alert("1", "USD")], &zone);
        let found: Vec<_> = months.keys().map(|month| (month.first_day, month.name())).collect();
        assert_eq!(
            found,
            [
                (date!(2026 - 11 - 01), "2026-11".to_owned()),
                (date!(2026 - 12 - 01), "2026-12".to_owned())
            ]
        );
        let limits = months.keys().next_back().unwrap().limits(&zone);
        assert_eq!(
            limits,
            Some((datetime!(2026-12-01 03:00 UTC), datetime!(2027-01-01 03:00 UTC)))
        );
    }

    #[test]
    fn change_without_an_amount_adds_to_no_month() {
        let at = datetime!(2026-12-01 12:00 UTC);
        let mut delta = CostRollupDelta::default();
        delta.replace(None, entry(at, "USD", "0"));
        delta.replace(entry(at, "USD", "0.05"), entry(at, "USD", "0.05"));
        assert!(added_to_months(&delta, &[alert("1", "USD")], &Zone::UTC).is_empty());
    }

    #[test]
    fn alert_is_passed_when_the_sum_reaches_it_from_below() {
        let alerts = [
            alert("2", "USD"),
            alert("1", "USD"),
            alert("1", "USD"),
            alert("1", "BRL"),
        ];
        let passed = |previous, now| passed(&alerts, "USD", amount(previous), amount(now));
        assert_eq!(passed("0", "0.99"), []);
        assert_eq!(passed("0.99", "1"), [amount("1")]);
        assert_eq!(passed("1", "1.5"), []);
        assert_eq!(passed("0.5", "2.01"), [amount("1"), amount("2")]);
        assert_eq!(passed("2.5", "0.5"), [], "a correction");
    }

    #[test]
    fn alert_has_one_event_and_one_notification() {
        let month = CostMonth {
            currency: "USD".into(),
            first_day: date!(2026 - 11 - 01),
        };
        let events = alert_events(&month, &[amount("1")], amount("0.990005"), amount("1.00005"));
        let [Event::Webhook(webhook), Event::Notification(notification)] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((webhook.kind, webhook.items.len()), (WebhookKind::CostThreshold, 1));
        assert_eq!(
            webhook.items[0],
            json!({ "threshold": 1, "currency": "USD", "month": "2026-11", "amount": 1, "previous": 0.99 })
        );
        assert_eq!(notification.kind, NotificationKind::Warning);
        assert_eq!(notification.data, webhook.items[0]);
    }
}
