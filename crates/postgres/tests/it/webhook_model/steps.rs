//! Random steps of the model: those of members, of delivery workers that die, stall and lose their lease, of other
//! contexts that emit events, and of the clock.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use recado_domain::shared::WebhookKind;
use recado_domain::webhooks::{Direction, LogStatus};

use super::state::{Claimed, State};
use crate::histories::index;

/// The account of each endpoint.
pub(super) const ENDPOINTS: [usize; 4] = [0, 0, 0, 1];

pub(super) const ACCOUNTS: usize = 2;

pub(super) const WORKERS: usize = 2;

/// What the endpoints subscribe to.
pub(super) const SUBSCRIPTIONS: [&[&str]; 4] = [
    &["*"],
    &["message.sent"],
    &["message.read", "message.sent"],
    &["contact.created"],
];

/// A new endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEndpoint {
    pub(super) endpoint: usize,
    pub(super) subscription: usize,
    pub(super) direction: Direction,
    pub(super) is_active: bool,
}

/// A member's change of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Activity(bool),
    Subscription(usize),
    /// The old secret signs for this many hours more.
    Secret(i64),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttemptResult {
    Delivered,
    /// The receiver responded with 500. The next attempt follows after this many hours.
    Refused(i64),
    /// There was no response. The next attempt follows after this many hours.
    TimedOut(i64),
    /// The last attempt of the schedule failed.
    Exhausted,
    Gone,
}

/// The health update of an endpoint that a worker writes with its results.
#[derive(Clone, Copy, Debug)]
pub(super) enum HealthStep {
    Unchanged,
    Recovered,
    Failing,
    DisabledFailing,
    DisabledGone,
}

/// Results of the first claims that a worker holds, and a health update of each endpoint among them, in their order.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) worker: usize,
    pub(super) results: Vec<AttemptResult>,
    pub(super) health: Vec<HealthStep>,
}

#[derive(Clone, Debug)]
pub(super) struct LogFilter {
    pub(super) account: usize,
    pub(super) direction: Option<Direction>,
    pub(super) status: Option<LogStatus>,
    pub(super) endpoint: Option<usize>,
    pub(super) kind: Option<WebhookKind>,
    pub(super) limit: i64,
}

/// Events are numbered: a step with the number `n` creates the events from `10 n`.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create(NewEndpoint),
    Update {
        endpoint: usize,
        change: Change,
        /// The member read the endpoint before its latest change.
        is_stale: bool,
    },
    Delete(usize),
    /// The store of another context appends webhook events.
    Emit {
        account: usize,
        kind: WebhookKind,
        count: usize,
    },
    Relay,
    Claim {
        worker: usize,
        endpoints: Vec<(usize, i64)>,
        others: i64,
        limit: i64,
    },
    Record(Record),
    /// A worker repeats its last write, because it received no response.
    RecordAgain(usize),
    /// A worker releases its first claims without an attempt.
    Release(usize, usize),
    /// A worker dies with its claims.
    Die(usize),
    Ping(usize),
    Redeliver {
        endpoint: usize,
        event: usize,
    },
    /// Recovers deliveries that failed in the last hours.
    Recover {
        endpoint: usize,
        hours: i64,
        slice: i64,
    },
    /// Purges abandoned deliveries of events that a step up to this one created.
    Purge {
        step: usize,
        limit: i64,
    },
    /// Retention drops the events that a step up to this one created.
    DropEvents(usize),
    Suspend {
        account: usize,
        suspended: bool,
    },
    PassTime(i64),
    /// A call of an inbound endpoint, with one of a few message ids.
    Call {
        endpoint: usize,
        message: usize,
        response_status: i32,
    },
    ReadFeed {
        account: usize,
        after: Option<usize>,
        kind: Option<WebhookKind>,
        limit: i64,
    },
    ReadLogs(LogFilter),
    ReadEndpoints(usize),
}

fn account() -> impl Strategy<Value = usize> + Clone {
    0..ACCOUNTS
}

fn endpoint() -> impl Strategy<Value = usize> + Clone {
    0..ENDPOINTS.len()
}

fn worker() -> impl Strategy<Value = usize> {
    0..WORKERS
}

fn hours() -> impl Strategy<Value = i64> {
    0..4_i64
}

/// Mostly of the kinds that endpoints subscribe to.
fn kind() -> impl Strategy<Value = WebhookKind> + Clone {
    select(vec![
        WebhookKind::MessageSent,
        WebhookKind::MessageSent,
        WebhookKind::MessageRead,
        WebhookKind::ContactCreated,
        WebhookKind::OrderRecorded,
    ])
}

/// Mostly one of the preferred values, if there is one.
fn mostly<T: Clone + std::fmt::Debug + 'static>(preferred: Vec<T>, any: BoxedStrategy<T>) -> BoxedStrategy<T> {
    match preferred.is_empty() {
        true => any,
        false => prop_oneof![6 => select(preferred), 1 => any].boxed(),
    }
}

