//! The state of a history: the in-memory store, and the claims that its workers hold.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use recado_domain::shared::{AccountId, Event, InsertOutcome, RowOutcome, UpdateOutcome, WebhookEventId};
use recado_domain::webhooks::in_memory::{
    InMemoryDelivery, InMemoryDeliveryState, InMemoryEndpoint, InMemoryWebhooks, WebhookTables,
};
use recado_domain::webhooks::{ClaimRequest, DeliveryKey, Direction, Health};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::callers::{Caller, Ids, event_number, event_time, new_endpoint, time_after};
use super::choice::ChoosingQueue;
use super::steps::{ACCOUNTS, AttemptResult, ENDPOINTS, HealthStep, NewEndpoint, Record, Step, WORKERS};
use crate::histories::{index, number};
use crate::support::NOW;

/// A claim of a delivery that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) event: usize,
    pub(super) endpoint: usize,
    /// The position of its number in `Ids::claims`.
    pub(super) claim: usize,
    pub(super) attempts: u32,
    pub(super) name: String,
    pub(super) url: String,
    /// The secrets that sign.
    pub(super) secrets: (Vec<u8>, Option<Vec<u8>>),
    pub(super) health: Health,
    pub(super) kind: String,
    pub(super) occurred_at: OffsetDateTime,
}

/// What a worker wrote in a step. It repeats it with the same logs.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) step: usize,
    pub(super) results: Vec<(Claimed, AttemptResult)>,
    pub(super) health: Vec<HealthStep>,
}

impl Recorded {
    pub(super) fn new(before: &State, record: &Record) -> Self {
        let held = before.held[record.worker].iter().cloned();
        Self {
            step: before.step,
            results: held.zip(record.results.iter().copied()).collect(),
            health: record.health.clone(),
        }
    }
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    Nothing,
    Insert(InsertOutcome),
    Update(UpdateOutcome<()>),
    Row(RowOutcome),
    Claimed(Vec<Claimed>),
    Recovered(i64),
    Purged(usize),
    /// Whether the inbound endpoint has already accepted the call. None: there is no such endpoint.
    Called(Option<bool>),
    Feed {
        events: Vec<usize>,
        next: Option<usize>,
        has_more: bool,
    },
    Logs(Vec<String>),
    /// The number of an account's endpoints, and its newest ones.
    Endpoints(i64, Vec<usize>),
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) tables: WebhookTables,
    pub(super) ids: Ids,
    /// The claims in the memory of each worker, which may be lost.
    pub(super) held: [Vec<Claimed>; WORKERS],
    /// The last write of each worker.
    pub(super) recorded: [Option<Recorded>; WORKERS],
    /// The number of steps so far.
    pub(super) step: usize,
    /// The outcome of the last step.
    pub(super) outcome: StepOutcome,
}

/// The first endpoints of each history.
pub(super) fn first_endpoints() -> [NewEndpoint; 2] {
    [0, ENDPOINTS.len() - 1].map(|endpoint| NewEndpoint {
        endpoint,
        subscription: 0,
        direction: Direction::Outbound,
        is_active: true,
    })
}

/// The webhook events that another context appends in a step.
pub(super) fn emitted(state: &State, step: &Step) -> Option<(usize, Event)> {
    let Step::Emit { account, kind, count } = step else {
        return None;
    };
    let items = (0..*count).map(|at| json!({ "n": state.step * 10 + at })).collect();
    Some((*account, Event::webhook(*kind, items)))
}

fn account(at: usize) -> AccountId {
    number(at).into()
}

/// Whole hours between two times. The clock of the database goes on during a history.
fn hours(time: Duration) -> i64 {
    (time + Duration::minutes(30)).whole_seconds().div_euclid(3600)
}

