//! The delivery worker claims, calls and records concurrently. Slow calls never block the one claim and the one record
//! operation that may run beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{BoxFuture, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use time::Duration;

use super::endpoint_queues::EndpointQueues;
use super::service::ENTITY;
use super::{
    Attempt, AttemptOutcome, ClaimedDelivery, DelivererReport, DeliveryDecision, DeliveryGateway, DeliveryQueue,
    DeliveryRequest, DeliveryState, DisabledReason, Health, HealthChange, HealthUpdate, Jitter, Schedule, SecretBytes,
    WebhookEvent, WorkSignal, decide, health, sign,
};
use crate::shared::{
    AccountId, Audit, AuditAction, Cipher, Clock, Event, Ids, NotificationDraft, NotificationKind, SealContext,
    Shutdown, StoreError, Timer, WebhookId,
};

/// The lease of a claim. It is longer than the time-out of a call.
const LEASE: Duration = Duration::seconds(60);

/// The highest age of a claim at the start of its call: the call must end and be recorded within `LEASE`.
const MAX_CLAIM_AGE: Duration = Duration::seconds(35);

/// How long the deliverer waits for new work when nothing is due.
const IDLE_WAIT: Duration = Duration::milliseconds(500);

/// The delay after a store error.
const STORE_ERROR_DELAY: Duration = Duration::milliseconds(500);

/// The delay between two claims: a multiple of the last claim's duration, and at least `MIN_CLAIM_DELAY`. It bounds the
/// database time that claims use.
const CLAIM_DELAY_FACTOR: i32 = 3;
const MIN_CLAIM_DELAY: Duration = Duration::milliseconds(5);

/// A success within this time counts as fast.
const FAST_RESPONSE: Duration = Duration::SECOND;

/// Backpressure: no call starts while this many results wait to be recorded.
const MAX_UNRECORDED: usize = 4096;

/// The most results that one transaction records.
const RECORD_BATCH: usize = 500;

/// The published log error for a secret that cannot be opened.
const UNREADABLE_SECRET: &str = "secret_unreadable";

struct CompletedAttempt {
    claimed: ClaimedDelivery,
    attempt: Attempt,
    decision: DeliveryDecision,
}

/// A completed future of the deliverer's event loop.
enum DelivererEvent {
    Completed(Box<CompletedAttempt>),
    Claimed(Result<Vec<ClaimedDelivery>, StoreError>, Duration),
    Recorded(Vec<CompletedAttempt>, Result<(), StoreError>),
    /// The delay before the next claim or the next record operation ended.
    ClaimAgain,
    RecordAgain,
    Released,
    Stopped,
}

/// Delivers webhook events of all accounts to their endpoints.
pub struct Deliverer {
    pub queue: Arc<dyn DeliveryQueue>,
    pub gateway: Arc<dyn DeliveryGateway>,
    pub cipher: Arc<dyn Cipher>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub jitter: Arc<dyn Jitter>,
    pub timer: Arc<dyn Timer>,
    pub shutdown: Arc<dyn Shutdown>,
    pub signal: Arc<dyn WorkSignal>,
    pub report: Arc<dyn DelivererReport>,
    pub schedule: Schedule,
}

/// The state of the event loop.
struct DelivererState<'a> {
    deliverer: &'a Deliverer,
    queues: EndpointQueues,
    pending: FuturesUnordered<BoxFuture<'a, DelivererEvent>>,
    results: Vec<CompletedAttempt>,
    /// A claim or the delay after it is pending.
    claiming: bool,
    recording: bool,
    stopping: bool,
}

