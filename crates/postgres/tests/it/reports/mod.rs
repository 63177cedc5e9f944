//! Property test of the reports: after a random history of ingested data, every report equals a recomputation from the
//! same input. The recomputation uses no rollups, no SQL and other arithmetic. The database only supplies the calendar
//! day of a time in a time zone.

mod history;
mod recount;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use recado_domain::analytics::{Analytics, AnalyticsError, Period, ReportPeriod, Zone};
use recado_domain::rollups::RollupStore;
use recado_domain::shared::{Amount, Clock, Role, Tenant};
use recado_postgres::{PgAnalytics, PgRollups};
use time::OffsetDateTime;
use time::macros::datetime;

use crate::support::DbFixture;
use history::{History, step};
use recount::Recount;

/// Shortly after the end of daylight saving time on Lord Howe Island.
const NOW: OffsetDateTime = datetime!(2026-04-10 12:30 UTC);

const ZONES: [&str; 5] = [
    "UTC",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Kiritimati",
];

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> OffsetDateTime {
        NOW
    }
}

fn tenant(fixture: &DbFixture) -> Tenant {
    Tenant::for_tests(fixture.account, fixture.user, Role::Member)
}

/// An amount from a number of hundredths.
fn hundredths(number: i128) -> Amount {
    let (sign, digits) = (if number < 0 { "-" } else { "" }, number.abs());
    Amount::parse(&format!("{sign}{}.{:02}", digits / 100, digits % 100)).unwrap()
}

/// A quotient rounded half to even to hundredths; 0 if the divisor is 0.
fn quotient(dividend: i128, divisor: i128) -> Amount {
    if divisor == 0 {
        return Amount::ZERO;
    }
    let dividend = dividend * 100;
    let (whole, rest) = (dividend.div_euclid(divisor), dividend.rem_euclid(divisor));
    let up = rest * 2 > divisor || (rest * 2 == divisor && whole % 2 != 0);
    hundredths(whole + i128::from(up))
}

async fn compare(fixture: &DbFixture, history: &History, zone: &str, period: Period) {
    let analytics = Analytics::new(Arc::new(PgAnalytics::new(fixture.tenants.clone())), Arc::new(Fixed));
    let report_period = ReportPeriod {
        period,
        zone: zone.parse::<Zone>().unwrap(),
    };
    let recount = Recount::new(fixture, history, zone, period.days()).await;
    let tenant = tenant(fixture);
    recount.check_revenue(&analytics.revenue(&tenant, &report_period).await.unwrap());
    recount.check_ecommerce(&analytics.ecommerce(&tenant, &report_period).await.unwrap());
    recount.check_automations(&analytics.automations(&tenant, &report_period).await.unwrap());
    recount.check_metrics(&analytics.metrics(&tenant, None).await.unwrap());
    for name in ["visit", "a/b c"] {
        match analytics.metric(&tenant, name, &report_period).await {
            Ok(report) => recount.check_metric(name, &report),
            Err(AnalyticsError::NotFound) => assert!(!recount.has_metric(name)),
            Err(error) => panic!("{error}"),
        }
        if recount.has_metric(name) {
            recount.check_top(name, &analytics.top_contacts(&tenant, name, 10).await.unwrap());
        }
    }
}

#[test]
fn every_report_equals_a_recomputation_after_any_history() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(&prop::collection::vec(step(), 1..30), |steps| {
            runtime.block_on(async {
                let fixture = DbFixture::new().await;
                let mut history = History::begin(&fixture).await;
                // The first rows were inserted without rollups.
                let rollups = PgRollups::new(fixture.owner.clone());
                rollups.rebuild(fixture.account).await.unwrap();
                for step in steps {
                    history.play(&fixture, step).await;
                }
                for zone in ZONES {
                    for period in [Period::Week, Period::Quarter] {
                        compare(&fixture, &history, zone, period).await;
                    }
                }
                assert_eq!(rollups.verify(fixture.account).await.unwrap(), []);
            });
            Ok(())
        })
        .unwrap();
}
