//! The worker that delivers: claims, calls and records, all three at the same time. However many calls hang, one claim
//! and one record are always under way or about to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use time::Duration;

use super::endpoint_queues::EndpointQueues;
use super::service::ENTITY;
use super::{
    Attempt, AttemptOutcome, ClaimedDelivery, DeliveryDecision, DeliveryGateway, DeliveryQueue, DeliveryRequest,
    DeliveryState, DisabledReason, Health, HealthChange, HealthUpdate, Jitter, Schedule, SecretBytes, WebhookEvent,
    WorkSignal, decide, health, sign,
};
use crate::shared::{
    AccountId, Audit, AuditAction, Cipher, Clock, Event, Ids, NotificationDraft, NotificationKind, StoreError,
    WebhookId,
};

/// For how long a claim holds. A call that hangs ends well before.
const LEASE: Duration = Duration::seconds(60);

/// How old a claim may be when its call begins: the call must end, and be recorded, within the lease.
const FRESH: Duration = Duration::seconds(35);

/// How long the deliverer rests when nothing is due.
const IDLE: StdDuration = StdDuration::from_millis(500);

/// How long it rests after a fault of the store.
const FAULT: StdDuration = StdDuration::from_millis(500);

/// How long it rests between two claims, as a multiple of what the last one took, and at least: looking for work is
/// never the most of the work.
const CLAIM_REST: i32 = 3;
const SHORTEST_REST: Duration = Duration::milliseconds(5);

/// An endpoint answers quickly when it needs no longer than this.
const QUICK: Duration = Duration::SECOND;

/// How many results may wait for being recorded before no more calls begin.
const UNRECORDED: usize = 4096;

/// How many results are recorded in one statement.
const BATCH: usize = 500;

/// What the log says where the endpoint's secret cannot be read.
const UNREADABLE_SECRET: &str = "secret_unreadable";

/// A call that ended.
struct CompletedAttempt {
    claimed: ClaimedDelivery,
    attempt: Attempt,
    decision: DeliveryDecision,
}

/// What a deliverer waits for.
enum DelivererEvent {
    Completed(Box<CompletedAttempt>),
    Claimed(Result<Vec<ClaimedDelivery>, StoreError>, Duration),
    Recorded(Vec<CompletedAttempt>, Result<(), StoreError>),
    /// A rest is over: of claiming, of recording.
    ClaimAgain,
    RecordAgain,
    GivenBack,
    Stopped,
}

/// Delivers.
pub struct Deliverer {
    /// Deliveries of all accounts.
    pub queue: Arc<dyn DeliveryQueue>,
    /// The way out.
    pub gateway: Arc<dyn DeliveryGateway>,
    /// Opens secrets.
    pub cipher: Arc<dyn Cipher>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ids of logs.
    pub ids: Arc<dyn Ids>,
    /// Spreads delays.
    pub jitter: Arc<dyn Jitter>,
    /// Wakes and stops.
    pub signal: Arc<dyn WorkSignal>,
    /// The delays between attempts.
    pub schedule: Schedule,
}

/// What is under way.
struct DelivererState<'a> {
    deliverer: &'a Deliverer,
    queues: EndpointQueues,
    pending: FuturesUnordered<BoxFuture<'a, DelivererEvent>>,
    results: Vec<CompletedAttempt>,
    /// A claim, or the rest after one, is under way.
    claiming: bool,
    recording: bool,
    stopping: bool,
}

impl Deliverer {
    /// Delivers until the server stops: then nothing begins any more, what was claimed is given back, and calls that
    /// are under way end and are recorded.
    pub async fn run(&self) {
        let mut state = DelivererState {
            deliverer: self,
            queues: EndpointQueues::default(),
            pending: FuturesUnordered::new(),
            results: Vec::new(),
            claiming: false,
            recording: false,
            stopping: self.signal.stopping(),
        };
        state.spawn(async {
            self.signal.stopped().await;
            DelivererEvent::Stopped
        });
        state.go_on();
        while let Some(event) = state.pending.next().await {
            state.take_in(event);
            if state.stopping && state.is_over() {
                break;
            }
            state.go_on();
        }
        self.give_back(state.queues.clear()).await;
    }

    async fn give_back(&self, claimed: Vec<ClaimedDelivery>) {
        if claimed.is_empty() {
            return;
        }
        let claims: Vec<_> = claimed.iter().map(|claimed| (claimed.key, claimed.claim)).collect();
        if let Err(error) = self.queue.release(&claims).await {
            // The leases end by themselves.
            self.signal.failed("giving deliveries back", &error);
        }
    }

