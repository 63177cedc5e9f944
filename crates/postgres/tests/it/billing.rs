//! Subscriptions: one live row per account, guarded writes and their events; gateway events in order.

use futures_util::future::join_all;
use recado_domain::billing::{
    BillingAccountStore, BillingType, Cents, Change, ChangeOutcome, Cycle, GatewayEvent, GatewayEventData,
    GatewayEventKind, GatewayEventStore, GatewayPayment, Initiator, Intent, Payment, PaymentSnapshot, PaymentStatus,
    PendingIntent, PlanLimits, RecordOutcome, ReserveOutcome, Subscription, SubscriptionState, SubscriptionStatus,
    SubscriptionStore, SubscriptionWorkStore, plan_limits,
};
use recado_domain::shared::{AccountId, PageQuery, Role, Tenant, UserId};
use recado_postgres::{PgBillingWork, PgGatewayEvents, PgSubscriptions};
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, LEASE, NOW, event, id};

pub(crate) fn store(fixture: &DbFixture) -> PgSubscriptions {
    PgSubscriptions::new(fixture.tenants.clone(), fixture.owner.clone())
}

fn events(fixture: &DbFixture) -> PgGatewayEvents {
    PgGatewayEvents::new(fixture.owner.clone())
}

pub(crate) fn attempt(fixture: &DbFixture, account: AccountId) -> Subscription {
    attempt_of(fixture.user, account)
}

pub(crate) fn attempt_of(user_id: UserId, account: AccountId) -> Subscription {
    let initiator = Initiator {
        user_id,
        ip_address: Some("203.0.113.9".into()),
        support_admin: None,
    };
    Subscription {
        account_id: account,
        id: id().into(),
        plan: "growth".into(),
        cycle: Cycle::Monthly,
        status: SubscriptionStatus::Pending,
        billing_type: BillingType::Pix,
        value: Cents(29_700),
        billing_email: Some("ana@example.com".into()),
        gateway_customer_id: None,
        gateway_subscription_id: None,
        current_period_start: None,
        current_period_end: None,
        cancelled_at: None,
        inactivated_at: None,
        lapsed_at: None,
        period_granted: false,
        anchor_day: None,
        check_at: None,
        last_event: None,
        pending: Some(PendingIntent::leased(
            Intent::Subscribe { initiator },
            NOW,
            Duration::ZERO,
        )),
        version: 0,
        created_at: NOW,
        updated_at: NOW,
    }
}

fn change_to(subscription: Subscription) -> Change {
    Change::of(subscription)
}

/// The change that completes the attempt.
fn completed(attempt: &Subscription, gateway_id: &str) -> Change {
    let mut after = attempt.clone();
    after.pending = None;
    after.gateway_customer_id = Some(format!("cus_{gateway_id}"));
    after.gateway_subscription_id = Some(gateway_id.into());
    after.anchor_day = Some(31);
    after.period_granted = true;
    Change {
        account_plan: Some("growth".into()),
        events: vec![event(after.id.0)],
        ..change_to(after)
    }
}

pub(crate) fn payment(subscription: &Subscription, gateway_id: &str, at: OffsetDateTime) -> Payment {
    Payment {
        id: id().into(),
        subscription_id: subscription.id,
        gateway_payment_id: gateway_id.into(),
        billing_type: "PIX".into(),
        value: Cents(29_700),
        cycle: Some(Cycle::Monthly),
        status: PaymentStatus::Pending,
        invoice_url: Some("https://g.example/i".into()),
        bank_slip_url: None,
        due_date: Some(NOW.date()),
        paid_at: None,
        confirmed: false,
        credited: false,
        last_event_at: Some(at),
        created_at: at,
    }
}

pub(crate) async fn subscribed(fixture: &DbFixture, account: AccountId, gateway_id: &str) -> Subscription {
    let attempt = attempt(fixture, account);
    assert_eq!(store(fixture).reserve(&attempt).await.unwrap(), ReserveOutcome::Done);
    let written = store(fixture).write(&completed(&attempt, gateway_id)).await.unwrap();
    assert_eq!(written, ChangeOutcome::Done);
    store(fixture).find(account, attempt.id).await.unwrap().unwrap()
}

async fn plan(fixture: &DbFixture, account: AccountId) -> String {
    let plan = fixture
        .text(&format!("SELECT plan FROM accounts WHERE id = '{account}'"))
        .await;
    plan.unwrap()
}

