//! Tests of the deliverer with the in-memory store and scripted receivers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration as StdDuration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::in_memory::{InMemoryDelivery, InMemoryEndpoint, InMemoryWebhooks, WebhookTables};
use super::*;
use crate::shared::{
    AccountId, Clock as _, Event, Ids, InsertOutcome, MockCipher, Sealed, Shutdown, StoreError, Timer, WebhookEventId,
    WebhookId, WebhookKind,
};

pub(super) const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

fn endpoint_id(endpoint: u128) -> WebhookId {
    WebhookId(Uuid::from_u128(endpoint))
}

pub(super) fn claimed(endpoint: WebhookId) -> ClaimedDelivery {
    ClaimedDelivery {
        key: DeliveryKey {
            account_id: AccountId(Uuid::from_u128(1)),
            event_id: WebhookEventId(Uuid::now_v7()),
            endpoint_id: endpoint,
        },
        claim: 1,
        attempts: 0,
        name: "CI".into(),
        url: format!("https://e.example/?token=s3cret/{}", endpoint.0.as_u128()),
        secrets: SealedSecrets {
            current: Sealed(b"aa".to_vec()),
            previous: None,
        },
        health: Health::Well,
        kind: "message.sent".into(),
        occurred_at: NOW,
        data: json!({ "n": 1 }),
    }
}

/// The in-memory store, with the clock of the test.
struct Queue {
    store: InMemoryWebhooks,
    clock: Clock,
    /// How many record operations fail first.
    failures: AtomicUsize,
}

impl Queue {
    fn new() -> Self {
        Self {
            store: InMemoryWebhooks::new(WebhookTables::new(NOW)),
            clock: Clock(tokio::time::Instant::now()),
            failures: AtomicUsize::new(0),
        }
    }

    fn tables(&self) -> MutexGuard<'_, WebhookTables> {
        let mut tables = self.store.tables();
        tables.now = self.clock.now();
        tables
    }

    /// Enqueues `count` deliveries to an endpoint, which is the only one of its account.
    fn fill(&self, endpoint: u128, count: usize) {
        let (account, mut tables) = (AccountId(Uuid::from_u128(endpoint)), self.tables());
        let ClaimedDelivery {
            key,
            name,
            url,
            secrets,
            ..
        } = claimed(endpoint_id(endpoint));
        let webhook = Webhook {
            id: key.endpoint_id,
            name,
            url: Some(url),
            events: vec!["*".into()],
            direction: Direction::Outbound,
            is_active: true,
            secret_hint: "aa".into(),
            disabled_at: None,
            disabled_reason: None,
            created_at: NOW,
            updated_at: NOW,
        };
        let stored = StoredWebhook {
            webhook,
            secrets,
            version: 1,
        };
        let events = [Event::webhook(WebhookKind::MessageSent, vec![json!({ "n": 1 }); count])];
        assert_eq!(tables.insert(account, &stored, 1, &events), InsertOutcome::Done);
        tables.relay();
    }

    fn endpoint(&self, endpoint: u128) -> InMemoryEndpoint {
        self.tables().endpoints[&endpoint_id(endpoint)].clone()
    }

    /// The log of an endpoint's first attempt.
    fn first_log(&self, endpoint: u128) -> WebhookLog {
        let tables = self.tables();
        let mut logs = tables.logs.values().map(|row| row.log.clone());
        let log = logs.find(|log| log.endpoint_id == endpoint_id(endpoint) && log.attempt == 1);
        log.unwrap()
    }
}

#[async_trait]
impl DeliveryQueue for Queue {
    async fn claim(&self, request: &ClaimRequest, lease: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        Ok(self.tables().claim(request, lease))
    }

    async fn finish(
        &self,
        attempts: &[Attempt],
        health_updates: &[(AccountId, WebhookId, HealthUpdate)],
    ) -> Result<(), StoreError> {
        let take_failure = |left: usize| left.checked_sub(1);
        if self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_failure)
            .is_ok()
        {
            return Err(StoreError::Unavailable("gone".into()));
        }
        self.tables().finish(attempts, health_updates);
        Ok(())
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        self.tables().release(claims);
        Ok(())
    }

    async fn sweep(&self, _: Duration, _: i64) -> Result<usize, StoreError> {
        unreachable!("the deliverer purges nothing")
    }
}

/// Responds with the status of the endpoint. Without a status, the call times out after 15 seconds.
struct Receivers(HashMap<String, u16>, Mutex<Vec<DeliveryRequest>>);