impl Deliverer {
    /// Delivers until the server stops. On shutdown no further call starts, in-flight calls end and are recorded, and
    /// the remaining claims are released.
    pub async fn run(&self) {
        let mut state = DelivererState {
            deliverer: self,
            queues: EndpointQueues::default(),
            pending: FuturesUnordered::new(),
            results: Vec::new(),
            claiming: false,
            recording: false,
            stopping: self.shutdown.is_stopping(),
        };
        state.spawn(async {
            self.shutdown.stopped().await;
            DelivererEvent::Stopped
        });
        state.start_operations();
        while let Some(event) = state.pending.next().await {
            state.apply(event);
            if state.stopping && state.is_drained() {
                break;
            }
            state.start_operations();
        }
        self.release_claims(state.queues.clear()).await;
    }

    async fn release_claims(&self, claimed: Vec<ClaimedDelivery>) {
        if claimed.is_empty() {
            return;
        }
        let claims: Vec<_> = claimed.iter().map(|claimed| (claimed.key, claimed.claim)).collect();
        if let Err(error) = self.queue.release(&claims).await {
            // The leases expire on their own.
            self.report.failed("releasing claimed deliveries", &error);
        }
    }

    /// Makes one attempt.
    async fn attempt(&self, claimed: ClaimedDelivery) -> CompletedAttempt {
        let started_at = self.clock.now();
        let (outcome, error) = match self.request(&claimed, started_at.unix_timestamp()) {
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
        let failed = AttemptOutcome::Unreachable(super::DeliveryFailure::Broken);
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
            duration: at - started_at,
            at,
            state: delivery_state(decision),
        };
        CompletedAttempt {
            claimed,
            attempt,
            decision,
        }
    }

    /// Builds the signed request. Returns `None` if the endpoint's secret cannot be opened: the receiver could not
    /// verify an unsigned request.
    fn request(&self, claimed: &ClaimedDelivery, timestamp: i64) -> Option<DeliveryRequest> {
        let context = SealContext::webhook_secret(claimed.key.account_id, claimed.key.endpoint_id);
        let open = |sealed| {
            self.cipher
                .open(sealed, &context)
                .as_ref()
                .and_then(SecretBytes::from_hex)
        };
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
        let recorded = self.queue.finish(&attempts, &health_updates).await;
        DelivererEvent::Recorded(results, recorded)
    }

    /// Decides the health update of every endpoint in `results`.
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
                HealthChange::Unchanged => None,
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
                        Event::Notification(disabled_notification(claimed, reason)),
                        Event::Audit(disabled_audit(claimed, reason)),
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

    /// Whether a stopping deliverer has no in-flight calls and no unrecorded results.
    fn is_drained(&self) -> bool {
        self.queues.in_flight() == 0 && self.results.is_empty() && !self.recording
    }

    fn apply(&mut self, event: DelivererEvent) {
        let deliverer = self.deliverer;
        match event {
            DelivererEvent::Completed(completed) => {
                let fast_success =
                    completed.decision == DeliveryDecision::Delivered && completed.attempt.duration <= FAST_RESPONSE;
                self.queues.completed(completed.claimed.key.endpoint_id, fast_success);
                self.results.push(*completed);
            }
            DelivererEvent::Claimed(Ok(claimed), took) => {
                let found = !claimed.is_empty();
                deliverer.report.claimed(claimed.len());
                self.queues.enqueue(claimed, deliverer.clock.now() - took);
                let delay = (took * CLAIM_DELAY_FACTOR).max(MIN_CLAIM_DELAY);
                self.spawn(async move {
                    match found {
                        true => deliverer.timer.sleep(delay).await,
                        false => {
                            select(deliverer.signal.wait_for_work(), deliverer.timer.sleep(IDLE_WAIT)).await;
                        }
                    }
                    DelivererEvent::ClaimAgain
                });
            }
            DelivererEvent::Claimed(Err(error), _) => {
                deliverer.report.failed("claiming deliveries", &error);
                self.spawn(async {
                    deliverer.timer.sleep(STORE_ERROR_DELAY).await;
                    DelivererEvent::ClaimAgain
                });
            }
            DelivererEvent::Recorded(_, Ok(())) => self.recording = false,
            // The calls were made, so their results must be recorded: retry without limit.
            DelivererEvent::Recorded(results, Err(error)) => {
                deliverer.report.failed("recording deliveries", &error);
                self.results.extend(results);
                self.spawn(async {
                    deliverer.timer.sleep(STORE_ERROR_DELAY).await;
                    DelivererEvent::RecordAgain
                });
            }
            DelivererEvent::ClaimAgain => self.claiming = false,
            DelivererEvent::RecordAgain => self.recording = false,
            DelivererEvent::Released => {}
            DelivererEvent::Stopped => self.stopping = true,
        }
    }