/// Mostly an endpoint that exists.
fn existing(state: &State) -> BoxedStrategy<usize> {
    let existing: Vec<usize> = (0..ENDPOINTS.len()).filter(|at| state.has_endpoint(*at)).collect();
    mostly(existing, endpoint().boxed())
}

/// Mostly a worker that holds claims.
fn holder(state: &State) -> BoxedStrategy<usize> {
    let holders: Vec<usize> = (0..WORKERS).filter(|at| !state.held[*at].is_empty()).collect();
    mostly(holders, worker().boxed())
}

/// An event, which may be purged or of another account.
fn event(state: &State) -> BoxedStrategy<usize> {
    let events: Vec<usize> = state.ids.events.keys().copied().collect();
    match events.is_empty() {
        true => Just(0).boxed(),
        false => select(events).boxed(),
    }
}

fn earlier_step(state: &State) -> BoxedStrategy<usize> {
    (0..=state.step).boxed()
}

fn create(state: &State) -> Option<BoxedStrategy<Step>> {
    let missing: Vec<usize> = (0..ENDPOINTS.len()).filter(|at| !state.has_endpoint(*at)).collect();
    let direction = prop_oneof![4 => Just(Direction::Outbound), 1 => Just(Direction::Inbound)];
    let endpoint = |(endpoint, subscription, direction, is_active)| {
        Step::Create(NewEndpoint {
            endpoint,
            subscription,
            direction,
            is_active,
        })
    };
    let is_active = prop::bool::weighted(0.8);
    let fields = || (select(missing.clone()), 0..SUBSCRIPTIONS.len(), direction, is_active);
    (!missing.is_empty()).then(|| fields().prop_map(endpoint).boxed())
}

fn update(state: &State) -> BoxedStrategy<Step> {
    let change = prop_oneof![
        3 => Just(Change::Activity(true)),
        1 => Just(Change::Activity(false)),
        1 => (0..SUBSCRIPTIONS.len()).prop_map(Change::Subscription),
        1 => hours().prop_map(Change::Secret),
    ];
    (existing(state), change, prop::bool::weighted(0.15))
        .prop_map(|(endpoint, change, is_stale)| Step::Update {
            endpoint,
            change,
            is_stale,
        })
        .boxed()
}

fn emit() -> BoxedStrategy<Step> {
    (account(), kind(), 1..4_usize)
        .prop_map(|(account, kind, count)| Step::Emit { account, kind, count })
        .boxed()
}

fn claim() -> BoxedStrategy<Step> {
    let all: Vec<usize> = (0..ENDPOINTS.len()).collect();
    let listed = subsequence(all, 0..=1).prop_flat_map(|endpoints| {
        let count = endpoints.len();
        prop::collection::vec(0..4_i64, count)
            .prop_map(move |limits| endpoints.iter().copied().zip(limits).collect::<Vec<_>>())
    });
    let others = prop_oneof![1 => Just(0), 6 => 1..4_i64];
    (worker(), listed, others, prop_oneof![1..4_i64, Just(100_i64)])
        .prop_map(|(worker, endpoints, others, limit)| Step::Claim {
            worker,
            endpoints,
            others,
            limit,
        })
        .boxed()
}

fn record(state: &State) -> BoxedStrategy<Step> {
    let result = prop_oneof![
        3 => Just(AttemptResult::Delivered),
        2 => hours().prop_map(AttemptResult::Refused),
        1 => hours().prop_map(AttemptResult::TimedOut),
        3 => Just(AttemptResult::Exhausted),
        1 => Just(AttemptResult::Gone),
    ];
    let health = prop_oneof![
        4 => Just(HealthStep::Unchanged),
        2 => Just(HealthStep::Recovered),
        5 => Just(HealthStep::Failing),
        1 => Just(HealthStep::DisabledFailing),
        1 => Just(HealthStep::DisabledGone),
    ];
    let health = prop::collection::vec(health, ENDPOINTS.len());
    let state = state.clone();
    holder(&state)
        .prop_flat_map(move |worker| {
            let held = state.held[worker].len();
            let results = prop::collection::vec(result.clone(), 0..=held);
            (results, health.clone()).prop_map(move |(results, health)| {
                Step::Record(Record {
                    worker,
                    results,
                    health,
                })
            })
        })
        .boxed()
}

/// The endpoint and event of a delivery, often of one that succeeded or that a worker holds.
fn delivery(state: &State) -> BoxedStrategy<(usize, usize)> {
    let name = |claimed: &Claimed| (claimed.endpoint, claimed.event);
    let succeeded = state.recorded_claims().filter(|claimed| state.row(claimed).is_none());
    let held = state.held.iter().flatten();
    let any_delivery = (existing(state), event(state)).boxed();
    prop_oneof![
        4 => mostly(succeeded.map(name).collect(), any_delivery.clone()),
        1 => mostly(held.map(name).collect(), any_delivery.clone()),
        1 => any_delivery,
    ]
    .boxed()
}

