//! Calls the ports of a store as the steps say, and translates their return values into outcomes.

use std::collections::{BTreeMap, BTreeSet};

use recado_domain::shared::{
    AccountId, Audit, AuditAction, Event, NotificationDraft, NotificationKind, PageQuery, Sealed, WebhookEventId,
    WebhookId, WebhookKind,
};
use recado_domain::webhooks::{
    Attempt, ClaimRequest, ClaimedDelivery, DeliveryKey, DeliveryQueue, DeliveryState, Direction, DisabledReason,
    FeedQuery, Health, HealthUpdate, InboundLogEntry, InboundStore, LogQuery, SealedSecrets, StoredWebhook, Webhook,
    WebhookEvent, WebhookLogStore, WebhookStore,
};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::state::{Claimed, Recorded, State, StepOutcome};
use super::steps::{AttemptResult, Change, ENDPOINTS, HealthStep, LogFilter, NewEndpoint, SUBSCRIPTIONS, Step};
use crate::histories::{index, number};
use crate::support::NOW;

/// The lease of a claim. Time passes by whole hours.
const LEASE: Duration = Duration::hours(2);

/// The most endpoints of an account.
const MAX_ENDPOINTS: i64 = 2;

/// The number of an event.
pub(super) fn event_number(data: &serde_json::Value) -> usize {
    usize::try_from(data["n"].as_u64().unwrap()).unwrap()
}

/// The ids that a store assigned.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    /// The id of each event, which may be purged since.
    pub(super) events: BTreeMap<usize, WebhookEventId>,
    /// The claim numbers, in the order of the claims.
    pub(super) claims: Vec<i64>,
}

impl Ids {
    pub(super) fn event_number(&self, id: WebhookEventId) -> usize {
        let mut events = self.events.iter();
        events.find(|(_, event)| **event == id).map(|(n, _)| *n).unwrap()
    }
}

/// The time of the events that a step creates, in all stores.
pub(super) fn event_time(step: usize) -> OffsetDateTime {
    NOW - Duration::days(10) + Duration::hours(i64::try_from(step).unwrap())
}

/// A time after the events of a step and before those of the next one.
pub(super) fn time_after(step: usize) -> OffsetDateTime {
    event_time(step) + Duration::minutes(30)
}

/// A caller of one store.
pub(super) struct Caller<'a> {
    pub(super) endpoints: &'a dyn WebhookStore,
    pub(super) logs: &'a dyn WebhookLogStore,
    pub(super) inbound: &'a dyn InboundStore,
    pub(super) queue: &'a dyn DeliveryQueue,
    pub(super) accounts: [AccountId; 2],
    pub(super) ids: &'a mut Ids,
    /// The time by the store's clock.
    pub(super) now: OffsetDateTime,
    /// The state before the step.
    pub(super) before: &'a State,
}

/// The events that a step appends with its change.
fn events_of(step: usize) -> Vec<Event> {
    vec![
        audit(step),
        Event::webhook(WebhookKind::MessageSent, vec![json!({ "n": step * 10 })]),
        Event::webhook(WebhookKind::MessageSent, vec![]),
    ]
}

fn audit(step: usize) -> Event {
    Event::Audit(Audit {
        user_id: None,
        action: AuditAction::Update,
        entity_type: "webhook".into(),
        entity_id: None,
        changes: Some(json!({ "step": step })),
        ip_address: None,
        support_admin: None,
    })
}

/// An endpoint as a member creates it.
pub(super) fn new_endpoint(new: NewEndpoint, now: OffsetDateTime) -> StoredWebhook {
    StoredWebhook {
        webhook: Webhook {
            id: number(new.endpoint).into(),
            name: format!("endpoint {}", new.endpoint),
            url: Some("https://e.example".into()),
            events: SUBSCRIPTIONS[new.subscription]
                .iter()
                .map(|kind| (*kind).to_owned())
                .collect(),
            direction: new.direction,
            is_active: new.is_active,
            secret_hint: "beef".into(),
            disabled_at: None,
            disabled_reason: None,
            created_at: now,
            updated_at: now,
        },
        secrets: SealedSecrets {
            current: Sealed(vec![1]),
            previous: None,
        },
        version: 1,
    }
}

