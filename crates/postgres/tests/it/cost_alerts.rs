//! Cost alerts: of transactions that pass an amount together, one gives the alert.

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::messaging::{Pricing, PricingSource, SendStatus};
use recado_domain::settings::{CostAlert, SettingsInput, SettingsStore as _};
use recado_domain::shared::{AccountId, Amount, SendId, UserId};
use recado_postgres::PgSettings;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::status_updates::status_update;
use crate::support::{DbFixture, id};

/// The first second of March in São Paulo.
const MARCH: OffsetDateTime = datetime!(2026-03-01 3:00 UTC);

const SENDS: i64 = 24;

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

async fn set_alerts(fixture: &DbFixture, account: AccountId, amounts: &[&str]) {
    let alert = |text: &&str| CostAlert {
        amount: amount(text),
        currency: "USD".into(),
    };
    let change = SettingsInput {
        timezone: Some(Some("America/Sao_Paulo".into())),
        cost_alerts: Some(Some(amounts.iter().map(alert).collect())),
        ..SettingsInput::default()
    };
    let user = UserId(Uuid::nil());
    let change = change.check().unwrap();
    let settings = PgSettings::new(fixture.tenants.clone());
    settings.update(account, &change, user, MARCH, &[]).await.unwrap();
}

fn delivered(send: SendId, at: OffsetDateTime, price: &str) -> StatusUpdate {
    let pricing = Pricing {
        billable: true,
        model: Some("PMP".into()),
        kind: Some("regular".into()),
        category: Some("marketing".into()),
        market: None,
        amount: Amount::parse(price),
        currency: Some("USD".into()),
        source: PricingSource::Platform,
        priced_at: at,
    };
    StatusUpdate {
        at,
        pricing: Some(pricing),
        ..status_update(Some(send), &send.to_string(), SendStatus::Delivered)
    }
}

/// Sends that WhatsApp accepted.
async fn sends(fixture: &DbFixture) -> Vec<SendId> {
    fixture.add_contacts(usize::try_from(SENDS).unwrap()).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    fixture.in_flight(run, worker, SENDS).await
}

async fn apply(fixture: &DbFixture, updates: &[StatusUpdate]) {
    let unmatched = fixture.status_updates().apply(fixture.account, updates).await.unwrap();
    assert!(unmatched.is_empty(), "{unmatched:?}");
}

async fn warnings(fixture: &DbFixture) -> i64 {
    fixture
        .number("SELECT count(*) FROM outbox_events WHERE payload ->> 'title' LIKE 'Message costs passed%'")
        .await
}

async fn given(fixture: &DbFixture) -> Option<String> {
    fixture
        .text(
            "SELECT string_agg(to_char(month, 'YYYY-MM ') || threshold, ', ' ORDER BY month, threshold)
             FROM given_cost_alerts",
        )
        .await
}

