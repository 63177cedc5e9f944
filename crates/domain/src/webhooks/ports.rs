//! What webhooks need from outside.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::{
    DisabledReason, FeedQuery, Health, InboundLogEntry, LogQuery, SealedSecrets, StoredWebhook, Webhook, WebhookEvent,
    WebhookLog,
};
use crate::shared::{
    AccountId, CursorPage, Event, InsertOutcome, Page, PageQuery, StoreError, UpdateOutcome, WebhookEventId, WebhookId,
    WebhookLogId, redacted_debug,
};

/// One attempt to deliver, as it leaves.
#[derive(Clone, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// Where to.
    pub url: String,
    /// The header `webhook-id`: the same in every attempt.
    pub message_id: String,
    /// The header `webhook-timestamp`: when this attempt was made, in seconds since 1970.
    pub timestamp: i64,
    /// The header `webhook-signature`.
    pub signatures: String,
    /// The body, to be sent as it is: it is what was signed.
    pub body: Vec<u8>,
}

redacted_debug!(DeliveryRequest {});

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver answered.
    Answered {
        /// With this status.
        status: u16,
        /// And wants to be left alone for so long.
        retry_after: Option<Duration>,
    },
    /// There was no valid response.
    Unreachable(DeliveryFailure),
}

/// Why there was no answer: published in a log's `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryFailure {
    /// The egress rules forbid the address.
    Refused,
    /// The name has no address.
    Resolution,
    /// Nobody took the call.
    Connection,
    /// No trust was established.
    Tls,
    /// It took too long.
    TimedOut,
    /// The answer was unreadable, or cut off.
    Broken,
}

impl DeliveryFailure {
    /// The published value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Resolution => "resolution",
            Self::Connection => "connection",
            Self::Tls => "tls",
            Self::TimedOut => "timed_out",
            Self::Broken => "broken",
        }
    }
}

/// Calls receivers.
///
/// Contract: connects to no address that is not allowed, whatever the name resolves to; follows no redirect; gives up
/// after 15 seconds at most; keeps nothing of the answer but what [`AttemptOutcome`] says.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryGateway: Send + Sync {
    /// Makes one attempt.
    async fn deliver(&self, request: &DeliveryRequest) -> AttemptOutcome;
}

/// Draws what is to be spread.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Jitter: Send + Sync {
    /// A random number between -1 and 1.
    fn spread(&self) -> f64;
}

/// What redelivering a log needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedDelivery {
    /// Of which endpoint.
    pub endpoint_id: WebhookId,
    /// The event; none of what was received.
    pub event_id: Option<WebhookEventId>,
}

/// Endpoints, logs and the feed of one account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WebhookStore: Send + Sync {
    /// Newest first.
    async fn page(&self, account: AccountId, page: PageQuery) -> Result<Page<Webhook>, StoreError>;

    /// One endpoint.
    async fn find(&self, account: AccountId, id: WebhookId) -> Result<Option<StoredWebhook>, StoreError>;

    /// Writes the endpoint and the events in one transaction, unless the account already has `at_most`, also counting
    /// those that are being made at the same moment.
    async fn insert(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        at_most: i64,
        events: &[Event],
    ) -> Result<InsertOutcome, StoreError>;

    /// Replaces an endpoint, provided that it still has the version of `webhook`, with the events, in one transaction.
    /// What waits for an endpoint that is switched off is dropped; one that is switched on forgets its failures.
    async fn update(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Removes the endpoint and what waits for it, and writes the events; false when the account has no such one.
    async fn delete(&self, account: AccountId, id: WebhookId, events: &[Event]) -> Result<bool, StoreError>;

    /// Logs, newest first.
    async fn logs(&self, account: AccountId, query: &LogQuery) -> Result<Vec<WebhookLog>, StoreError>;

    /// What a log was of.
    async fn logged(&self, account: AccountId, id: WebhookLogId) -> Result<Option<LoggedDelivery>, StoreError>;

    /// What happened after the last thing that was seen, in the order in which it became visible: whoever goes on from
    /// `next_cursor` misses nothing, and `next_cursor` is there also at the end. A slice may hold less than asked for,
    /// or nothing, where more follows.
    async fn feed(&self, account: AccountId, query: &FeedQuery) -> Result<CursorPage<WebhookEvent>, StoreError>;

    /// Writes an event that is in nobody's feed, and its delivery to this endpoint. False when there is no such one.
    async fn ping(&self, account: AccountId, id: WebhookId, event: &WebhookEvent) -> Result<bool, StoreError>;

    /// Queues the delivery of an event again, from the first attempt, unless it is being made right now. False when the
    /// event or the endpoint is gone.
    async fn redeliver(&self, account: AccountId, id: WebhookId, event: WebhookEventId) -> Result<bool, StoreError>;

    /// Queues the deliveries to this endpoint that failed or were dropped since, and did not succeed afterwards; how
    /// many. Slices of at most so many are committed one after the other, up to what had failed last when it began: what
    /// fails again meanwhile makes it no longer.
    async fn recover(
        &self,
        account: AccountId,
        id: WebhookId,
        since: OffsetDateTime,
        slice: i64,
    ) -> Result<i64, StoreError>;
}