#[tokio::test]
async fn subscription_attempts_in_parallel_reserve_once() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let store = store(&fixture);
    let attempts: Vec<Subscription> = (0..20).map(|_| attempt(&fixture, fixture.account)).collect();
    let reserved = join_all(attempts.iter().map(|attempt| store.reserve(attempt))).await;
    let mut done = 0;
    for reserved in &reserved {
        match reserved.as_ref().unwrap() {
            ReserveOutcome::Done => done += 1,
            ReserveOutcome::Taken(holder) => assert!(holder.is_attempt()),
        }
    }
    assert_eq!(
        (done, fixture.number("SELECT count(*) FROM subscriptions").await),
        (1, 1)
    );
    assert_eq!(
        store.reserve(&attempt(&fixture, other_account)).await.unwrap(),
        ReserveOutcome::Done
    );
    // An overview does not show an attempt.
    assert_eq!(store.overview(fixture.account).await.unwrap().subscription, None);
    assert_eq!(plan(&fixture, fixture.account).await, "free");
}

#[tokio::test]
async fn subscription_change_is_stored_with_plan_and_events() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    let mut expected = completed(&row, "sub_1").subscription;
    expected.version = 1;
    assert_eq!(row, expected);
    let overview = store(&fixture).overview(fixture.account).await.unwrap();
    assert_eq!(
        (overview.subscription, overview.account_plan.as_str()),
        (Some(row.clone()), "growth")
    );
    assert_eq!(fixture.relay().await, 1, "the audit entry of the change");
    assert_eq!(
        events(&fixture).owner("sub_1").await.unwrap(),
        Some((fixture.account, row.id))
    );
    assert_eq!(events(&fixture).owner("sub_2").await.unwrap(), None);
    // The other account can neither read nor change it.
    assert_eq!(store(&fixture).find(other_account, row.id).await.unwrap(), None);
    assert_eq!(store(&fixture).facts(other_account, row.id, None).await.unwrap(), None);
    let foreign = Subscription {
        account_id: other_account,
        ..row.clone()
    };
    assert_eq!(
        store(&fixture).write(&change_to(foreign)).await.unwrap(),
        ChangeOutcome::Missing
    );
    assert_eq!(plan(&fixture, other_account).await, "free");
    let mut gateway_payment = GatewayPayment {
        id: "pay_1".into(),
        subscription: Some("sub_1".into()),
        customer: Some("cus_sub_1".into()),
        billing_type: "PIX".into(),
        status: PaymentStatus::Pending,
        value: None,
        invoice_url: None,
        bank_slip_url: None,
        due_date: None,
    };
    for subscription in [Some("sub_1".to_owned()), None] {
        gateway_payment.subscription = subscription;
        assert!(store(&fixture).owns(fixture.account, &gateway_payment).await.unwrap());
        assert!(!store(&fixture).owns(other_account, &gateway_payment).await.unwrap());
    }
    gateway_payment.subscription = Some("sub_9".into());
    assert!(!store(&fixture).owns(fixture.account, &gateway_payment).await.unwrap());
    let change = Change {
        payment: Some(payment(&row, "pay_1", NOW)),
        ..change_to(row.clone())
    };
    store(&fixture).write(&change).await.unwrap();
    (gateway_payment.subscription, gateway_payment.customer) = (None, None);
    assert!(store(&fixture).owns(fixture.account, &gateway_payment).await.unwrap());
    assert!(!store(&fixture).owns(other_account, &gateway_payment).await.unwrap());
}

#[tokio::test]
async fn subscription_write_requires_the_read_version() {
    let fixture = DbFixture::new().await;
    let store = store(&fixture);
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    let writes = (0..8).map(|number| {
        let mut after = row.clone();
        after.plan = format!("plan {number}");
        let change = Change {
            events: vec![event(id())],
            ..change_to(after)
        };
        let store = store.clone();
        async move { store.write(&change).await.unwrap() }
    });
    let written = join_all(writes).await;
    assert_eq!(
        written
            .iter()
            .filter(|writing| **writing == ChangeOutcome::Done)
            .count(),
        1
    );
    assert_eq!(
        written
            .iter()
            .filter(|writing| **writing == ChangeOutcome::Stale)
            .count(),
        7
    );
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 2);
    assert!(
        !store.remove(&row).await.unwrap().is_done(),
        "only an attempt can be removed"
    );
}