    /// One attempt.
    async fn attempt(&self, claimed: ClaimedDelivery) -> CompletedAttempt {
        let began = self.clock.now();
        let (outcome, error) = match self.request(&claimed, began.unix_timestamp()) {
            Some(request) => {
                let outcome = self.gateway.deliver(&request).await;
                let error = match outcome {
                    AttemptOutcome::Answered { .. } => None,
                    AttemptOutcome::Unreachable(failure) => Some(failure.as_str()),
                };
                (Some(outcome), error)
            }
            None => (None, Some(UNREADABLE_SECRET)),
        };
        let number = claimed.attempts.saturating_add(1);
        let failed = AttemptOutcome::Unreachable(super::Failure::Broken);
        let decision = decide(outcome.unwrap_or(failed), number, &self.schedule, self.jitter.spread());
        let at = self.clock.now();
        let attempt = Attempt {
            key: claimed.key,
            claim: claimed.claim,
            log_id: self.ids.next().into(),
            number,
            kind: claimed.kind.clone(),
            status: outcome.and_then(status),
            error: error.map(str::to_owned),
            duration: at - began,
            at,
            state: delivery_state(decision),
        };
        CompletedAttempt {
            claimed,
            attempt,
            decision,
        }
    }

    /// None when the endpoint's secret cannot be read: nobody could tell that it is us.
    fn request(&self, claimed: &ClaimedDelivery, timestamp: i64) -> Option<DeliveryRequest> {
        let open = |sealed| self.cipher.open(sealed).as_ref().and_then(SecretBytes::of_hex);
        let mut secrets = vec![open(&claimed.secrets.current)?];
        secrets.extend(claimed.secrets.previous.as_ref().and_then(|(sealed, _)| open(sealed)));
        let event = WebhookEvent {
            id: claimed.key.event_id,
            kind: claimed.kind.clone(),
            timestamp: claimed.occurred_at,
            account_id: claimed.key.account_id,
            data: claimed.data.clone(),
        };
        let body = serde_json::to_vec(&event).ok()?;
        let message_id = claimed.key.event_id.to_string();
        Some(DeliveryRequest {
            url: claimed.url.clone(),
            signatures: sign(&secrets, &message_id, timestamp, &body),
            message_id,
            timestamp,
            body,
        })
    }

    async fn record(&self, results: Vec<CompletedAttempt>) -> DelivererEvent {
        let attempts: Vec<Attempt> = results.iter().map(|completed| completed.attempt.clone()).collect();
        let health_updates = self.health_updates(&results);
        let done = self.queue.finish(&attempts, &health_updates).await;
        DelivererEvent::Recorded(results, done)
    }

    /// What follows for the endpoints.
    fn health_updates(&self, results: &[CompletedAttempt]) -> Vec<(AccountId, WebhookId, HealthUpdate)> {
        let mut endpoints: BTreeMap<WebhookId, (&ClaimedDelivery, Vec<DeliveryDecision>)> = BTreeMap::new();
        for completed in results {
            let claimed = &completed.claimed;
            let entry = endpoints.entry(claimed.key.endpoint_id).or_insert((claimed, vec![]));
            entry.1.push(completed.decision);
        }
        let now = self.clock.now();
        let health_update =
            |claimed: &ClaimedDelivery, decisions: &[DeliveryDecision]| match health(claimed.health, decisions, now) {
                HealthChange::Keep => None,
                HealthChange::Recovered => Some(HealthUpdate::Recovered),
                HealthChange::Failing(since) => Some(HealthUpdate::Failing {
                    known: claimed.health,
                    since,
                    at: now,
                }),
                HealthChange::Disable(reason) => Some(HealthUpdate::Disabled {
                    known: claimed.health,
                    reason,
                    events: vec![
                        Event::Notification(told(claimed, reason)),
                        Event::Audit(switched_off(claimed, reason)),
                    ],
                }),
            };
        endpoints
            .into_values()
            .filter_map(|(claimed, decisions)| {
                let health_update = health_update(claimed, &decisions)?;
                Some((claimed.key.account_id, claimed.key.endpoint_id, health_update))
            })
            .collect()
    }
}

impl<'a> DelivererState<'a> {
    fn spawn(&mut self, event: impl Future<Output = DelivererEvent> + Send + 'a) {
        self.pending.push(Box::pin(event));
    }

    /// Whether, of a deliverer that stops, nothing is left to wait for.
    fn is_over(&self) -> bool {
        self.queues.open() == 0 && self.results.is_empty() && !self.recording
    }

