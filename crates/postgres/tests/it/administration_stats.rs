//! Administration statistics compared with a model without SQL, over random subscription histories.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use recado_domain::administration::{
    AdministrationReportStore, DayChurn, Days, Revenue, SubscriptionTotals, monthly_value,
};
use recado_domain::billing::{Cents, Cycle};
use recado_postgres::PgAdministration;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, id};

const TODAY: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

/// One subscription of the model. Times are minutes before `TODAY`.
#[derive(Clone, Debug)]
struct SubscriptionModel {
    account: usize,
    yearly: bool,
    status: &'static str,
    value: i64,
    begun: i64,
    cancelled: Option<i64>,
    inactivated: Option<i64>,
    attempt: bool,
    payments: Vec<(i64, i64)>,
}

const HISTORY_MINUTES: i64 = 60 * 24 * 60;

fn subscription() -> impl Strategy<Value = SubscriptionModel> {
    let status = prop::sample::select(vec![
        "active",
        "past_due",
        "pending",
        "cancelled",
        "inactive",
        "cancelled",
    ]);
    let value = prop_oneof![Just(0_i64), 1..40_i64, Just(97_000), Just(29_700)];
    // Whole days hit the boundaries of days and periods.
    let minutes = || {
        prop_oneof![
            0..HISTORY_MINUTES,
            (0..60_i64).prop_map(|day| day * 24 * 60),
            (0..60_i64).prop_map(|day| day * 24 * 60 + 570)
        ]
    };
    (
        0..8_usize,
        any::<bool>(),
        status,
        value,
        minutes(),
        minutes(),
        minutes(),
        0..3_u8,
        0..10_u8,
        prop::collection::vec((minutes(), 1..500_i64), 0..4),
    )
        .prop_map(
            |(account, yearly, status, value, begun, cancelled, inactivated, ends, attempt, payments)| {
                let ended = matches!(status, "cancelled" | "inactive");
                SubscriptionModel {
                    account,
                    yearly,
                    status,
                    value,
                    begun,
                    cancelled: (ended && ends != 1).then_some(cancelled.min(begun)),
                    inactivated: (ended && ends != 0).then_some(inactivated.min(begun)),
                    attempt: attempt == 0 && !ended,
                    payments,
                }
            },
        )
}

fn ago(minutes: i64) -> OffsetDateTime {
    TODAY - Duration::minutes(minutes)
}

impl SubscriptionModel {
    fn monthly(&self) -> i64 {
        let cycle = if self.yearly { Cycle::Yearly } else { Cycle::Monthly };
        monthly_value(Cents(self.value), cycle).0
    }

    fn ended(&self) -> Option<OffsetDateTime> {
        [self.cancelled, self.inactivated].into_iter().flatten().map(ago).min()
    }

    fn is_paying(&self) -> bool {
        matches!(self.status, "active" | "past_due") && !self.attempt
    }

    fn was_live_at(&self, at: OffsetDateTime) -> bool {
        !self.attempt && self.value > 0 && ago(self.begun) < at && self.ended().is_none_or(|end| end >= at)
    }
}

fn subscription_totals(subscriptions: &[SubscriptionModel]) -> SubscriptionTotals {
    let since = TODAY - Duration::days(30);
    let paying: std::collections::BTreeSet<usize> = subscriptions
        .iter()
        .filter(|subscription| subscription.is_paying() && subscription.value > 0)
        .map(|subscription| subscription.account)
        .collect();
    let before: Vec<&SubscriptionModel> = subscriptions
        .iter()
        .filter(|subscription| subscription.was_live_at(since))
        .collect();
    let count = |n: usize| i64::try_from(n).unwrap();
    SubscriptionTotals {
        mrr: Cents(
            subscriptions
                .iter()
                .filter(|subscription| subscription.is_paying())
                .map(SubscriptionModel::monthly)
                .sum(),
        ),
        paying_accounts: count(paying.len()),
        live_before: count(before.len()),
        ended_since: count(
            before
                .iter()
                .filter(|subscription| subscription.ended().is_some_and(|end| end <= TODAY))
                .count(),
        ),
    }
}