#[tokio::test]
async fn concurrent_updates_that_pass_alerts_together_give_each_once() {
    let fixture = DbFixture::new().await;
    let sends = sends(&fixture).await;
    set_alerts(&fixture, fixture.account, &["0.3", "1", "1.5", "2.4", "2.41", "99"]).await;
    let tasks = sends.chunks(3).map(|chunk| {
        let (store, account) = (fixture.status_updates(), fixture.account);
        let updates: Vec<StatusUpdate> = chunk.iter().map(|send| delivered(*send, MARCH, "0.1")).collect();
        tokio::spawn(async move {
            // One at a time, and all of them once more: a repetition changes nothing.
            for update in &updates {
                store.apply(account, std::slice::from_ref(update)).await.unwrap();
            }
            store.apply(account, &updates).await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let expected = "2026-03 0.3, 2026-03 1, 2026-03 1.5, 2026-03 2.4";
    assert_eq!(given(&fixture).await.as_deref(), Some(expected));
    assert_eq!(warnings(&fixture).await, 4);
    let sum = fixture.text("SELECT amount::text FROM cost_months").await;
    assert_eq!(amount(&sum.unwrap()), amount("2.4"));
}

#[tokio::test]
async fn sum_of_a_month_is_computed_at_first_and_corrected_later() {
    let fixture = DbFixture::new().await;
    let sends = sends(&fixture).await;
    let other = fixture.another_account().await;
    set_alerts(&fixture, other, &["0.1"]).await;
    apply(&fixture, &[delivered(sends[0], MARCH, "0.9")]).await;
    assert_eq!(
        fixture.number("SELECT count(*) FROM cost_months").await,
        0,
        "without alerts nothing is summed"
    );
    set_alerts(&fixture, fixture.account, &["0.5", "1", "2", "3", "4.5"]).await;
    apply(&fixture, &[delivered(sends[1], MARCH - Duration::SECOND, "0.7")]).await;
    apply(&fixture, &[delivered(sends[2], MARCH, "0.2")]).await;
    assert_eq!(
        given(&fixture).await.as_deref(),
        Some("2026-02 0.5, 2026-03 1"),
        "0.5 was passed before it was set"
    );
    // A server that does not know of alerts adds to the rollup alone.
    fixture
        .sql("UPDATE cost_months SET amount = amount - 0.6; UPDATE cost_rollups SET amount = amount + 0.9")
        .await;
    apply(&fixture, &[delivered(sends[3], MARCH, "0.1")]).await;
    assert_eq!(warnings(&fixture).await, 2, "within a minute");
    fixture
        .sql("UPDATE cost_months SET summed_at = now() - interval '2 minutes'")
        .await;
    apply(&fixture, &[delivered(sends[4], MARCH, "0.1")]).await;
    assert_eq!(
        given(&fixture).await.as_deref(),
        Some("2026-02 0.5, 2026-03 1, 2026-03 2")
    );
    // In another zone the month is computed anew, and passes 3.
    fixture.sql("UPDATE account_settings SET timezone = 'UTC'").await;
    apply(&fixture, &[delivered(sends[5], MARCH, "0.1")]).await;
    assert_eq!(warnings(&fixture).await, 4);
    // An alert that is passed, a correction below it, and past it again.
    for (send, later, price) in [(6, 0, "0.8"), (6, 1, "0"), (7, 0, "0.8")] {
        apply(
            &fixture,
            &[delivered(sends[send], MARCH + Duration::minutes(later), price)],
        )
        .await;
        assert_eq!(warnings(&fixture).await, 5, "{send} {later}");
    }
    let of_other = format!("SELECT count(*) FROM given_cost_alerts WHERE account_id = '{other}'");
    assert_eq!(fixture.number(&of_other).await, 0);
}

/// Regression: the sum of a currency without alerts is not added to, so its next sum looked like one that passed them.
#[tokio::test]
async fn alert_that_is_set_again_knows_what_was_passed_meanwhile() {
    let fixture = DbFixture::new().await;
    let sends = sends(&fixture).await;
    let set = async |amounts| set_alerts(&fixture, fixture.account, amounts).await;
    set(&["1", "2"]).await;
    apply(&fixture, &[delivered(sends[0], MARCH, "0.4")]).await;
    set(&[]).await;
    apply(&fixture, &[delivered(sends[1], MARCH, "0.8")]).await;
    set(&["1", "2"]).await;
    apply(&fixture, &[delivered(sends[2], MARCH, "0.1")]).await;
    assert_eq!(given(&fixture).await, None, "1 was passed without an alert");
    apply(&fixture, &[delivered(sends[3], MARCH, "0.8")]).await;
    assert_eq!(given(&fixture).await.as_deref(), Some("2026-03 2"));
}

#[tokio::test]
async fn alert_that_another_zone_passes_is_given_once() {
    let fixture = DbFixture::new().await;
    let sends = sends(&fixture).await;
    set_alerts(&fixture, fixture.account, &["1"]).await;
    apply(&fixture, &[delivered(sends[0], MARCH, "0.7")]).await;
    // February in São Paulo, March in UTC.
    apply(&fixture, &[delivered(sends[1], MARCH - Duration::HOUR, "0.5")]).await;
    assert_eq!(given(&fixture).await, None);
    for (send, timezone) in [(2, "UTC"), (3, "America/Sao_Paulo"), (4, "UTC")] {
        let set = format!("UPDATE account_settings SET timezone = '{timezone}'");
        fixture.sql(&set).await;
        apply(&fixture, &[delivered(sends[send], MARCH, "0.1")]).await;
        assert_eq!(given(&fixture).await.as_deref(), Some("2026-03 1"), "{timezone}");
    }
    assert_eq!(warnings(&fixture).await, 1);
}
