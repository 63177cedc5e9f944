//! The worker that delivers: claims, calls and records, all three at the same time. However many calls hang, one claim
//! and one record are always under way or about to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use time::Duration;

use super::lines::Lines;
use super::service::ENTITY;
use super::{
    Attempt, Bell, Body, Claimed, DeliveryGateway, DeliveryQueue, DisabledReason, Fate, Health, HealthChange,
    HealthNote, Jitter, Outcome, Request, Schedule, SecretBytes, Settlement, fate, health, sign,
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
struct Landed {
    claimed: Claimed,
    attempt: Attempt,
    fate: Fate,
}

/// What a deliverer waits for.
enum News {
    Landed(Box<Landed>),
    Claimed(Result<Vec<Claimed>, StoreError>, Duration),
    Recorded(Vec<Landed>, Result<(), StoreError>),
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
    pub bell: Arc<dyn Bell>,
    /// The delays between attempts.
    pub schedule: Schedule,
}

/// What is under way.
struct Work<'a> {
    deliverer: &'a Deliverer,
    lines: Lines,
    pending: FuturesUnordered<BoxFuture<'a, News>>,
    results: Vec<Landed>,
    /// A claim, or the rest after one, is under way.
    claiming: bool,
    recording: bool,
    stopping: bool,
}

impl Deliverer {
    /// Delivers until the server stops: then nothing begins any more, what was claimed is given back, and calls that
    /// are under way end and are recorded.
    pub async fn run(&self) {
        let mut work = Work {
            deliverer: self,
            lines: Lines::default(),
            pending: FuturesUnordered::new(),
            results: Vec::new(),
            claiming: false,
            recording: false,
            stopping: self.bell.stopping(),
        };
        work.spawn(async {
            self.bell.stopped().await;
            News::Stopped
        });
        work.go_on();
        while let Some(news) = work.pending.next().await {
            work.take_in(news);
            if work.stopping && work.is_over() {
                break;
            }
            work.go_on();
        }
        self.give_back(work.lines.clear()).await;
    }

    async fn give_back(&self, claimed: Vec<Claimed>) {
        if claimed.is_empty() {
            return;
        }
        let claims: Vec<_> = claimed.iter().map(|claimed| (claimed.key, claimed.claim)).collect();
        if let Err(error) = self.queue.release(&claims).await {
            // The leases end by themselves.
            self.bell.failed("giving deliveries back", &error);
        }
    }