#[tokio::test]
async fn ended_subscription_cannot_revive_beside_a_live_one() {
    let fixture = DbFixture::new().await;
    let store = store(&fixture);
    let first = subscribed(&fixture, fixture.account, "sub_1").await;
    let mut ended = first.clone();
    ended.status = SubscriptionStatus::Cancelled;
    store.write(&change_to(ended)).await.unwrap();
    assert!(
        !store
            .facts(fixture.account, first.id, None)
            .await
            .unwrap()
            .unwrap()
            .other_live
    );
    // An attempt occupies the live subscription of the account, but grants no plan.
    let waiting = attempt(&fixture, fixture.account);
    store.reserve(&waiting).await.unwrap();
    let facts = store.facts(fixture.account, first.id, None).await.unwrap().unwrap();
    assert!(facts.other_live && facts.others.is_empty());
    assert!(store.remove(&waiting).await.unwrap().is_done());
    let second = subscribed(&fixture, fixture.account, "sub_2").await;
    let facts = store
        .facts(fixture.account, first.id, Some("none".into()))
        .await
        .unwrap()
        .unwrap();
    assert!(facts.other_live && facts.payment.is_none());
    let live_state = SubscriptionState {
        plan: second.plan.clone(),
        status: second.status,
        current_period_end: second.current_period_end,
    };
    assert_eq!(facts.others, [live_state]);
    let mut revived = facts.subscription;
    revived.status = SubscriptionStatus::Active;
    assert_eq!(store.write(&change_to(revived)).await.unwrap(), ChangeOutcome::Stale);
    assert_eq!(
        store.overview(fixture.account).await.unwrap().subscription,
        Some(second)
    );
}

#[tokio::test]
async fn subscription_attempt_is_removed_once() {
    let fixture = DbFixture::new().await;
    let store = store(&fixture);
    let attempt = attempt(&fixture, fixture.account);
    store.reserve(&attempt).await.unwrap();
    let mut later = attempt.clone();
    later.version = 7;
    assert!(!store.remove(&later).await.unwrap().is_done());
    assert!(store.remove(&attempt).await.unwrap().is_done());
    assert!(!store.remove(&attempt).await.unwrap().is_done());
    assert_eq!(fixture.number("SELECT count(*) FROM subscriptions").await, 0);
}

#[tokio::test]
async fn plan_change_checks_usage_in_its_transaction() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contact_counts (account_id, day, contacts) VALUES
               ('{account}', '2026-01-01', 4), ('{account}', '2026-01-02', 2), ('{other_account}', '2026-01-01', 3);
             INSERT INTO message_usage_slots (account_id, month, sent, reserved) VALUES
               ('{account}', date_trunc('month', now() AT TIME ZONE 'UTC')::date, 42, 7), ('{account}', '2020-01-01', 9, 0);
             INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, sent, delivered, read, failed,
               received)
               VALUES ('{account}', 1440, date_trunc('day', now(), 'UTC'), 2, 0, 1, 5, 9);
             INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token)
               VALUES ('{account}', '{}', 'p', '1', '2', '\\x00')",
            id()
        ))
        .await;
    let row = subscribed(&fixture, account, "sub_1").await;
    let usage = store(&fixture).overview(account).await.unwrap().usage;
    assert_eq!(
        (usage.contacts, usage.messages, usage.team, usage.whatsapp),
        (6, 45, 1, 1)
    );
    let within = |contacts| PlanLimits {
        contacts,
        ..plan_limits("starter").unwrap()
    };
    let mut change = Change {
        limits: Some(within(5)),
        ..change_to(row.clone())
    };
    change.subscription.plan = "starter".into();
    let ChangeOutcome::Exceeds(errors) = store(&fixture).write(&change).await.unwrap() else {
        panic!()
    };
    assert!(errors.0["plan"][0].contains("5 contacts"), "{errors:?}");
    assert_eq!(store(&fixture).find(account, row.id).await.unwrap(), Some(row));
    change.limits = Some(within(6));
    assert_eq!(store(&fixture).write(&change).await.unwrap(), ChangeOutcome::Done);
}