impl Caller<'_> {
    /// Executes the step. Does nothing for a step that no port performs.
    pub(super) async fn run(&mut self, step: &Step) -> StepOutcome {
        let events = events_of(self.before.step);
        match step {
            Step::Create(new) => {
                let (account, webhook) = (self.account_of(new.endpoint), new_endpoint(*new, self.now));
                let inserted = self.endpoints.insert(account, &webhook, MAX_ENDPOINTS, &events).await;
                StepOutcome::Insert(inserted.unwrap())
            }
            Step::Update {
                endpoint,
                change,
                is_stale,
            } => self.update(*endpoint, *change, *is_stale).await,
            Step::Delete(endpoint) => {
                let (account, id) = (self.account_of(*endpoint), number(*endpoint).into());
                StepOutcome::Row(self.endpoints.delete(account, id, &events).await.unwrap())
            }
            Step::Claim {
                worker: _,
                endpoints,
                others,
                limit,
            } => self.claim(endpoints, *others, *limit).await,
            Step::Record(record) => {
                let recorded = Recorded::new(self.before, record);
                self.record(&recorded).await
            }
            Step::RecordAgain(worker) => match self.before.recorded[*worker].clone() {
                Some(recorded) => self.record(&recorded).await,
                None => StepOutcome::Nothing,
            },
            Step::Release(worker, count) => {
                let released = self.before.held[*worker].iter().take(*count);
                let released: Vec<_> = released
                    .map(|held| (self.key(held), self.ids.claims[held.claim]))
                    .collect();
                self.queue.release(&released).await.unwrap();
                StepOutcome::Nothing
            }
            Step::Purge { step, limit } => {
                let older_than = self.now - time_after(*step);
                StepOutcome::Purged(self.queue.sweep(older_than, *limit).await.unwrap())
            }
            Step::Call {
                endpoint,
                message,
                response_status,
            } => self.call(*endpoint, *message, *response_status).await,
            _ => self.request_or_read(step).await,
        }
    }

    async fn request_or_read(&self, step: &Step) -> StepOutcome {
        match step {
            Step::Ping(endpoint) => self.ping(*endpoint).await,
            Step::Redeliver { endpoint, event } => match self.ids.events.get(event) {
                Some(event) => {
                    let (account, id) = (self.account_of(*endpoint), number(*endpoint).into());
                    StepOutcome::Row(self.logs.redeliver(account, id, *event).await.unwrap())
                }
                None => StepOutcome::Nothing,
            },
            Step::Recover { endpoint, hours, slice } => {
                let since = self.now - Duration::hours(*hours) - Duration::minutes(30);
                let (account, id) = (self.account_of(*endpoint), number(*endpoint).into());
                let recovered = self.logs.recover(account, id, since, *slice).await;
                StepOutcome::Recovered(recovered.unwrap())
            }
            Step::ReadFeed {
                account,
                after,
                kind,
                limit,
            } => {
                let query = FeedQuery {
                    after: after.and_then(|event| self.ids.events.get(&event).copied()),
                    kind: kind.map(|kind| kind.as_str().to_owned()),
                    limit: *limit,
                };
                self.read_feed(*account, &query).await
            }
            Step::ReadLogs(filter) => self.read_logs(filter).await,
            Step::ReadEndpoints(account) => {
                let query = PageQuery::new(Some(1), Some(2), 2, 2);
                let page = self.endpoints.page(self.accounts[*account], query).await.unwrap();
                StepOutcome::Endpoints(
                    page.total,
                    page.data.iter().map(|webhook| index(webhook.id.0)).collect(),
                )
            }
            _ => StepOutcome::Nothing,
        }
    }

    fn account_of(&self, endpoint: usize) -> AccountId {
        self.accounts[ENDPOINTS[endpoint]]
    }

    fn key(&self, held: &Claimed) -> DeliveryKey {
        DeliveryKey {
            account_id: self.account_of(held.endpoint),
            event_id: self.ids.events[&held.event],
            endpoint_id: number(held.endpoint).into(),
        }
    }

    /// Changes an endpoint as the use case does.
    async fn update(&self, endpoint: usize, change: Change, is_stale: bool) -> StepOutcome {
        let (account, id) = (self.account_of(endpoint), WebhookId(number(endpoint)));
        let Some(mut stored) = self.endpoints.find(account, id).await.unwrap() else {
            let missing = NewEndpoint {
                endpoint,
                subscription: 0,
                direction: Direction::Outbound,
                is_active: true,
            };
            let missing = new_endpoint(missing, self.now);
            return StepOutcome::Update(self.endpoints.update(account, &missing, &[]).await.unwrap());
        };
        let webhook = &mut stored.webhook;
        webhook.updated_at = self.now;
        match change {
            Change::Activity(is_active) => {
                if is_active != webhook.is_active {
                    (webhook.disabled_at, webhook.disabled_reason) = (None, None);
                }
                webhook.is_active = is_active;
            }
            Change::Subscription(at) => {
                webhook.events = SUBSCRIPTIONS[at].iter().map(|kind| (*kind).to_owned()).collect();
            }
            Change::Secret(hours) => {
                let current = Sealed(vec![u8::try_from(self.before.step).unwrap()]);
                let previous = std::mem::replace(&mut stored.secrets.current, current);
                stored.secrets.previous = Some((previous, self.now + Duration::hours(hours)));
            }
        }
        stored.version -= i64::from(is_stale);
        let events = events_of(self.before.step);
        StepOutcome::Update(self.endpoints.update(account, &stored, &events).await.unwrap())
    }

    async fn claim(&mut self, endpoints: &[(usize, i64)], others: i64, limit: i64) -> StepOutcome {
        let request = ClaimRequest {
            endpoints: endpoints
                .iter()
                .map(|(at, limit)| (number(*at).into(), *limit))
                .collect(),
            others,
            limit,
        };
        let mut claimed = self.queue.claim(&request, LEASE).await.unwrap();
        let order = |claimed: &ClaimedDelivery| (claimed.occurred_at, claimed.key.event_id);
        assert!(claimed.is_sorted_by_key(order), "the order of the claimed deliveries");
        // The order of one event's deliveries is open.
        claimed.sort_by_key(|claimed| (order(claimed), claimed.key.endpoint_id));
        StepOutcome::Claimed(claimed.into_iter().map(|claimed| self.claimed(claimed)).collect())
    }

    fn claimed(&mut self, claimed: ClaimedDelivery) -> Claimed {
        let (endpoint, event) = (index(claimed.key.endpoint_id.0), event_number(&claimed.data));
        assert_eq!(claimed.key.account_id, self.account_of(endpoint));
        assert_eq!(claimed.key.event_id, self.ids.events[&event]);
        self.ids.claims.push(claimed.claim);
        Claimed {
            event,
            endpoint,
            claim: self.ids.claims.len() - 1,
            attempts: claimed.attempts,
            name: claimed.name,
            url: claimed.url,
            secrets: (
                claimed.secrets.current.0,
                claimed.secrets.previous.map(|(previous, _)| previous.0),
            ),
            health: claimed.health,
            kind: claimed.kind,
            occurred_at: claimed.occurred_at,
        }
    }

    async fn record(&self, recorded: &Recorded) -> StepOutcome {
        let attempts: Vec<Attempt> = recorded
            .results
            .iter()
            .enumerate()
            .map(|(at, (held, result))| self.attempt(held, *result, recorded.step * 10 + at))
            .collect();
        let mut endpoints = BTreeSet::new();
        let first = recorded.results.iter().map(|(held, _)| held);
        let first = first.filter(|held| endpoints.insert(held.endpoint));
        let health_updates: Vec<_> = first
            .zip(&recorded.health)
            .filter_map(|(held, health_step)| {
                let health_update = health_update(*health_step, held.health, recorded.step)?;
                let (account, id) = (self.account_of(held.endpoint), number(held.endpoint).into());
                Some((account, id, health_update))
            })
            .collect();
        self.queue.finish(&attempts, &health_updates).await.unwrap();
        StepOutcome::Nothing
    }

    fn attempt(&self, held: &Claimed, result: AttemptResult, log: usize) -> Attempt {
        let waiting = |hours| DeliveryState::Waiting(Duration::hours(hours));
        let (status, state) = match result {
            AttemptResult::Delivered => (Some(204), DeliveryState::Delivered),
            AttemptResult::Refused(hours) => (Some(500), waiting(hours)),
            AttemptResult::TimedOut(hours) => (None, waiting(hours)),
            AttemptResult::Exhausted => (Some(301), DeliveryState::Failed),
            AttemptResult::Gone => (Some(410), DeliveryState::Failed),
        };
        Attempt {
            key: self.key(held),
            claim: self.ids.claims[held.claim],
            log_id: number(log).into(),
            number: held.attempts + 1,
            kind: held.kind.clone(),
            status,
            error: status.is_none().then(|| "timed_out".to_owned()),
            duration: Duration::milliseconds(7),
            // The attempt ended before it is recorded.
            at: self.now - Duration::MICROSECOND,
            state,
        }
    }

    async fn ping(&self, endpoint: usize) -> StepOutcome {
        let (account, step) = (self.account_of(endpoint), self.before.step);
        let timestamp = event_time(step);
        let milliseconds = u128::try_from(timestamp.unix_timestamp_nanos() / 1_000_000).unwrap();
        let event = WebhookEvent {
            id: Uuid::from_u128(milliseconds << 80).into(),
            kind: WebhookKind::TestPing.as_str().to_owned(),
            timestamp,
            account_id: account,
            data: json!({ "n": step * 10 }),
        };
        StepOutcome::Row(self.logs.ping(account, number(endpoint).into(), &event).await.unwrap())
    }

    async fn call(&self, endpoint: usize, message: usize, response_status: i32) -> StepOutcome {
        let found = self.inbound.endpoint(number(endpoint).into()).await.unwrap();
        let Some((account, StoredWebhook { webhook, .. })) = found else {
            return StepOutcome::Called(None);
        };
        assert_eq!(account, self.account_of(endpoint));
        let entry = InboundLogEntry {
            id: number(self.before.step * 10).into(),
            endpoint_id: webhook.id,
            message_id: format!("message {message}"),
            event_type: WebhookKind::OrderRecorded.as_str().to_owned(),
            payload: json!({ "message": message }),
            response_status,
            error: (response_status != 200).then(|| "invalid".to_owned()),
            at: self.now,
        };
        let is_taken = self.inbound.is_taken(account, webhook.id, &entry.message_id).await;
        self.inbound.log(account, &entry).await.unwrap();
        StepOutcome::Called(Some(is_taken.unwrap()))
    }

    async fn read_feed(&self, account: usize, query: &FeedQuery) -> StepOutcome {
        let page = self.logs.feed(self.accounts[account], query).await.unwrap();
        let cursor = page.next_cursor.map(|id| id.parse::<Uuid>().unwrap().into());
        StepOutcome::Feed {
            events: page.data.iter().map(|event| event_number(&event.data)).collect(),
            next: cursor.map(|id| self.ids.event_number(id)),
            has_more: page.has_more,
        }
    }

    async fn read_logs(&self, filter: &LogFilter) -> StepOutcome {
        let account = self.accounts[filter.account];
        let query = LogQuery {
            direction: filter.direction,
            status: filter.status,
            endpoint_id: filter.endpoint.map(|at| number(at).into()),
            event_type: filter.kind.map(|kind| kind.as_str().to_owned()),
            limit: filter.limit,
            ..LogQuery::default()
        };
        let mut lines = Vec::new();
        for log in self.logs.logs(account, &query).await.unwrap() {
            // The payload of a delivery names the account and the event by their ids.
            let data = log.payload.get("data").unwrap_or(&log.payload);
            let logged = self.logs.logged(account, log.id).await.unwrap().unwrap();
            let event = logged.event_id.map(|id| self.ids.event_number(id));
            lines.push(format!("{} {} {event:?} {data}", log.id, index(logged.endpoint_id.0)));
        }
        StepOutcome::Logs(lines)
    }
}

fn health_update(health_step: HealthStep, known: Health, step: usize) -> Option<HealthUpdate> {
    // The stores compare these times only with each other.
    let now = event_time(step);
    let disabled = |reason: DisabledReason| HealthUpdate::Disabled {
        known,
        reason,
        events: vec![
            Event::Notification(NotificationDraft {
                kind: NotificationKind::Warning,
                title: "Webhook disabled".into(),
                message: format!("in step {step}"),
                data: json!({}),
            }),
            audit(step),
        ],
    };
    match health_step {
        HealthStep::Unchanged => None,
        HealthStep::Recovered => Some(HealthUpdate::Recovered),
        HealthStep::Failing => Some(HealthUpdate::Failing {
            known,
            since: known.since().unwrap_or(now),
            at: now,
        }),
        HealthStep::DisabledFailing => Some(disabled(DisabledReason::Failing)),
        HealthStep::DisabledGone => Some(disabled(DisabledReason::Gone)),
    }
}
