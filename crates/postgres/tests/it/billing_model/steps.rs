//! Random steps: use cases, calls of the ports, and what happens outside.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use recado_domain::billing::in_memory::InjectedFault;
use recado_domain::billing::{
    BillingType, Cents, Change, Cycle, GatewayEvent, GatewayEventData, GatewayEventKind, Initiator, Intent, Payment,
    PaymentGatewayError, PaymentSnapshot, PaymentStatus, PendingIntent, StoredEvent, Subscription, SubscriptionStatus,
    plan_limits,
};
use recado_domain::shared::{AccountId, GatewayEventId};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::state::{State, USER, accounts};
use crate::billing::{self, attempt_of};
use crate::support::event;

/// The lease of events, and the pause of other claims.
pub(super) const PAUSE: Duration = Duration::minutes(10);

/// The gateway's ids of subscriptions: the first ones that the gateway creates.
pub(super) const SUBJECTS: [&str; 4] = ["sub_1", "sub_2", "sub_3", "sub_4"];

#[derive(Clone, Debug)]
pub(super) enum Step {
    // Use cases.
    Subscribe {
        account: AccountId,
        plan: &'static str,
        billing_type: BillingType,
    },
    ChangePlan {
        account: AccountId,
        plan: &'static str,
        cycle: Cycle,
    },
    Cancel(AccountId),
    /// The gateway posts an event.
    Receive(GatewayEvent),
    /// A worker resumes with an event that it claimed earlier.
    ResumeStalled(StoredEvent),
    ApplyNext,
    Reconcile,
    Check,
    Lapse,