/// Inbound endpoints, and what they received.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InboundStore: Send + Sync {
    /// An inbound endpoint of any account that is switched on, if its account may work.
    async fn endpoint(&self, id: WebhookId) -> Result<Option<(AccountId, StoredWebhook)>, StoreError>;

    /// Whether a call with this `webhook-id` was taken there.
    async fn is_taken(&self, account: AccountId, id: WebhookId, message_id: &str) -> Result<bool, StoreError>;

    /// Logs a call that was answered. One that was taken is logged once.
    async fn log(&self, account: AccountId, entry: &InboundLogEntry) -> Result<(), StoreError>;
}

/// Which delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryKey {
    /// Whose.
    pub account_id: AccountId,
    /// Of what.
    pub event_id: WebhookEventId,
    /// Where to.
    pub endpoint_id: WebhookId,
}

/// A delivery that this process may attempt.
#[derive(Clone, PartialEq)]
pub struct ClaimedDelivery {
    /// Which one.
    pub key: DeliveryKey,
    /// Which claim of it.
    pub claim: i64,
    /// How many attempts were made.
    pub attempts: u32,
    /// The endpoint's name.
    pub name: String,
    /// Where to.
    pub url: String,
    /// With whose signatures; a previous secret that is over is not among them.
    pub secrets: SealedSecrets,
    /// What is known of the endpoint.
    pub health: Health,
    /// The kind of the event.
    pub kind: String,
    /// When it happened.
    pub occurred_at: OffsetDateTime,
    /// What it says.
    pub data: Value,
}

redacted_debug!(ClaimedDelivery { key });

/// How much may be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Of these endpoints so many each.
    pub endpoints: Vec<(WebhookId, i64)>,
    /// Of every other one.
    pub others: i64,
    /// In all.
    pub limit: i64,
}

/// What becomes of a delivery in the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeliveryState {
    /// It is over and well: its log tells of it.
    Delivered,
    /// It waits again, for so long.
    Waiting(time::Duration),
    /// It is given up, until somebody recovers it.
    Failed,
}

/// An attempt that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Of which delivery.
    pub key: DeliveryKey,
    /// Under which claim.
    pub claim: i64,
    /// The id of its log.
    pub log_id: WebhookLogId,
    /// Which one it was, from 1.
    pub number: u32,
    /// The kind of the event.
    pub kind: String,
    /// What was answered.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub error: Option<String>,
    /// How long it took.
    pub duration: time::Duration,
    /// When it ended.
    pub at: OffsetDateTime,
    /// What becomes of the delivery.
    pub state: DeliveryState,
}

/// What becomes of an endpoint's health.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthUpdate {
    /// It works.
    Recovered,
    /// It fails since this moment, if what was known of it is still what is known.
    Failing {
        /// What was known.
        known: Health,
        /// Since when.
        since: OffsetDateTime,
        /// When it was noted.
        at: OffsetDateTime,
    },
    /// It is switched off, if it is still on and, unless it is gone, what was known of it is still what is known.
    Disabled {
        /// What was known.
        known: Health,
        /// Why.
        reason: DisabledReason,
        /// What the account is told.
        events: Vec<Event>,
    },
}

/// Deliveries of all accounts.
///
/// Contract: a delivery is claimed by one process at a time, and again by any when its lease is over; what a process
/// finishes that has not got the claim any more changes nothing of the delivery, but is logged. Deliveries to inactive
/// endpoints and of suspended accounts are not claimed.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryQueue: Send + Sync {
    /// Takes due deliveries, the oldest of each endpoint first.
    async fn claim(&self, request: &ClaimRequest, lease: time::Duration) -> Result<Vec<ClaimedDelivery>, StoreError>;

    /// Writes attempts, their logs and what follows for their endpoints, all or nothing. Done twice, it is as if it was
    /// done once.
    async fn finish(
        &self,
        attempts: &[Attempt],
        health_updates: &[(AccountId, WebhookId, HealthUpdate)],
    ) -> Result<(), StoreError>;

    /// Gives claims back that no attempt was made for.
    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError>;

    /// Forgets up to `limit` each of the logs and the events that are older; how many.
    async fn sweep(&self, older_than: time::Duration, limit: i64) -> Result<usize, StoreError>;
}

/// What a deliverer hears of the server.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WorkSignal: Send + Sync {
    /// Returns when deliveries may have come, or after this time.
    async fn wait_for_work(&self, longest: Duration);

    /// Returns after this time.
    async fn rest(&self, time: Duration);

    /// Returns when the server stops.
    async fn stopped(&self);

    /// Whether the server stops.
    fn stopping(&self) -> bool;

    /// Tells whoever runs the server that this failed; it is tried again.
    fn failed(&self, what: &'static str, error: &StoreError);
}
