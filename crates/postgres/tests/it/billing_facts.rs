//! Billing: gateway events apply once, paid and granted plans are independent, payments store their cycle.

use std::sync::Arc;

use recado_domain::administration::{AccountChange, AdministrationStore};
use recado_domain::billing::{
    BillingAccountStore, Cents, Change, ChangeOutcome, Cycle, GatewayEvent, GatewayEventKind, GatewayEventStore,
    GatewayEvents, Payment, PaymentSnapshot, PaymentStatus, Subscription, SubscriptionStatus, SubscriptionStore,
};
use recado_domain::shared::{AccountId, Clock, Ids};
use recado_postgres::{PgAdministration, PgGatewayEvents, PgSubscriptions};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::billing::{gateway_event, payment, store, subscribed};
use crate::support::{DbFixture, LEASE, NOW, event, id, platform_entry};

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> OffsetDateTime {
        NOW
    }
}

struct SequentialIds;

impl Ids for SequentialIds {
    fn next(&self) -> Uuid {
        id()
    }
}

fn service(fixture: &DbFixture) -> GatewayEvents {
    let events = Arc::new(PgGatewayEvents::new(fixture.owner.clone()));
    let store = Arc::new(PgSubscriptions::new(fixture.tenants.clone(), fixture.owner.clone()));
    GatewayEvents::new(events, store, Arc::new(FixedClock), Arc::new(SequentialIds))
}

fn inactivated(name: &str) -> GatewayEvent {
    gateway_event(GatewayEventKind::Inactivated, name, "sub_1", None)
}

fn received(name: &str) -> GatewayEvent {
    let payment = PaymentSnapshot {
        id: "pay_1".into(),
        value: Some(Cents(29_700)),
        status: Some(PaymentStatus::Received),
        ..PaymentSnapshot::default()
    };
    gateway_event(GatewayEventKind::Received, name, "sub_1", Some(payment))
}

/// Worker A claims event 1 and stalls, worker B applies it and a later event, then A continues.
#[tokio::test]
async fn gateway_event_is_applied_once_despite_stalled_workers() {
    let fixture = DbFixture::new().await;
    let (events, service) = (PgGatewayEvents::new(fixture.owner.clone()), service(&fixture));
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    service.record(&inactivated("evt_1"), NOW).await.unwrap();
    let stalled = events.claim(None, Duration::ZERO).await.unwrap().unwrap();
    assert!(service.apply_next().await.unwrap());
    let lapsed = store(&fixture).find(fixture.account, row.id).await.unwrap().unwrap();
    assert_eq!(lapsed.status, SubscriptionStatus::Inactive);
    // An event without an effect is marked, too: applied later, it could have one.
    service.record(&inactivated("evt_2"), NOW).await.unwrap();
    let idle = events.claim(None, Duration::ZERO).await.unwrap().unwrap();
    assert!(service.apply_next().await.unwrap());
    service.record(&received("evt_3"), NOW).await.unwrap();
    assert!(service.apply_next().await.unwrap());
    let paid = store(&fixture).find(fixture.account, row.id).await.unwrap().unwrap();
    assert_eq!(paid.status, SubscriptionStatus::Active);
    let emitted = fixture.number("SELECT count(*) FROM outbox_events").await;
    for event in [&stalled, &idle] {
        service.apply_received(Some(event), "sub_1").await.unwrap();
        let after = store(&fixture).find(fixture.account, row.id).await.unwrap();
        assert_eq!(after, Some(paid.clone()));
    }
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, emitted);
    // A stalled worker cannot reopen a finished event.
    events.defer(stalled.id, Duration::ZERO).await.unwrap();
    assert_eq!(events.claim(None, LEASE).await.unwrap(), None);
    // The purge of an event deletes its mark.
    assert_eq!(fixture.number("SELECT count(*) FROM applied_gateway_events").await, 3);
    assert_eq!(events.purge(Duration::ZERO, 2).await.unwrap(), 2);
    assert_eq!(fixture.number("SELECT count(*) FROM applied_gateway_events").await, 1);
}