#[tokio::test]
async fn payment_updates_one_row_and_keeps_its_order() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let mut row = subscribed(&fixture, fixture.account, "sub_1").await;
    for (number, gateway_id) in ["pay_1", "pay_2", "pay_1"].into_iter().enumerate() {
        let at = NOW + Duration::hours(i64::try_from(number).unwrap());
        let mut payment = payment(&row, gateway_id, at);
        payment.status = format!("STATUS {number}").into();
        let change = Change {
            payment: Some(payment),
            ..change_to(row.clone())
        };
        assert_eq!(store(&fixture).write(&change).await.unwrap(), ChangeOutcome::Done);
        row.version += 1;
    }
    let all = store(&fixture)
        .history(fixture.account, PageQuery::new(None, None, 20, 100))
        .await
        .unwrap();
    let listed: Vec<_> = all
        .data
        .iter()
        .map(|row| (row.gateway_payment_id.as_str(), row.status.as_str()))
        .collect();
    assert_eq!(
        (listed, all.total),
        (vec![("pay_2", "STATUS 1"), ("pay_1", "STATUS 2")], 2)
    );
    assert_eq!(all.data[1].created_at, NOW);
    let second = store(&fixture)
        .history(fixture.account, PageQuery::new(Some(2), Some(1), 20, 100))
        .await
        .unwrap();
    assert_eq!(
        (second.data[0].gateway_payment_id.as_str(), second.total_pages),
        ("pay_1", 2)
    );
    assert_eq!(
        store(&fixture)
            .history(other_account, PageQuery::new(None, None, 20, 100))
            .await
            .unwrap()
            .total,
        0
    );
    let facts = store(&fixture)
        .facts(fixture.account, row.id, Some("pay_2".into()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(facts.payment, Some(all.data[0].clone()));
}

pub(crate) fn gateway_event(
    kind: GatewayEventKind,
    id: &str,
    subject: &str,
    payment: Option<PaymentSnapshot>,
) -> GatewayEvent {
    GatewayEvent {
        key: format!("id:{id}"),
        event: kind.to_string(),
        subject: Some(subject.into()),
        data: GatewayEventData {
            kind,
            payment,
            created_at: None,
        },
    }
}

fn payment_event(kind: GatewayEventKind, id: &str, subject: &str) -> GatewayEvent {
    let payment = PaymentSnapshot {
        id: "pay_1".into(),
        status: Some(PaymentStatus::Other("X".into())),
        ..PaymentSnapshot::default()
    };
    gateway_event(kind, id, subject, Some(payment))
}

/// Stores the event without a lease, so that any worker can claim it.
async fn record(events: &PgGatewayEvents, event: &GatewayEvent) -> RecordOutcome {
    let now = OffsetDateTime::now_utc();
    events.record(id().into(), event, now, Duration::ZERO).await.unwrap()
}

#[tokio::test]
async fn gateway_event_is_claimed_by_its_recorder() {
    let fixture = DbFixture::new().await;
    let events = events(&fixture);
    let record_with_lease = async |name: &str, subject: &str| {
        let event = payment_event(GatewayEventKind::Confirmed, name, subject);
        events.record(id().into(), &event, NOW, LEASE).await.unwrap()
    };
    assert_eq!(record_with_lease("evt_1", "sub_1").await, RecordOutcome::Claimed);
    assert_eq!(record_with_lease("evt_1", "sub_1").await, RecordOutcome::Known);
    assert_eq!(
        record_with_lease("evt_2", "sub_1").await,
        RecordOutcome::Stored,
        "an earlier event of the subscription is unfinished"
    );
    assert_eq!(record_with_lease("evt_3", "sub_2").await, RecordOutcome::Claimed);
    assert_eq!(
        events.claim(None, LEASE).await.unwrap(),
        None,
        "the recorder holds the leases"
    );
    fixture
        .sql("UPDATE gateway_events SET due_at = now() WHERE key = 'id:evt_1'")
        .await;
    let taken = events.claim(None, LEASE).await.unwrap().unwrap();
    assert_eq!((taken.subject.as_str(), taken.received_at), ("sub_1", NOW));
}

#[tokio::test]
async fn gateway_events_are_stored_once_and_claimed_in_order() {
    let fixture = DbFixture::new().await;
    let events = events(&fixture);
    let names = ["evt_1", "evt_2", "evt_3"];
    let attempts = names.iter().flat_map(|name| {
        let events = &events;
        (0..5).map(move |_| async move {
            let event = payment_event(GatewayEventKind::Confirmed, name, "sub_0");
            record(events, &event).await
        })
    });
    let outcomes = join_all(attempts).await;
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome != RecordOutcome::Known)
            .count(),
        3
    );
    for (subject, name) in [("sub_1", "a"), ("sub_2", "b"), ("sub_1", "c")] {
        assert!(
            record(&events, &payment_event(GatewayEventKind::Confirmed, name, subject)).await != RecordOutcome::Known
        );
    }
    let refund = payment_event(GatewayEventKind::Other, "odd", "sub_1");
    assert_eq!(record(&events, &refund).await, RecordOutcome::Stored);
    let claim = |subject: &str| events.claim(Some(subject.to_owned()), LEASE);
    let first = claim("sub_1").await.unwrap().unwrap();
    assert_eq!(
        first.data,
        payment_event(GatewayEventKind::Confirmed, "a", "sub_1").data
    );
    assert_eq!(
        claim("sub_1").await.unwrap(),
        None,
        "the second event waits for the first"
    );
    let deferred = claim("sub_2").await.unwrap().unwrap();
    events.defer(deferred.id, Duration::hours(1)).await.unwrap();
    assert_eq!(claim("sub_2").await.unwrap(), None);
    events.finish(first.id).await.unwrap();
    let next = claim("sub_1").await.unwrap().unwrap();
    events.defer(next.id, Duration::ZERO).await.unwrap();
    let reclaimed = claim("sub_1").await.unwrap().unwrap();
    assert_eq!((reclaimed.id, reclaimed.attempts), (next.id, 1));
    events.finish(reclaimed.id).await.unwrap();
    assert_eq!(
        claim("sub_1").await.unwrap(),
        None,
        "an event without an effect is not claimed"
    );
    let unrestricted = events.claim(None, LEASE).await.unwrap().unwrap();
    assert_eq!(unrestricted.subject, "sub_0");
    // The purge deletes only finished events that are older than the retention.
    assert_eq!(events.purge(Duration::hours(1), 100).await.unwrap(), 0);
    assert_eq!(events.purge(Duration::ZERO, 2).await.unwrap(), 2);
    assert_eq!(events.purge(Duration::ZERO, 100).await.unwrap(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM gateway_events").await, 4);
}

/// The planner expects one row and may run the choice of the events again for each of them.
#[tokio::test]
async fn gateway_event_purge_keeps_its_limit_under_any_plan() {
    let fixture = DbFixture::new().await;
    let events = events(&fixture);
    for number in 0..5 {
        let event = payment_event(GatewayEventKind::Other, &number.to_string(), "sub_1");
        let received_at = NOW + Duration::seconds(number);
        events.record(id().into(), &event, received_at, LEASE).await.unwrap();
        if number == 0 {
            fixture.sql("ANALYZE gateway_events").await;
        }
    }
    assert_eq!(events.purge(Duration::ZERO, 2).await.unwrap(), 2);
    assert_eq!(fixture.number("SELECT count(*) FROM gateway_events").await, 3);
}

#[tokio::test]
async fn gateway_event_is_due_once_its_subscription_exists() {
    let fixture = DbFixture::new().await;
    let events = events(&fixture);
    let mut early = Vec::new();
    for subject in ["sub_1", "sub_2"] {
        record(&events, &payment_event(GatewayEventKind::Overdue, subject, subject)).await;
        let event = events.claim(Some(subject.into()), LEASE).await.unwrap().unwrap();
        events.defer(event.id, Duration::hours(1)).await.unwrap();
        early.push(event.id);
    }
    subscribed(&fixture, fixture.account, "sub_1").await;
    let due = events.claim(None, LEASE).await.unwrap();
    assert_eq!(due.map(|event| event.id), Some(early[0]));
    assert_eq!(
        events.claim(None, LEASE).await.unwrap(),
        None,
        "the event of `sub_2` waits"
    );
}

/// The process ended between the insert of the subscription and the statement that makes its events due.
#[tokio::test]
async fn early_gateway_event_is_retried_without_a_wake() {
    let fixture = DbFixture::new().await;
    let events = events(&fixture);
    record(&events, &payment_event(GatewayEventKind::Overdue, "sub_1", "sub_1")).await;
    let event = events.claim(None, LEASE).await.unwrap().unwrap();
    events.defer(event.id, Duration::seconds(1)).await.unwrap();
    fixture
        .sql(&format!(
            "INSERT INTO gateway_subscriptions VALUES ('sub_1', '{}', gen_random_uuid())",
            fixture.account
        ))
        .await;
    assert_eq!(
        events.claim(None, LEASE).await.unwrap(),
        None,
        "nothing made the event due"
    );
    let due = loop {
        if let Some(due) = events.claim(None, LEASE).await.unwrap() {
            break due;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!((due.id, due.attempts), (event.id, 1));
}

/// A worker that applies an event writes its subscription: that write makes no leased event due.
#[tokio::test]
async fn later_writes_of_a_subscription_wake_no_event() {
    let fixture = DbFixture::new().await;
    let events = events(&fixture);
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    record(&events, &payment_event(GatewayEventKind::Overdue, "sub_1", "sub_1")).await;
    let event = events.claim(None, LEASE).await.unwrap().unwrap();
    events.defer(event.id, Duration::ZERO).await.unwrap();
    assert!(events.claim(None, LEASE).await.unwrap().is_some());
    store(&fixture).write(&change_to(row)).await.unwrap();
    assert_eq!(events.claim(None, LEASE).await.unwrap(), None);
}

#[tokio::test]
async fn billing_work_that_is_due_is_claimed_once() {
    let fixture = DbFixture::new().await;
    let work = PgBillingWork::new(fixture.owner.clone());
    let row = subscribed(&fixture, fixture.account, "sub_1").await;
    let due = Some((fixture.account, row.id));
    assert_eq!(work.claim_intent(LEASE).await.unwrap(), None);
    assert_eq!(work.claim_check(LEASE).await.unwrap(), None);
    let mut after = row.clone();
    after.check_at = Some(NOW);
    // Reconciliation is due although the lease has not expired.
    let initiator = Initiator::from(&Tenant::for_tests(fixture.account, fixture.user, Role::Owner));
    after.pending = Some(PendingIntent {
        intent: Intent::Cancel { initiator },
        until: OffsetDateTime::now_utc() + Duration::days(1),
        check_at: NOW,
    });
    store(&fixture).write(&change_to(after)).await.unwrap();
    let claims = join_all((0..4).map(|_| work.claim_intent(LEASE))).await;
    assert_eq!(claims.iter().filter(|claim| *claim.as_ref().unwrap() == due).count(), 1);
    // An earlier version stores no `intent_check_at`: the end of the lease applies.
    fixture
        .sql("UPDATE subscriptions SET intent_check_at = NULL, intent_until = now()")
        .await;
    assert_eq!(work.claim_intent(LEASE).await.unwrap(), due);
    assert_eq!(work.claim_intent(LEASE).await.unwrap(), None);
    assert_eq!(work.claim_check(LEASE).await.unwrap(), due);
    assert_eq!(work.claim_check(LEASE).await.unwrap(), None);
    assert_eq!(work.next_lapse().await.unwrap(), None);
    let mut ended = store(&fixture).find(fixture.account, row.id).await.unwrap().unwrap();
    (ended.status, ended.pending) = (SubscriptionStatus::Cancelled, None);
    store(&fixture).write(&change_to(ended)).await.unwrap();
    assert_eq!(work.next_lapse().await.unwrap(), due);
    // A subscription does not lapse within a paid period, and lapses once.
    fixture
        .sql("UPDATE subscriptions SET current_period_end = now() + interval '1 hour'")
        .await;
    assert_eq!(work.next_lapse().await.unwrap(), None);
    fixture.sql("UPDATE subscriptions SET current_period_end = now()").await;
    assert_eq!(work.next_lapse().await.unwrap(), due);
    fixture.sql("UPDATE subscriptions SET lapsed_at = now()").await;
    assert_eq!(work.next_lapse().await.unwrap(), None);
}

#[tokio::test]
async fn tenant_role_updates_only_the_plan_of_its_account() {
    let fixture = DbFixture::new().await;
    let client = fixture.db.client().await;
    client.batch_execute("SET ROLE recado_tenant").await.unwrap();
    for (column, allowed) in [("plan", true), ("status", false), ("name", false), ("slug", false)] {
        let statement = format!(
            "BEGIN; SET LOCAL app.account_id = '{}'; UPDATE accounts SET {column} = 'x'; COMMIT",
            fixture.account
        );
        assert_eq!(client.batch_execute(&statement).await.is_ok(), allowed, "{column}");
        client.batch_execute("ROLLBACK").await.ok();
    }
}