/// The text of a value, or `-`.
fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl State {
    pub(super) fn new() -> Self {
        let mut tables = WebhookTables::new(NOW);
        for endpoint in first_endpoints() {
            let webhook = new_endpoint(endpoint, NOW);
            tables.insert(account(ENDPOINTS[endpoint.endpoint]), &webhook, 1, &[]);
        }
        Self {
            tables,
            ids: Ids::default(),
            held: Default::default(),
            recorded: Default::default(),
            step: 0,
            outcome: StepOutcome::Nothing,
        }
    }

    pub(super) fn has_endpoint(&self, at: usize) -> bool {
        self.tables.endpoints.contains_key(&number(at).into())
    }

    /// Whether a claim finds deliveries.
    pub(super) fn has_due(&self) -> bool {
        let request = ClaimRequest {
            endpoints: vec![],
            others: 1,
            limit: 1,
        };
        !self.tables.claimable(&request).is_empty()
    }

    /// The claims of each worker's last write.
    pub(super) fn recorded_claims(&self) -> impl Iterator<Item = &Claimed> {
        let recorded = self.recorded.iter().flatten();
        recorded.flat_map(|recorded| recorded.results.iter().map(|(claimed, _)| claimed))
    }

    /// The row of a claimed delivery. None: it succeeded, or its endpoint or event was deleted.
    pub(super) fn row(&self, claimed: &Claimed) -> Option<&InMemoryDelivery> {
        self.tables.deliveries.get(&self.key(claimed.event, claimed.endpoint))
    }

    /// The key of a delivery in the in-memory store.
    pub(super) fn key(&self, event: usize, endpoint: usize) -> DeliveryKey {
        DeliveryKey {
            account_id: account(ENDPOINTS[endpoint]),
            event_id: self.ids.events[&event],
            endpoint_id: number(endpoint).into(),
        }
    }

    /// The state after the step. `choice`: the deliveries that a claim or purge chooses.
    pub(super) fn after(&self, step: &Step, choice: Option<&BTreeSet<DeliveryKey>>) -> Self {
        let mut state = self.clone();
        // Each step has a time of its own: the order of the queue depends on it.
        state.tables.now += Duration::MILLISECOND;
        state.change_tables(step);
        let now = state.tables.now;
        let store = InMemoryWebhooks::new(state.tables);
        let queue = ChoosingQueue { store: &store, choice };
        let mut caller = Caller {
            endpoints: &store,
            logs: &store,
            inbound: &store,
            queue: &queue,
            accounts: [0, 1].map(account),
            ids: &mut state.ids,
            now,
            before: self,
        };
        state.outcome = caller.run(step).now_or_never().expect("nothing waits");
        state.tables = store.tables().clone();
        state.date_events();
        state.update_held(self, step);
        state.step += 1;
        state
    }

    /// The changes that no port performs.
    fn change_tables(&mut self, step: &Step) {
        if let Some((at, event)) = emitted(self, step) {
            self.tables.append(account(at), &[event]);
        }
        match step {
            Step::Relay => self.tables.relay(),
            Step::DropEvents(step) => {
                let cutoff = time_after(*step);
                self.tables.events.retain(|_, row| row.event.timestamp > cutoff);
            }
            Step::Suspend { account: at, suspended } => {
                let suspended_accounts = &mut self.tables.suspended_accounts;
                match suspended {
                    true => suspended_accounts.insert(account(*at)),
                    false => suspended_accounts.remove(&account(*at)),
                };
            }
            Step::PassTime(hours) => self.tables.now += Duration::hours(*hours),
            _ => {}
        }
    }

    /// Gives the events of the step its time, and numbers those that were relayed.
    fn date_events(&mut self) {
        let at = event_time(self.step);
        let new_events = self.tables.outbox.iter_mut().filter(|row| row.created_at >= NOW);
        new_events.for_each(|row| row.created_at = at);
        let events = self.tables.events.values();
        let events = events.map(|row| (event_number(&row.event.data), row.event.id));
        self.ids.events.extend(events);
    }

    fn update_held(&mut self, before: &Self, step: &Step) {
        match (step, &self.outcome) {
            (Step::Claim { worker, .. }, StepOutcome::Claimed(claimed)) => {
                self.held[*worker].extend(claimed.iter().cloned());
            }
            (Step::Record(record), _) => {
                let recorded = Recorded::new(before, record);
                self.held[record.worker].drain(..recorded.results.len());
                self.recorded[record.worker] = Some(recorded);
            }
            (Step::Release(worker, count), _) => {
                let held = &mut self.held[*worker];
                held.drain(..held.len().min(*count));
            }
            (Step::Die(worker), _) => {
                self.held[*worker].clear();
                self.recorded[*worker] = None;
            }
            _ => {}
        }
    }

    /// The outbox, in its order.
    pub(super) fn outbox(&self) -> Vec<(usize, Value)> {
        let rows = self.tables.outbox.iter();
        rows.map(|row| (usize::from(row.account_id != account(0)), json!(row.event)))
            .collect()
    }

    /// The expected rows of the database, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = self.endpoint_lines();
        lines.extend(self.delivery_lines());
        lines.extend(self.event_lines());
        lines.extend(self.log_lines());
        let inbox = self.tables.inbox.iter();
        lines.extend(inbox.map(|(endpoint, message)| format!("inbox {endpoint} {message}")));
        lines.sort_unstable();
        lines
    }

    /// Whole hours from now until then, or `-`.
    fn hours_until(&self, at: Option<OffsetDateTime>) -> String {
        or_dash(at.map(|at| hours(at - self.tables.now)))
    }

    /// The name of an event: its number.
    fn event(&self, id: WebhookEventId) -> usize {
        self.ids.event_number(id)
    }

    fn endpoint_lines(&self) -> Vec<String> {
        let rows = self.tables.endpoints.values();
        let line = |row: &InMemoryEndpoint| {
            let (webhook, secrets) = (&row.stored.webhook, &row.stored.secrets);
            let previous = secrets.previous.as_ref();
            let (since, last) = match row.health {
                Health::Well => (None, None),
                Health::Failing { since, last } => (Some(since.unix_timestamp()), Some(last.unix_timestamp())),
            };
            format!(
                "endpoint {} {} {} {} v{} active={} events={} secret={} {} until={} failing={} {} disabled={} {} \
                 created={} updated={}",
                webhook.id,
                usize::from(row.account_id != account(0)),
                webhook.name,
                webhook.direction,
                row.stored.version,
                webhook.is_active,
                webhook.events.join(","),
                secrets.current.0[0],
                or_dash(previous.map(|(secret, _)| secret.0[0])),
                self.hours_until(previous.map(|(_, until)| *until)),
                or_dash(since),
                or_dash(last),
                self.hours_until(webhook.disabled_at),
                or_dash(webhook.disabled_reason),
                self.hours_until(Some(webhook.created_at)),
                self.hours_until(Some(webhook.updated_at)),
            )
        };
        rows.map(line).collect()
    }

    /// The deliveries, with their order in the queue of their endpoint.
    fn delivery_lines(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.tables.deliveries.iter().collect();
        rows.sort_unstable_by_key(|(key, row)| (row.next_attempt_at, key.event_id));
        let mut counts = [0; ENDPOINTS.len()];
        rows.into_iter()
            .map(|(key, row)| {
                let rank = &mut counts[index(key.endpoint_id.0)];
                *rank += 1;
                let state = match row.state {
                    InMemoryDeliveryState::Waiting => "waiting",
                    InMemoryDeliveryState::Failed => "failed",
                    InMemoryDeliveryState::Dropped => "dropped",
                };
                format!(
                    "delivery {} {} {} {state} attempts={} leased={} next={} failed={}",
                    key.endpoint_id,
                    rank,
                    self.event(key.event_id),
                    row.attempts,
                    row.leased,
                    self.hours_until(Some(row.next_attempt_at)),
                    self.hours_until(row.failed_at),
                )
            })
            .collect()
    }

    /// The events, with their order in the feed of their account.
    fn event_lines(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.tables.events.values().collect();
        rows.sort_unstable_by_key(|row| row.seq);
        let mut counts = [0; ACCOUNTS];
        rows.into_iter()
            .map(|row| {
                let at = usize::from(row.event.account_id != account(0));
                let rank = row.seq.map(|_| {
                    counts[at] += 1;
                    counts[at]
                });
                let occurred = row.event.timestamp.unix_timestamp();
                let (event, kind) = (self.event(row.event.id), &row.event.kind);
                format!("event {event} {at} {} {kind} {occurred}", or_dash(rank))
            })
            .collect()
    }

    fn log_lines(&self) -> Vec<String> {
        let rows = self.tables.logs.values();
        rows.map(|row| {
            let log = &row.log;
            let event = or_dash(row.event_id.map(|id| self.event(id)));
            let message_id = match row.event_id {
                Some(_) => event.clone(),
                None => log.message_id.clone(),
            };
            format!(
                "log {} {} {} {} {} {message_id} {event} status={} attempt={} ms={} error={} next={} created={}",
                log.id,
                usize::from(row.account_id != account(0)),
                log.endpoint_id,
                log.direction,
                log.event_type,
                or_dash(log.response_status),
                log.attempt,
                or_dash(log.duration_ms),
                or_dash(log.error.as_ref()),
                self.hours_until(log.next_attempt_at),
                self.hours_until(Some(log.created_at)),
            )
        })
        .collect()
    }
}