#[async_trait]
impl DeliveryGateway for Receivers {
    async fn deliver(&self, request: &DeliveryRequest) -> AttemptOutcome {
        self.1.lock().unwrap().push(request.clone());
        let endpoint = request.url.rsplit('/').next().unwrap();
        match self.0.get(endpoint) {
            Some(&status) => {
                tokio::time::sleep(StdDuration::from_millis(1)).await;
                AttemptOutcome::Answered {
                    status,
                    retry_after: None,
                }
            }
            None => {
                tokio::time::sleep(StdDuration::from_secs(15)).await;
                AttemptOutcome::Unreachable(DeliveryFailure::TimedOut)
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Clock(tokio::time::Instant);

impl crate::shared::Clock for Clock {
    fn now(&self) -> OffsetDateTime {
        NOW + Duration::try_from(self.0.elapsed()).unwrap()
    }
}

struct RandomIds;

impl Ids for RandomIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

struct NoJitter;

impl Jitter for NoJitter {
    fn spread(&self) -> f64 {
        0.0
    }
}

struct TestSignals {
    notify: Notify,
    stop: watch::Sender<bool>,
}

#[async_trait]
impl WorkSignal for TestSignals {
    async fn wait_for_work(&self) {
        self.notify.notified().await;
    }
}

#[async_trait]
impl Timer for TestSignals {
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration.unsigned_abs()).await;
    }
}

#[async_trait]
impl Shutdown for TestSignals {
    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    async fn stopped(&self) {
        drop(self.stop.subscribe().wait_for(|stop| *stop).await);
    }
}

impl DelivererReport for TestSignals {
    fn claimed(&self, _: usize) {}

    fn failed(&self, _: &'static str, _: &StoreError) {}
}

/// A running deliverer.
struct Fixture {
    queue: Arc<Queue>,
    receivers: Arc<Receivers>,
    signals: Arc<TestSignals>,
    running: tokio::task::JoinHandle<()>,
}

impl Fixture {
    fn new(queue: Queue, statuses: &[(u128, u16)]) -> Self {
        let statuses = statuses.iter().map(|(id, status)| (id.to_string(), *status));
        let receivers = Arc::new(Receivers(statuses.collect(), Mutex::default()));
        let (queue, signals) = (
            Arc::new(queue),
            Arc::new(TestSignals {
                notify: Notify::new(),
                stop: watch::channel(false).0,
            }),
        );
        let mut cipher = MockCipher::new();
        cipher
            .expect_open()
            .returning(|sealed, _| Some(SecretString::from(String::from_utf8(sealed.0.clone()).unwrap())));
        let deliverer = Deliverer {
            queue: queue.clone(),
            gateway: receivers.clone(),
            cipher: Arc::new(cipher),
            clock: Arc::new(queue.clock),
            ids: Arc::new(RandomIds),
            jitter: Arc::new(NoJitter),
            timer: signals.clone(),
            shutdown: signals.clone(),
            signal: signals.clone(),
            report: signals.clone(),
            schedule: Schedule::default(),
        };
        let running = tokio::spawn(async move { deliverer.run().await });
        Self {
            queue,
            receivers,
            signals,
            running,
        }
    }

    async fn stop(self) -> Arc<Queue> {
        self.signals.stop.send_replace(true);
        self.running.await.unwrap();
        self.queue
    }

    /// Waits until the tables meet the condition.
    async fn wait_until(&self, condition: impl Fn(&WebhookTables) -> bool) {
        while !condition(&self.queue.tables()) {
            tokio::time::sleep(StdDuration::from_millis(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_is_signed_and_recorded_once() {
    let queue = Queue::new();
    queue.fill(1, 700);
    queue.tables().endpoints.get_mut(&endpoint_id(1)).unwrap().health = Health::Failing { since: NOW, last: NOW };
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(|tables| tables.deliveries.is_empty()).await;
    let requests = std::mem::take(&mut *fixture.receivers.1.lock().unwrap());
    let queue = fixture.stop().await;
    assert_eq!((requests.len(), queue.tables().logs.len()), (700, 700));
    for request in requests {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let expected = json!({ "id": request.message_id, "type": "message.sent", "data": { "n": 1 },
            "timestamp": "2026-03-01T12:00:00.000Z", "account_id": Uuid::from_u128(1) });
        assert_eq!(body, expected);
        let secret = [SecretBytes::from_hex(&SecretString::from("aa")).unwrap()];
        let signatures = sign(&secret, &request.message_id, request.timestamp, &request.body);
        assert_eq!(request.signatures, signatures);
        assert!(!request.message_id.contains('.') && request.timestamp >= NOW.unix_timestamp());
    }
    assert_eq!(queue.endpoint(1).health, Health::Well);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_endpoints_delay_no_other_endpoint() {
    let queue = Queue::new();
    for unresponsive in 2..=60 {
        queue.fill(unresponsive, 50);
    }
    queue.fill(1, 1000);
    let started_at = tokio::time::Instant::now();
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(|tables| tables.deliveries.len() <= 59 * 50).await;
    assert!(
        started_at.elapsed() < StdDuration::from_secs(2),
        "{:?}",
        started_at.elapsed()
    );
    let calls = fixture.receivers.1.lock().unwrap().len();
    assert!(calls <= 1000 + 59 * 4, "{calls}");
    fixture.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_delivery_waits_and_gone_endpoint_is_disabled() {
    let queue = Queue::new();
    for endpoint in 1..=3 {
        queue.fill(endpoint, 1);
    }
    let fixture = Fixture::new(queue, &[(1, 500), (2, 410)]);
    let is_logged = |tables: &WebhookTables, endpoint| {
        let mut logs = tables.logs.values();
        logs.any(|row| row.log.endpoint_id == endpoint_id(endpoint))
    };
    fixture
        .wait_until(|tables| (1..=3).all(|endpoint| is_logged(tables, endpoint)))
        .await;
    let queue = fixture.stop().await;
    let recorded = |endpoint: u128| {
        let log = queue.first_log(endpoint);
        let delay = log.next_attempt_at.map(|at| (at - log.created_at).whole_seconds());
        (log.response_status, log.error, delay, log.duration_ms.unwrap() / 1000)
    };
    assert_eq!(recorded(1), (Some(500), None, Some(5), 0));
    assert_eq!(recorded(2), (Some(410), None, None, 0));
    assert_eq!(recorded(3), (None, Some("timed_out".into()), Some(5), 15));
    let gone = queue.endpoint(2).stored.webhook;
    assert_eq!(
        (gone.is_active, gone.disabled_reason),
        (false, Some(DisabledReason::Gone))
    );
    for failing in [1, 3] {
        let endpoint = queue.endpoint(failing);
        assert!(endpoint.stored.webhook.is_active && endpoint.health != Health::Well);
    }
    let tables = queue.tables();
    let events: Vec<&Event> = tables.outbox.iter().map(|row| &row.event).collect();
    let [Event::Notification(notification), Event::Audit(audit)] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(audit.user_id, None);
    assert_eq!(
        notification.message,
        "Webhook CI was disabled and no longer delivers to e.example: it responded with 410 Gone."
    );
}

#[tokio::test(start_paused = true)]
async fn record_failure_is_retried_without_another_call() {
    let queue = Queue::new();
    queue.fill(1, 20);
    queue.failures.store(5, Ordering::SeqCst);
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(|tables| tables.deliveries.is_empty()).await;
    assert_eq!(fixture.receivers.1.lock().unwrap().len(), 20);
    assert_eq!(fixture.stop().await.tables().logs.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn deliverer_shutdown_ends_calls_and_releases_claims() {
    let queue = Queue::new();
    queue.fill(9, 30);
    let fixture = Fixture::new(queue, &[]);
    while fixture.receivers.1.lock().unwrap().len() < 4 {
        tokio::time::sleep(StdDuration::from_millis(1)).await;
    }
    let queue = fixture.stop().await;
    let tables = queue.tables();
    assert_eq!(tables.logs.len(), 4, "in-flight calls are recorded");
    assert!(tables.deliveries.values().all(|row| !row.leased && row.claim > 0));
    let released = tables.deliveries.values().filter(|row| row.attempts == 0).count();
    assert_eq!(released, 26);
}

#[tokio::test(start_paused = true)]
async fn stale_claims_behind_slow_calls_are_released() {
    let queue = Queue::new();
    queue.fill(9, 32);
    let fixture = Fixture::new(queue, &[]);
    // The first leases expire after 60 seconds. Before that, all of them ended or were released.
    tokio::time::sleep(StdDuration::from_secs(50)).await;
    let has_first_lease = |row: &InMemoryDelivery| row.leased && row.claim <= 32;
    assert!(!fixture.queue.tables().deliveries.values().any(has_first_lease));
    tokio::time::sleep(StdDuration::from_secs(40)).await;
    let calls = fixture.receivers.1.lock().unwrap().len();
    assert!((8..=12).contains(&calls), "{calls}: one at a time after the first four");
    fixture.stop().await;
}

#[tokio::test(start_paused = true)]
async fn delivery_with_unreadable_secret_makes_no_call() {
    let queue = Queue::new();
    queue.fill(1, 1);
    let unreadable = Sealed(b"no hex".to_vec());
    queue
        .tables()
        .endpoints
        .get_mut(&endpoint_id(1))
        .unwrap()
        .stored
        .secrets
        .current = unreadable;
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(|tables| !tables.logs.is_empty()).await;
    assert!(fixture.receivers.1.lock().unwrap().is_empty());
    let log = fixture.stop().await.first_log(1);
    assert_eq!(log.error.as_deref(), Some("secret_unreadable"));
    assert!(log.next_attempt_at.is_some());
}