#[tokio::test]
async fn subscription_write_that_fails_marks_no_event() {
    let fixture = DbFixture::new().await;
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    let applying = |version: i64, event: Uuid| Change {
        applies: Some(event.into()),
        ..Change::of(Subscription { version, ..row.clone() })
    };
    let (first, second) = (id(), id());
    let write = async |change: Change| store(&fixture).write(&change).await.unwrap();
    assert_eq!(write(applying(row.version + 1, first)).await, ChangeOutcome::Stale);
    assert_eq!(fixture.number("SELECT count(*) FROM applied_gateway_events").await, 0);
    assert_eq!(write(applying(row.version, first)).await, ChangeOutcome::Done);
    assert_eq!(write(applying(row.version + 1, first)).await, ChangeOutcome::Repeated);
    store(&fixture)
        .mark_applied(fixture.account, second.into())
        .await
        .unwrap();
    store(&fixture)
        .mark_applied(fixture.account, second.into())
        .await
        .unwrap();
    assert_eq!(write(applying(row.version + 1, second)).await, ChangeOutcome::Repeated);
    let stored = store(&fixture).find(fixture.account, row.id).await.unwrap().unwrap();
    assert_eq!(stored.version, row.version + 1);
}

#[tokio::test]
async fn payment_stores_its_billing_cycle() {
    let fixture = DbFixture::new().await;
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    let mut written = payment(&row, "pay_1", NOW);
    for cycle in [Some(Cycle::Monthly), Some(Cycle::Yearly), None] {
        written.cycle = cycle;
        let current = store(&fixture).find(fixture.account, row.id).await.unwrap().unwrap();
        let change = Change {
            payment: Some(written.clone()),
            ..Change::of(current)
        };
        assert_eq!(store(&fixture).write(&change).await.unwrap(), ChangeOutcome::Done);
        let facts = store(&fixture)
            .facts(fixture.account, row.id, Some("pay_1".into()))
            .await;
        let stored: Payment = facts.unwrap().unwrap().payment.unwrap();
        assert_eq!(stored, written);
    }
}

/// The account's plan and its granted plan.
async fn plans(fixture: &DbFixture, account: AccountId) -> String {
    let query = format!("SELECT plan || ' ' || coalesce(granted_plan, '-') FROM accounts WHERE id = '{account}'");
    fixture.text(&query).await.unwrap()
}

#[tokio::test]
async fn granted_plan_is_independent_of_the_paid_plan() {
    let fixture = DbFixture::new().await;
    let (account, administration) = (fixture.account, PgAdministration::new(fixture.owner.clone()));
    let grant = async |plan: &str| {
        administration
            .set_plan(account, plan, &[event(account.0)], platform_entry(account))
            .await
            .unwrap()
    };
    assert!(grant("scale").await.is_done());
    assert_eq!(plans(&fixture, account).await, "scale scale");
    // Buying a smaller plan does not reduce the granted plan.
    let mut row = subscribed(&fixture, account, "sub_1").await;
    assert_eq!(plans(&fixture, account).await, "scale scale");
    let overview = store(&fixture).overview(account).await.unwrap();
    assert_eq!(
        (overview.plan(), overview.granted_plan.as_deref()),
        ("scale", Some("scale"))
    );
    // The paid plan outlasts the grant, and the grant outlasts the paid plan.
    (row.status, row.current_period_end) = (
        SubscriptionStatus::Cancelled,
        Some(OffsetDateTime::now_utc() + Duration::DAY),
    );
    let ended = Change {
        account_plan: Some("free".into()),
        ..Change::of(row.clone())
    };
    store(&fixture).write(&ended).await.unwrap();
    assert_eq!(plans(&fixture, account).await, "scale scale");
    assert!(grant("free").await.is_done());
    assert_eq!(plans(&fixture, account).await, "growth -");
    assert!(grant("starter").await.is_done());
    assert_eq!(plans(&fixture, account).await, "growth starter");
    fixture.sql("UPDATE subscriptions SET current_period_end = now()").await;
    assert!(grant("starter").await.is_done());
    assert_eq!(plans(&fixture, account).await, "starter starter");
    // A change of the subscription replaces the grant.
    row.version += 1;
    let changed = Change {
        account_plan: Some("free".into()),
        withdraws_grant: true,
        ..Change::of(row)
    };
    store(&fixture).write(&changed).await.unwrap();
    assert_eq!(plans(&fixture, account).await, "free -");
    let other_account = fixture.another_account().await;
    assert_eq!(plans(&fixture, other_account).await, "free -");
}

#[tokio::test]
async fn account_plan_set_by_update_is_a_grant() {
    let fixture = DbFixture::new().await;
    let (account, administration) = (fixture.account, PgAdministration::new(fixture.owner.clone()));
    for (plan, stored) in [
        (Some("growth"), "growth growth"),
        (None, "growth growth"),
        (Some("free"), "free -"),
    ] {
        let change = AccountChange {
            plan: plan.map(str::to_owned),
            ..AccountChange::default()
        };
        administration
            .update(account, &change, None, platform_entry(account))
            .await
            .unwrap();
        assert_eq!(plans(&fixture, account).await, stored);
    }
}