    /// Starts every operation that may start.
    fn start_operations(&mut self) {
        let deliverer = self.deliverer;
        if !self.stopping {
            self.start_calls();
            if !self.claiming
                && let Some(request) = self.queues.claim_request()
            {
                self.claiming = true;
                self.spawn(async move {
                    let started_at = deliverer.clock.now();
                    let claimed = deliverer.queue.claim(&request, LEASE).await;
                    let took = (deliverer.clock.now() - started_at).max(Duration::ZERO);
                    DelivererEvent::Claimed(claimed, took)
                });
            }
        }
        if !self.recording && !self.results.is_empty() {
            self.recording = true;
            let batch = self.results.drain(..self.results.len().min(RECORD_BATCH)).collect();
            self.spawn(deliverer.record(batch));
        }
    }

    fn start_calls(&mut self) {
        let deliverer = self.deliverer;
        let now = deliverer.clock.now();
        let mut stale = Vec::new();
        while self.results.len() < MAX_UNRECORDED
            && let Some((claimed, at)) = self.queues.start()
        {
            // It waited too long behind slow deliveries of its endpoint. A new claim gets a full lease.
            if now - at > MAX_CLAIM_AGE {
                self.queues.release(claimed.key.endpoint_id);
                stale.push(claimed);
                continue;
            }
            self.spawn(async move { DelivererEvent::Completed(Box::new(deliverer.attempt(claimed).await)) });
        }
        if !stale.is_empty() {
            self.spawn(async move {
                deliverer.release_claims(stale).await;
                DelivererEvent::Released
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

/// The state that the decision leaves the delivery in. `Gone` differs from `Exhausted` for the endpoint only, see
/// `health_updates`.
fn delivery_state(decision: DeliveryDecision) -> DeliveryState {
    match decision {
        DeliveryDecision::Delivered => DeliveryState::Delivered,
        DeliveryDecision::Retry(delay) => DeliveryState::Waiting(delay),
        DeliveryDecision::Exhausted | DeliveryDecision::Gone => DeliveryState::Failed,
    }
}

/// The audit entry of an endpoint that Recado disabled. It has no user.
fn disabled_audit(claimed: &ClaimedDelivery, reason: DisabledReason) -> Audit {
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

/// The notification about a disabled endpoint. It shows the host instead of the URL, which may hold secrets.
fn disabled_notification(claimed: &ClaimedDelivery, reason: DisabledReason) -> NotificationDraft {
    let cause = match reason {
        DisabledReason::Gone => "it responded with 410 Gone".to_owned(),
        DisabledReason::Failing => match claimed.health {
            Health::Failing { since, .. } => {
                format!(
                    "all attempts have failed since {}",
                    crate::shared::timestamp::format(since)
                )
            }
            Health::Well => "all attempts failed".to_owned(),
        },
    };
    NotificationDraft {
        kind: NotificationKind::Warning,
        title: "Webhook disabled".to_owned(),
        message: format!(
            "Webhook {} was disabled and no longer delivers to {}: {cause}.",
            claimed.name,
            host(&claimed.url)
        ),
        data: json!({ "webhook_id": claimed.key.endpoint_id, "reason": reason }),
    }
}

fn host(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let host = url.as_ref().and_then(url::Url::host_str);
    host.unwrap_or("its URL").to_owned()
}