fn churn(subscriptions: &[SubscriptionModel], days: Days) -> Vec<DayChurn> {
    let day = |date: time::Date| {
        let begins = date.midnight().assume_utc();
        let counted = subscriptions
            .iter()
            .filter(|subscription| !subscription.attempt && subscription.value > 0);
        let ended: Vec<&SubscriptionModel> = counted
            .filter(|subscription| subscription.ended().is_some_and(|end| end.date() == date))
            .collect();
        let count = |n: usize| i64::try_from(n).unwrap();
        DayChurn {
            date,
            ended: count(ended.len()),
            ended_value: Cents(ended.iter().map(|subscription| subscription.monthly()).sum()),
            live_before: count(
                subscriptions
                    .iter()
                    .filter(|subscription| subscription.was_live_at(begins))
                    .count(),
            ),
            ended_of_these: count(
                ended
                    .iter()
                    .filter(|subscription| subscription.was_live_at(begins))
                    .count(),
            ),
        }
    };
    days.each().map(day).collect()
}

fn revenue(subscriptions: &[SubscriptionModel], days: Days) -> Vec<(time::Date, Revenue)> {
    let day = |date: time::Date| {
        let paid: Vec<i64> = subscriptions
            .iter()
            .flat_map(|subscription| &subscription.payments)
            .filter(|(at, _)| ago(*at).date() == date)
            .map(|(_, value)| *value)
            .collect();
        let revenue = Revenue {
            revenue: Cents(paid.iter().sum()),
            payments: i64::try_from(paid.len()).unwrap(),
        };
        (date, revenue)
    };
    days.each()
        .map(day)
        .filter(|(_, revenue)| revenue.payments > 0)
        .collect()
}

/// One account may have several live subscriptions here, which the store forbids: the totals do not depend on it.
async fn write(fixture: &DbFixture, subscriptions: &[SubscriptionModel]) {
    let timestamp = |at: Option<i64>| at.map_or("NULL".to_owned(), |at| format!("'{}'", ago(at)));
    let mut statements = String::from(
        "DROP INDEX IF EXISTS subscriptions_live_unique; TRUNCATE billing_history, subscriptions; DELETE FROM accounts;
         INSERT INTO accounts (id, name, slug) SELECT md5('f' || i)::uuid, 'x', 'f' || i FROM generate_series(0, 7) i;",
    );
    for subscription in subscriptions {
        let subscription_id = id();
        let intent = if subscription.attempt {
            "'{\"kind\":\"abandoned\"}', now(), true"
        } else {
            "NULL, NULL, false"
        };
        statements.push_str(&format!(
            "INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, created_at, cancelled_at,
               inactivated_at, intent, intent_until, attempt)
             VALUES (md5('f{}')::uuid, '{subscription_id}', 'starter', '{}', '{}', 'PIX', {}, {}, {}, {}, {intent});",
            subscription.account,
            if subscription.yearly { "YEARLY" } else { "MONTHLY" },
            subscription.status,
            subscription.value,
            timestamp(Some(subscription.begun)),
            timestamp(subscription.cancelled),
            timestamp(subscription.inactivated),
        ));
        for (at, value) in subscription.payments.iter().copied().chain([(-1, 1)]) {
            let paid = if at < 0 { "NULL".to_owned() } else { timestamp(Some(at)) };
            statements.push_str(&format!(
                "INSERT INTO billing_history (account_id, id, subscription_id, gateway_payment_id, billing_type, value,
                   status, paid_at)
                 VALUES (md5('f{}')::uuid, '{1}', '{subscription_id}', '{1}', 'PIX', {value}, 'RECEIVED', {paid});",
                subscription.account,
                id()
            ));
        }
    }
    fixture.sql(&statements).await;
}

#[tokio::test]
async fn administration_totals_match_the_model() {
    let fixture = DbFixture::new().await;
    let store = PgAdministration::new(fixture.owner.clone());
    let mut runner = TestRunner::default();
    let histories = prop::collection::vec(subscription(), 0..40);
    for round in 0..60 {
        let subscriptions = histories.new_tree(&mut runner).unwrap().current();
        write(&fixture, &subscriptions).await;
        let stored = store.subscriptions(TODAY - Duration::days(30), TODAY).await.unwrap();
        assert_eq!(
            stored,
            subscription_totals(&subscriptions),
            "round {round}: {subscriptions:?}"
        );
        for count in [1, 2, 30, 90] {
            let days = Days::until(TODAY, count);
            assert_eq!(
                store.churn(days).await.unwrap(),
                churn(&subscriptions, days),
                "round {round}: {subscriptions:?}"
            );
            assert_eq!(
                store.revenue(days).await.unwrap(),
                revenue(&subscriptions, days),
                "round {round}: {subscriptions:?}"
            );
        }
    }
}