    // Calls of the ports.
    Reserve(Box<Subscription>),
    Write(Box<Change>),
    Remove(Box<Subscription>),
    MarkApplied(AccountId, GatewayEventId),
    Record(GatewayEventId, GatewayEvent, Duration),
    ClaimEvent(Option<&'static str>),
    Finish(GatewayEventId),
    Defer(GatewayEventId, Duration),
    Purge(Duration, i64),
    ClaimIntent,
    ClaimCheck,
    NextLapse,

    // What no store performs.
    PassTime(Duration),
    /// The next call of this name fails at the gateway.
    InjectFault(&'static str, InjectedFault),
    /// The status of a payment at the gateway changes.
    ReportPayment {
        payment: usize,
        status: PaymentStatus,
    },
    SetContacts(AccountId, i64),
    /// An administrator grants a plan or withdraws it.
    Grant(AccountId, Option<&'static str>),
}

fn account() -> impl Strategy<Value = AccountId> {
    select(accounts().to_vec())
}

fn plan() -> impl Strategy<Value = &'static str> {
    select(vec!["starter", "growth", "scale"])
}

fn new_id() -> impl Strategy<Value = Uuid> {
    any::<u32>().prop_map(|random| Uuid::from_u128(1 << 96 | u128::from(random)))
}

fn seconds(range: std::ops::Range<i64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::seconds)
}

/// A time within two hours of now.
fn time_near(now: OffsetDateTime) -> impl Strategy<Value = OffsetDateTime> {
    seconds(-7200..7200).prop_map(move |distance| now + distance)
}

fn payment_status() -> impl Strategy<Value = PaymentStatus> {
    select(vec!["PENDING", "CONFIRMED", "RECEIVED", "OVERDUE", "REFUNDED"])
        .prop_map(|name| PaymentStatus::from(name.to_owned()))
}

/// A gateway event. A number that occurred before repeats the key of an earlier event.
fn gateway_event(now: OffsetDateTime) -> impl Strategy<Value = GatewayEvent> {
    let snapshot = (
        1..5_usize,
        option::of(payment_status()),
        option::of(select(vec![9_700, 97_000])),
    );
    let payment = option::weighted(0.9, snapshot).prop_map(|snapshot| {
        snapshot.map(|(number, status, value)| PaymentSnapshot {
            id: format!("pay_{number}"),
            value: value.map(Cents),
            status,
            ..PaymentSnapshot::default()
        })
    });
    let kind = select(GatewayEventKind::ALL.to_vec());
    let subject = option::weighted(0.95, select(SUBJECTS.to_vec()));
    (0..30_u32, kind, subject, payment, option::of(time_near(now))).prop_map(
        |(number, kind, subject, payment, created_at)| GatewayEvent {
            key: format!("id:{number}"),
            event: kind.to_string(),
            subject: subject.map(str::to_owned),
            data: GatewayEventData {
                kind,
                payment,
                created_at: created_at.and_then(|at| at.replace_nanosecond(0).ok()),
            },
        },
    )
}

/// The id of a received event, or an unknown id.
fn event_id(state: &State) -> impl Strategy<Value = GatewayEventId> + use<> {
    let mut ids: Vec<GatewayEventId> = state.tables.gateway_events.iter().map(|row| row.event.id).collect();
    ids.push(GatewayEventId(Uuid::max()));
    select(ids)
}

fn intent() -> impl Strategy<Value = Intent> {
    let initiator = Initiator {
        user_id: USER,
        ip_address: Some("203.0.113.9".into()),
        support_admin: None,
    };
    select(vec![
        Intent::Subscribe {
            initiator: initiator.clone(),
        },
        Intent::Abandoned,
        Intent::Change {
            initiator: initiator.clone(),
            plan: "scale".into(),
            cycle: Cycle::Yearly,
            value: Cents(1),
        },
        Intent::Cancel { initiator },
    ])
}

fn pending(now: OffsetDateTime) -> impl Strategy<Value = PendingIntent> {
    (intent(), time_near(now), time_near(now)).prop_map(|(intent, until, check_at)| PendingIntent {
        intent,
        until,
        check_at,
    })
}

/// An attempt that no request completes or ends.
fn reserve(now: OffsetDateTime) -> impl Strategy<Value = Step> {
    (account(), new_id(), plan(), pending(now)).prop_map(move |(account, id, plan, pending)| {
        let attempt = attempt_of(USER, account);
        let leased = attempt.pending.map(|leased| PendingIntent {
            intent: leased.intent,
            ..pending
        });
        Step::Reserve(Box::new(Subscription {
            id: id.into(),
            plan: plan.to_owned(),
            pending: leased,
            created_at: now,
            updated_at: now,
            ..attempt
        }))
    })
}

/// The row, mostly in its version, sometimes in an earlier version or with another account.
fn read_row(row: Subscription) -> impl Strategy<Value = Subscription> {
    (0..6_i64, 0..20_usize).prop_map(move |(version, foreign)| Subscription {
        version: row.version - i64::from(version == 0),
        account_id: if foreign < 2 {
            accounts()[foreign]
        } else {
            row.account_id
        },
        ..row.clone()
    })
}

/// A change of the fields of a subscription.
fn edited(row: Subscription, now: OffsetDateTime) -> impl Strategy<Value = Subscription> {
    let status = prop_oneof![
        4 => Just(row.status),
        2 => select(SubscriptionStatus::ALL.to_vec()),
        1 => Just(SubscriptionStatus::Cancelled),
    ];
    let pending = prop_oneof![2 => Just(row.pending.clone()), 2 => Just(None), 2 => pending(now).prop_map(Some)];
    let subject = prop_oneof![
        3 => Just(row.gateway_subscription_id.clone()),
        1 => select(SUBJECTS.to_vec()).prop_map(|subject| Some(subject.to_owned())),
    ];
    let times = (time_near(now), option::of(time_near(now)), option::of(time_near(now)));
    let other = (
        plan(),
        any::<bool>(),
        option::of(1..32_u8),
        select(BillingType::ALL.to_vec()),
    );
    (read_row(row), status, pending, subject, times, other).prop_map(
        move |(row, status, pending, subject, times, other)| {
            let (end, lapsed_at, check_at) = times;
            let (plan, period_granted, anchor_day, billing_type) = other;
            Subscription {
                status,
                pending,
                gateway_subscription_id: subject,
                gateway_customer_id: Some(format!("cus_{}", row.account_id)),
                current_period_start: Some(now),
                current_period_end: Some(end),
                cancelled_at: (status == SubscriptionStatus::Cancelled).then_some(now),
                inactivated_at: (status == SubscriptionStatus::Inactive).then_some(now),
                lapsed_at,
                check_at,
                plan: plan.to_owned(),
                period_granted,
                anchor_day,
                // A store keeps these.
                billing_type,
                billing_email: None,
                created_at: now,
                updated_at: now,
                ..row
            }
        },
    )
}

fn payment(row: &Subscription, now: OffsetDateTime) -> impl Strategy<Value = Payment> + use<> {
    let row = row.clone();
    (new_id(), 1..5_usize, payment_status(), any::<[bool; 3]>()).prop_map(
        move |(id, number, status, [confirmed, credited, yearly])| Payment {
            id: id.into(),
            cycle: yearly.then_some(Cycle::Yearly),
            status,
            bank_slip_url: credited.then(|| "https://g.example/b".into()),
            due_date: yearly.then(|| now.date()),
            paid_at: confirmed.then_some(now),
            confirmed,
            credited,
            ..billing::payment(&row, &format!("pay_{number}"), now)
        },
    )
}

fn write(row: Subscription, state: &State) -> BoxedStrategy<Step> {
    let now = state.tables.now;
    let id = row.id.0;
    let payment = option::of(payment(&row, now));
    let applies = option::weighted(0.3, event_id(state));
    let limits = option::weighted(0.3, select(vec!["free", "starter"]));
    let edited = edited(row, now);
    (
        edited,
        option::of(plan()),
        any::<bool>(),
        applies,
        payment,
        limits,
        0..3_usize,
    )
        .prop_map(
            move |(subscription, plan, withdraws_grant, applies, payment, limits, events)| {
                Step::Write(Box::new(Change {
                    subscription,
                    account_plan: plan.map(str::to_owned),
                    withdraws_grant,
                    applies,
                    payment,
                    limits: limits.and_then(plan_limits),
                    events: (0..events).map(|_| event(id)).collect(),
                }))
            },
        )
        .boxed()
}

fn injected_fault() -> impl Strategy<Value = Step> {
    let call = select(vec![
        "customer",
        "subscribe",
        "find",
        "subscription",
        "change",
        "cancel",
        "payments",
    ]);
    let error = select(vec![
        PaymentGatewayError::NotDone("429".into()),
        PaymentGatewayError::Failed("500".into()),
        PaymentGatewayError::Unanswered("time-out".into()),
        PaymentGatewayError::Refused(vec![]),
    ]);
    (call, error, any::<bool>()).prop_map(|(call, error, has_effect)| {
        let injected = match has_effect {
            true => InjectedFault::After(error),
            false => InjectedFault::Before(error),
        };
        Step::InjectFault(call, injected)
    })
}

/// Use cases of members, of the gateway and of workers.
fn use_case(now: OffsetDateTime) -> BoxedStrategy<Step> {
    let billing_type = select(BillingType::ALL.to_vec());
    prop_oneof![
        6 => (account(), plan(), billing_type).prop_map(|(account, plan, billing_type)| Step::Subscribe {
            account,
            plan,
            billing_type,
        }),
        3 => (account(), plan(), select(Cycle::ALL.to_vec()))
            .prop_map(|(account, plan, cycle)| Step::ChangePlan { account, plan, cycle }),
        2 => account().prop_map(Step::Cancel),
        8 => gateway_event(now).prop_map(Step::Receive),
        3 => Just(Step::ApplyNext),
        3 => Just(Step::Reconcile),
        3 => Just(Step::Check),
        2 => Just(Step::Lapse),
    ]
    .boxed()
}

/// Calls of the ports of events and of scheduled work.
fn queue_call(state: &State) -> BoxedStrategy<Step> {
    let lease = prop_oneof![1 => Just(Duration::ZERO), 3 => Just(PAUSE)];
    let event = gateway_event(state.tables.now);
    let delay = prop_oneof![Just(Duration::ZERO), seconds(1..3600)];
    let age = prop_oneof![Just(Duration::ZERO), seconds(0..7200)];
    prop_oneof![
        6 => (new_id(), event, lease).prop_map(|(id, event, lease)| Step::Record(id.into(), event, lease)),
        4 => option::of(select(SUBJECTS.to_vec())).prop_map(Step::ClaimEvent),
        2 => event_id(state).prop_map(Step::Finish),
        3 => (event_id(state), delay).prop_map(|(event, delay)| Step::Defer(event, delay)),
        1 => (account(), event_id(state)).prop_map(|(account, event)| Step::MarkApplied(account, event)),
        1 => (age, 1..4_i64).prop_map(|(age, limit)| Step::Purge(age, limit)),
        2 => Just(Step::ClaimIntent),
        2 => Just(Step::ClaimCheck),
        1 => Just(Step::NextLapse),
    ]
    .boxed()
}

/// What no store performs.
fn outside() -> BoxedStrategy<Step> {
    let times = select(vec![
        Duration::minutes(1),
        Duration::hours(1),
        Duration::hours(25),
        Duration::days(32),
    ]);
    let granted = option::weighted(0.8, select(vec!["growth", "scale"]));
    let contacts = select(vec![0, 600, 30_000]);
    prop_oneof![
        4 => times.prop_map(Step::PassTime),
        3 => injected_fault(),
        3 => (0..4_usize, payment_status()).prop_map(|(payment, status)| Step::ReportPayment { payment, status }),
        2 => (account(), contacts).prop_map(|(account, contacts)| Step::SetContacts(account, contacts)),
        3 => (account(), granted).prop_map(|(account, plan)| Step::Grant(account, plan)),
    ]
    .boxed()
}

pub(super) fn any_step(state: &State) -> BoxedStrategy<Step> {
    let now = state.tables.now;
    let rows: Vec<Subscription> = state.tables.subscriptions().cloned().collect();
    let mut steps = vec![
        (20, use_case(now)),
        (16, queue_call(state)),
        (12, outside()),
        (4, reserve(now).boxed()),
    ];
    if !rows.is_empty() {
        let with_state = state.clone();
        let writes = select(rows.clone()).prop_flat_map(move |row| write(row, &with_state));
        steps.push((18, writes.boxed()));
        let attempts: Vec<Subscription> = rows.iter().filter(|row| row.is_attempt()).cloned().collect();
        let removed = if attempts.is_empty() { rows } else { attempts };
        let removes = select(removed).prop_flat_map(read_row);
        steps.push((4, removes.prop_map(|row| Step::Remove(Box::new(row))).boxed()));
    }
    let events: Vec<StoredEvent> = state
        .tables
        .gateway_events
        .iter()
        .map(|row| row.event.clone())
        .collect();
    if !events.is_empty() {
        steps.push((4, select(events).prop_map(Step::ResumeStalled).boxed()));
    }
    proptest::strategy::Union::new_weighted(steps).boxed()
}