/// Mostly an endpoint with deliveries that failed or were dropped.
fn failing(state: &State) -> BoxedStrategy<usize> {
    let rows = state.tables.deliveries.iter();
    let failed = rows.filter(|(_, row)| row.failed_at.is_some() && !row.leased);
    mostly(
        failed.map(|(key, _)| index(key.endpoint_id.0)).collect(),
        endpoint().boxed(),
    )
}

/// Deliveries that members request.
fn request(state: &State) -> BoxedStrategy<Step> {
    prop_oneof![
        1 => existing(state).prop_map(Step::Ping),
        5 => delivery(state).prop_map(|(endpoint, event)| Step::Redeliver { endpoint, event }),
        3 => (failing(state), hours(), 1..4_i64).prop_map(|(endpoint, hours, slice)| Step::Recover {
            endpoint,
            hours,
            slice
        }),
    ]
    .boxed()
}

/// Steps of retention, administrators and the clock.
fn external(state: &State) -> BoxedStrategy<Step> {
    prop_oneof![
        2 => (earlier_step(state), prop_oneof![1..3_i64, Just(100_i64)]).prop_map(|(step, limit)| Step::Purge { step, limit }),
        1 => earlier_step(state).prop_map(Step::DropEvents),
        1 => (account(), prop::bool::weighted(0.2)).prop_map(|(account, suspended)| Step::Suspend { account, suspended }),
        4 => (1..4_i64).prop_map(Step::PassTime),
    ]
    .boxed()
}

fn read(state: &State) -> BoxedStrategy<Step> {
    let after = prop::option::of(event(state));
    let kind = prop::option::weighted(0.3, kind());
    let feed = (account(), after, kind.clone(), 1..5_i64).prop_map(|(account, after, kind, limit)| Step::ReadFeed {
        account,
        after,
        kind,
        limit,
    });
    let direction = prop::option::weighted(0.2, select(vec![Direction::Inbound, Direction::Outbound]));
    let status = prop::option::weighted(0.4, select(vec![LogStatus::Success, LogStatus::Failed]));
    let endpoint = prop::option::weighted(0.3, endpoint());
    let logs = (account(), direction, status, endpoint, kind, 1..9_i64);
    let logs = logs.prop_map(|(account, direction, status, endpoint, kind, limit)| {
        Step::ReadLogs(LogFilter {
            account,
            direction,
            status,
            endpoint,
            kind,
            limit,
        })
    });
    prop_oneof![3 => feed, 3 => logs, 1 => account().prop_map(Step::ReadEndpoints)].boxed()
}

/// A call, mostly of an inbound endpoint.
fn call(state: &State) -> BoxedStrategy<Step> {
    let endpoints = state.tables.endpoints.values().map(|row| &row.stored.webhook);
    let inbound = endpoints.filter(|webhook| webhook.direction == Direction::Inbound);
    let inbound: Vec<usize> = inbound.map(|webhook| index(webhook.id.0)).collect();
    (
        mostly(inbound, endpoint().boxed()),
        0..3_usize,
        select(vec![200, 200, 422]),
    )
        .prop_map(|(endpoint, message, response_status)| Step::Call {
            endpoint,
            message,
            response_status,
        })
        .boxed()
}

/// Steps of workers, most of them by a worker that can do something.
fn work(state: &State) -> BoxedStrategy<Step> {
    let weight = |is_useful: bool, weight: u32| if is_useful { weight } else { 1 };
    let holds = state.held.iter().any(|held| !held.is_empty());
    let recorded: Vec<usize> = (0..WORKERS).filter(|at| state.recorded[*at].is_some()).collect();
    let is_leased_again = |claimed| state.row(claimed).is_some_and(|row| row.leased);
    let is_leased_again = state.recorded_claims().any(is_leased_again);
    prop_oneof![
        weight(state.has_due(), 10) => claim(),
        weight(holds, 10) => record(state),
        weight(is_leased_again, 30) => mostly(recorded, worker().boxed()).prop_map(Step::RecordAgain),
        weight(holds, 2) => (holder(state), 1..3_usize).prop_map(|(worker, count)| Step::Release(worker, count)),
        1 => worker().prop_map(Step::Die),
    ]
    .boxed()
}

pub(super) fn any_step(state: &State) -> BoxedStrategy<Step> {
    let create = create(state).unwrap_or_else(|| update(state));
    let has_events = !state.tables.outbox.is_empty();
    let has_succeeded = state.recorded_claims().any(|claimed| state.row(claimed).is_none());
    prop_oneof![
        3 => create,
        4 => update(state),
        1 => existing(state).prop_map(Step::Delete),
        6 => emit(),
        if has_events { 8 } else { 1 } => Just(Step::Relay),
        25 => work(state),
        if has_succeeded { 20 } else { 8 } => request(state),
        8 => external(state),
        4 => read(state),
        2 => call(state),
    ]
    .boxed()
}