    fn take_in(&mut self, event: DelivererEvent) {
        let deliverer = self.deliverer;
        match event {
            DelivererEvent::Completed(completed) => {
                let well = completed.decision == DeliveryDecision::Delivered && completed.attempt.duration <= QUICK;
                self.queues.completed(completed.claimed.key.endpoint_id, well);
                self.results.push(*completed);
            }
            DelivererEvent::Claimed(Ok(claimed), took) => {
                let found = !claimed.is_empty();
                self.queues.enqueue(claimed, deliverer.clock.now() - took);
                let rest = (took * CLAIM_REST).max(SHORTEST_REST).unsigned_abs();
                self.spawn(async move {
                    match found {
                        true => deliverer.signal.rest(rest).await,
                        false => deliverer.signal.wait_for_work(IDLE).await,
                    }
                    DelivererEvent::ClaimAgain
                });
            }
            DelivererEvent::Claimed(Err(error), _) => {
                deliverer.signal.failed("claiming deliveries", &error);
                self.spawn(async {
                    deliverer.signal.rest(FAULT).await;
                    DelivererEvent::ClaimAgain
                });
            }
            DelivererEvent::Recorded(_, Ok(())) => self.recording = false,
            // The calls were made: this must be written down, sooner or later.
            DelivererEvent::Recorded(results, Err(error)) => {
                deliverer.signal.failed("recording deliveries", &error);
                self.results.extend(results);
                self.spawn(async {
                    deliverer.signal.rest(FAULT).await;
                    DelivererEvent::RecordAgain
                });
            }
            DelivererEvent::ClaimAgain => self.claiming = false,
            DelivererEvent::RecordAgain => self.recording = false,
            DelivererEvent::GivenBack => {}
            DelivererEvent::Stopped => self.stopping = true,
        }
    }

    /// Begins what can begin.
    fn go_on(&mut self) {
        let deliverer = self.deliverer;
        if !self.stopping {
            self.start_calls();
            if !self.claiming
                && let Some(request) = self.queues.claim_request()
            {
                self.claiming = true;
                self.spawn(async move {
                    let began = deliverer.clock.now();
                    let claimed = deliverer.queue.claim(&request, LEASE).await;
                    let took = (deliverer.clock.now() - began).max(Duration::ZERO);
                    DelivererEvent::Claimed(claimed, took)
                });
            }
        }
        if !self.recording && !self.results.is_empty() {
            self.recording = true;
            let batch = self.results.drain(..self.results.len().min(BATCH)).collect();
            self.spawn(deliverer.record(batch));
        }
    }

    fn start_calls(&mut self) {
        let deliverer = self.deliverer;
        let now = deliverer.clock.now();
        let mut stale = Vec::new();
        while self.results.len() < UNRECORDED
            && let Some((claimed, at)) = self.queues.start()
        {
            // It waited too long behind slow ones of its endpoint: whoever claims it next has the time.
            if now - at > FRESH {
                self.queues.dismissed(claimed.key.endpoint_id);
                stale.push(claimed);
                continue;
            }
            self.spawn(async move { DelivererEvent::Completed(Box::new(deliverer.attempt(claimed).await)) });
        }
        if !stale.is_empty() {
            self.spawn(async move {
                deliverer.give_back(stale).await;
                DelivererEvent::GivenBack
            });
        }
    }
}

fn status(outcome: AttemptOutcome) -> Option<u16> {
    match outcome {
        AttemptOutcome::Answered { status, .. } => Some(status),
        AttemptOutcome::Unreachable(_) => None,
    }
}

fn delivery_state(decision: DeliveryDecision) -> DeliveryState {
    match decision {
        DeliveryDecision::Delivered => DeliveryState::Delivered,
        DeliveryDecision::Retry(delay) => DeliveryState::Waiting(delay),
        DeliveryDecision::Exhausted | DeliveryDecision::Gone => DeliveryState::Failed,
    }
}

/// The entry of a change that nobody made: the log says of every webhook when it was switched off.
fn switched_off(claimed: &ClaimedDelivery, reason: DisabledReason) -> Audit {
    Audit {
        user_id: None,
        action: AuditAction::Update,
        entity_type: ENTITY.to_owned(),
        entity_id: Some(claimed.key.endpoint_id.into()),
        changes: Some(json!({ "is_active": { "from": true, "to": false }, "disabled_reason": reason })),
        ip_address: None,
        support_admin: None,
    }
}

/// What the account is told of an endpoint that was switched off: its name and host, since the rest of a URL may hold
/// secrets.
fn told(claimed: &ClaimedDelivery, reason: DisabledReason) -> NotificationDraft {
    let why = match reason {
        DisabledReason::Gone => "it answered 410 Gone".to_owned(),
        DisabledReason::Failing => match claimed.health {
            Health::Failing { since, .. } => {
                format!("nothing but failures since {}", crate::shared::timestamp::format(since))
            }
            Health::Well => "nothing but failures".to_owned(),
        },
    };
    NotificationDraft {
        kind: NotificationKind::Warning,
        title: "Webhook disabled".to_owned(),
        message: format!(
            "Deliveries of {} to {} were switched off: {why}.",
            claimed.name,
            host(&claimed.url)
        ),
        data: json!({ "webhook_id": claimed.key.endpoint_id, "reason": reason }),
    }
}

fn host(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let host = url.as_ref().and_then(url::Url::host_str);
    host.unwrap_or("its address").to_owned()
}
