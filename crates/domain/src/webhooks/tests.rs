//! Tests of the deliverer with an in-memory queue and scripted receivers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::*;
use crate::shared::{
    AccountId, Event, Ids, MockCipher, Sealed, Shutdown, StoreError, Timer, WebhookEventId, WebhookId,
};

pub(super) const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

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

#[derive(Clone)]
struct Row {
    claimed: ClaimedDelivery,
    leased: bool,
}

#[derive(Default)]
struct Queue {
    rows: Mutex<HashMap<WebhookEventId, Row>>,
    attempts: Mutex<Vec<Attempt>>,
    health_updates: Mutex<Vec<HealthUpdate>>,
    released: AtomicUsize,
    /// How many record operations fail first.
    failures: AtomicUsize,
}

impl Queue {
    fn fill(&self, endpoint: u128, count: usize) {
        let mut rows = self.rows.lock().unwrap();
        for _ in 0..count {
            let claimed = claimed(WebhookId(Uuid::from_u128(endpoint)));
            rows.insert(claimed.key.event_id, Row { claimed, leased: false });
        }
    }

    fn left(&self) -> usize {
        self.rows.lock().unwrap().len()
    }
}

#[async_trait]
impl DeliveryQueue for Queue {
    async fn claim(&self, request: &ClaimRequest, _: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let mut room: HashMap<WebhookId, i64> = request.endpoints.iter().copied().collect();
        let mut rows = self.rows.lock().unwrap();
        let mut taken = Vec::new();
        for row in rows.values_mut().filter(|row| !row.leased) {
            let room = room.entry(row.claimed.key.endpoint_id).or_insert(request.others);
            if *room > 0 && i64::try_from(taken.len()).unwrap() < request.limit {
                *room -= 1;
                row.leased = true;
                taken.push(row.claimed.clone());
            }
        }
        Ok(taken)
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
        for attempt in attempts {
            self.rows.lock().unwrap().remove(&attempt.key.event_id);
            self.attempts.lock().unwrap().push(attempt.clone());
        }
        self.health_updates
            .lock()
            .unwrap()
            .extend(health_updates.iter().map(|(.., health_update)| health_update.clone()));
        Ok(())
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        self.released.fetch_add(claims.len(), Ordering::SeqCst);
        for (key, _) in claims {
            if let Some(row) = self.rows.lock().unwrap().get_mut(&key.event_id) {
                row.leased = false;
            }
        }
        Ok(())
    }

    async fn sweep(&self, _: Duration, _: i64) -> Result<usize, StoreError> {
        Ok(0)
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
            clock: Arc::new(Clock(tokio::time::Instant::now())),
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

    async fn wait_until(&self, left: usize) {
        while self.queue.left() > left {
            tokio::time::sleep(StdDuration::from_millis(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_is_signed_and_recorded_once() {
    let queue = Queue::default();
    queue.fill(1, 700);
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(0).await;
    let requests = std::mem::take(&mut *fixture.receivers.1.lock().unwrap());
    let queue = fixture.stop().await;
    assert_eq!((requests.len(), queue.attempts.lock().unwrap().len()), (700, 700));
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
    let recovered = |health_update: &HealthUpdate| *health_update == HealthUpdate::Recovered;
    assert!(queue.health_updates.lock().unwrap().iter().all(recovered));
}

#[tokio::test(start_paused = true)]
async fn unresponsive_endpoints_delay_no_other_endpoint() {
    let queue = Queue::default();
    for unresponsive in 2..=60 {
        queue.fill(unresponsive, 50);
    }
    queue.fill(1, 1000);
    let started_at = tokio::time::Instant::now();
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(59 * 50).await;
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
    let queue = Queue::default();
    queue.fill(1, 1);
    queue.fill(2, 1);
    queue.fill(3, 1);
    let fixture = Fixture::new(queue, &[(1, 500), (2, 410)]);
    fixture.wait_until(0).await;
    let queue = fixture.stop().await;
    let attempts = queue.attempts.lock().unwrap();
    let recorded = |endpoint: u128| {
        let id = WebhookId(Uuid::from_u128(endpoint));
        let attempt = attempts.iter().find(|attempt| attempt.key.endpoint_id == id).unwrap();
        (
            attempt.status,
            attempt.error.clone(),
            attempt.state,
            attempt.number,
            attempt.duration.whole_seconds(),
        )
    };
    let retry = DeliveryState::Waiting(Duration::seconds(5));
    assert_eq!(recorded(1), (Some(500), None, retry, 1, 0));
    assert_eq!(recorded(2), (Some(410), None, DeliveryState::Failed, 1, 0));
    assert_eq!(recorded(3), (None, Some("timed_out".into()), retry, 1, 15));
    let health_updates = queue.health_updates.lock().unwrap();
    let gone = health_updates.iter().filter(|health_update| match health_update {
        HealthUpdate::Disabled {
            reason: DisabledReason::Gone,
            events,
            ..
        } => matches!(&events[..], [Event::Notification(notification), Event::Audit(audit)] if audit.user_id.is_none()
            && notification.message
                == "Webhook CI was disabled and no longer delivers to e.example: it responded with 410 Gone."),
        _ => false,
    });
    let failing = health_updates
        .iter()
        .filter(|health_update| matches!(health_update, HealthUpdate::Failing { .. }));
    assert_eq!((gone.count(), failing.count()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn record_failure_is_retried_without_another_call() {
    let queue = Queue::default();
    queue.fill(1, 20);
    queue.failures.store(5, Ordering::SeqCst);
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(0).await;
    assert_eq!(fixture.receivers.1.lock().unwrap().len(), 20);
    assert_eq!(fixture.stop().await.attempts.lock().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn deliverer_shutdown_ends_calls_and_releases_claims() {
    let queue = Queue::default();
    queue.fill(9, 30);
    let fixture = Fixture::new(queue, &[]);
    while fixture.receivers.1.lock().unwrap().len() < 4 {
        tokio::time::sleep(StdDuration::from_millis(1)).await;
    }
    let queue = fixture.stop().await;
    assert_eq!(queue.attempts.lock().unwrap().len(), 4, "in-flight calls are recorded");
    assert_eq!(queue.released.load(Ordering::SeqCst), 26);
    assert!(queue.rows.lock().unwrap().values().all(|row| !row.leased));
}

#[tokio::test(start_paused = true)]
async fn stale_claims_behind_slow_calls_are_released() {
    let queue = Queue::default();
    queue.fill(9, 32);
    let fixture = Fixture::new(queue, &[]);
    tokio::time::sleep(StdDuration::from_secs(90)).await;
    assert!(fixture.queue.released.load(Ordering::SeqCst) > 0);
    let calls = fixture.receivers.1.lock().unwrap().len();
    assert!((8..=12).contains(&calls), "{calls}: one at a time after the first four");
    fixture.stop().await;
}

#[tokio::test(start_paused = true)]
async fn delivery_with_unreadable_secret_makes_no_call() {
    let queue = Queue::default();
    queue.fill(1, 1);
    for row in queue.rows.lock().unwrap().values_mut() {
        row.claimed.secrets.current = Sealed(b"no hex".to_vec());
    }
    let fixture = Fixture::new(queue, &[(1, 200)]);
    fixture.wait_until(0).await;
    assert!(fixture.receivers.1.lock().unwrap().is_empty());
    let queue = fixture.stop().await;
    let attempts = queue.attempts.lock().unwrap();
    assert_eq!(attempts[0].error.as_deref(), Some("secret_unreadable"));
    assert!(matches!(attempts[0].state, DeliveryState::Waiting(_)));
}