    /// One attempt.
    async fn attempt(&self, claimed: Claimed) -> Landed {
        let began = self.clock.now();
        let (outcome, error) = match self.request(&claimed, began.unix_timestamp()) {
            Some(request) => {
                let outcome = self.gateway.deliver(&request).await;
                let error = match outcome {
                    Outcome::Answered { .. } => None,
                    Outcome::Unreachable(failure) => Some(failure.as_str()),
                };
                (Some(outcome), error)
            }
            None => (None, Some(UNREADABLE_SECRET)),
        };
        let number = claimed.attempts.saturating_add(1);
        let failed = Outcome::Unreachable(super::Failure::Broken);
        let fate = fate(outcome.unwrap_or(failed), number, &self.schedule, self.jitter.spread());
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
            settlement: settlement(fate),
        };
        Landed { claimed, attempt, fate }
    }

    /// None when the endpoint's secret cannot be read: nobody could tell that it is us.
    fn request(&self, claimed: &Claimed, timestamp: i64) -> Option<Request> {
        let open = |sealed| self.cipher.open(sealed).as_ref().and_then(SecretBytes::of_hex);
        let mut secrets = vec![open(&claimed.secrets.current)?];
        secrets.extend(claimed.secrets.previous.as_ref().and_then(|(sealed, _)| open(sealed)));
        let body = Body {
            id: claimed.key.event_id,
            kind: claimed.kind.clone(),
            timestamp: claimed.occurred_at,
            account_id: claimed.key.account_id,
            data: claimed.data.clone(),
        };
        let body = serde_json::to_vec(&body).ok()?;
        let message_id = claimed.key.event_id.to_string();
        Some(Request {
            url: claimed.url.clone(),
            signatures: sign(&secrets, &message_id, timestamp, &body),
            message_id,
            timestamp,
            body,
        })
    }

    async fn record(&self, results: Vec<Landed>) -> News {
        let attempts: Vec<Attempt> = results.iter().map(|landed| landed.attempt.clone()).collect();
        let notes = self.notes(&results);
        let done = self.queue.finish(&attempts, &notes).await;
        News::Recorded(results, done)
    }

    /// What follows for the endpoints.
    fn notes(&self, results: &[Landed]) -> Vec<(AccountId, WebhookId, HealthNote)> {
        let mut endpoints: BTreeMap<WebhookId, (&Claimed, Vec<Fate>)> = BTreeMap::new();
        for landed in results {
            let claimed = &landed.claimed;
            let entry = endpoints.entry(claimed.key.endpoint_id).or_insert((claimed, vec![]));
            entry.1.push(landed.fate);
        }
        let now = self.clock.now();
        let note = |claimed: &Claimed, fates: &[Fate]| match health(claimed.health, fates, now) {
            HealthChange::Keep => None,
            HealthChange::Recovered => Some(HealthNote::Recovered),
            HealthChange::Failing(since) => Some(HealthNote::Failing {
                known: claimed.health,
                since,
                at: now,
            }),
            HealthChange::Disable(reason) => Some(HealthNote::Disabled {
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
            .filter_map(|(claimed, fates)| {
                let note = note(claimed, &fates)?;
                Some((claimed.key.account_id, claimed.key.endpoint_id, note))
            })
            .collect()
    }
}

impl<'a> Work<'a> {
    fn spawn(&mut self, news: impl Future<Output = News> + Send + 'a) {
        self.pending.push(Box::pin(news));
    }

    /// Whether, of a deliverer that stops, nothing is left to wait for.
    fn is_over(&self) -> bool {
        self.lines.open() == 0 && self.results.is_empty() && !self.recording
    }

    fn take_in(&mut self, news: News) {
        let deliverer = self.deliverer;
        match news {
            News::Landed(landed) => {
                let well = landed.fate == Fate::Delivered && landed.attempt.duration <= QUICK;
                self.lines.landed(landed.claimed.key.endpoint_id, well);
                self.results.push(*landed);
            }
            News::Claimed(Ok(claimed), took) => {
                let found = !claimed.is_empty();
                self.lines.line_up(claimed, deliverer.clock.now() - took);
                let rest = (took * CLAIM_REST).max(SHORTEST_REST).unsigned_abs();
                self.spawn(async move {
                    match found {
                        true => deliverer.bell.rest(rest).await,
                        false => deliverer.bell.rung(IDLE).await,
                    }
                    News::ClaimAgain
                });
            }
            News::Claimed(Err(error), _) => {
                deliverer.bell.failed("claiming deliveries", &error);
                self.spawn(async {
                    deliverer.bell.rest(FAULT).await;
                    News::ClaimAgain
                });
            }
            News::Recorded(_, Ok(())) => self.recording = false,
            // The calls were made: this must be written down, sooner or later.
            News::Recorded(results, Err(error)) => {
                deliverer.bell.failed("recording deliveries", &error);
                self.results.extend(results);
                self.spawn(async {
                    deliverer.bell.rest(FAULT).await;
                    News::RecordAgain
                });
            }
            News::ClaimAgain => self.claiming = false,
            News::RecordAgain => self.recording = false,
            News::GivenBack => {}
            News::Stopped => self.stopping = true,
        }
    }

    /// Begins what can begin.
    fn go_on(&mut self) {
        let deliverer = self.deliverer;
        if !self.stopping {
            self.start_calls();
            if !self.claiming
                && let Some(wanted) = self.lines.wanted()
            {
                self.claiming = true;
                self.spawn(async move {
                    let began = deliverer.clock.now();
                    let claimed = deliverer.queue.claim(&wanted, LEASE).await;
                    let took = (deliverer.clock.now() - began).max(Duration::ZERO);
                    News::Claimed(claimed, took)
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
            && let Some((claimed, at)) = self.lines.start()
        {
            // It waited too long behind slow ones of its endpoint: whoever claims it next has the time.
            if now - at > FRESH {
                self.lines.dismissed(claimed.key.endpoint_id);
                stale.push(claimed);
                continue;
            }
            self.spawn(async move { News::Landed(Box::new(deliverer.attempt(claimed).await)) });
        }
        if !stale.is_empty() {
            self.spawn(async move {
                deliverer.give_back(stale).await;
                News::GivenBack
            });
        }
    }
}

fn status(outcome: Outcome) -> Option<u16> {
    match outcome {
        Outcome::Answered { status, .. } => Some(status),
        Outcome::Unreachable(_) => None,
    }
}

fn settlement(fate: Fate) -> Settlement {
    match fate {
        Fate::Delivered => Settlement::Delivered,
        Fate::Retry(delay) => Settlement::Waiting(delay),
        Fate::Exhausted | Fate::Gone => Settlement::Failed,
    }
}

/// The entry of a change that nobody made: the log says of every webhook when it was switched off.
fn switched_off(claimed: &Claimed, reason: DisabledReason) -> Audit {
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
fn told(claimed: &Claimed, reason: DisabledReason) -> NotificationDraft {
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
