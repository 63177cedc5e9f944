//! The ports of webhooks.

use async_trait::async_trait;
use serde_json::Value;
use time::OffsetDateTime;

use super::{
    AttemptOutcome, DeliveryRequest, DisabledReason, FeedQuery, Health, InboundLogEntry, LogQuery, SealedSecrets,
    StoredWebhook, Webhook, WebhookEvent, WebhookLog,
};
use crate::shared::{
    AccountId, CursorPage, Event, InsertOutcome, Page, PageQuery, RowOutcome, StoreError, UpdateOutcome,
    WebhookEventId, WebhookId, WebhookLogId, redacted_debug,
};

/// Calls the receivers of deliveries.
///
/// Contract: MUST connect only to addresses that the egress rules allow, also after resolving the name. MUST NOT follow
/// redirects. MUST time out after 15 seconds at most. MUST discard the response except for [`AttemptOutcome`].
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryGateway: Send + Sync {
    /// Makes one attempt.
    async fn deliver(&self, request: &DeliveryRequest) -> AttemptOutcome;
}

/// Draws random numbers that spread delays.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Jitter: Send + Sync {
    /// A random number between -1 and 1.
    fn spread(&self) -> f64;
}

/// The delivery that a log belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedDelivery {
    pub endpoint_id: WebhookId,
    /// `None` for a received call.
    pub event_id: Option<WebhookEventId>,
}

/// Endpoints of one account.
///
/// Contract: a write that succeeds MUST append its `events` to the outbox in its transaction. The endpoints after the
/// change decide whether a webhook event has a subscriber.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WebhookStore: Send + Sync {
    /// Lists endpoints, newest first.
    async fn page(&self, account: AccountId, page: PageQuery) -> Result<Page<Webhook>, StoreError>;

    async fn find(&self, account: AccountId, id: WebhookId) -> Result<Option<StoredWebhook>, StoreError>;

    /// Inserts an endpoint, whose id MUST be new in all accounts. Returns `Full` if the account already has `at_most`
    /// endpoints; concurrent inserts MUST count too.
    async fn insert(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        at_most: i64,
        events: &[Event],
    ) -> Result<InsertOutcome, StoreError>;

    /// Guarded write: replaces an endpoint, except `created_at`, if it still has the version of `webhook`. MUST increment
    /// the version, drop the waiting deliveries of an endpoint that is inactive now, also leased ones, and reset the
    /// failures of one that becomes active.
    async fn update(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Deletes an endpoint with all its deliveries. Their logs remain.
    async fn delete(&self, account: AccountId, id: WebhookId, events: &[Event]) -> Result<RowOutcome, StoreError>;
}

/// Logs and the feed of one account, and deliveries on its request.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WebhookLogStore: Send + Sync {
    /// Lists at most `query.limit` logs, newest first.
    async fn logs(&self, account: AccountId, query: &LogQuery) -> Result<Vec<WebhookLog>, StoreError>;

    /// Finds the delivery of a log.
    async fn logged(&self, account: AccountId, id: WebhookLogId) -> Result<Option<LoggedDelivery>, StoreError>;

    /// Lists the events after `query.after` in the order in which they became visible. A client that continues from
    /// `next_cursor` misses no event, and the last page has a `next_cursor` too. A page may hold fewer events than
    /// requested, or none, although more follow.
    async fn feed(&self, account: AccountId, query: &FeedQuery) -> Result<CursorPage<WebhookEvent>, StoreError>;

    /// Writes an event that appears in no feed, and its delivery to this endpoint. Returns `Missing` and writes
    /// nothing in the cases in which `redeliver` does.
    async fn ping(&self, account: AccountId, id: WebhookId, event: &WebhookEvent) -> Result<RowOutcome, StoreError>;

    /// Enqueues the delivery of an event again, from the first attempt. A leased delivery keeps its attempts and its
    /// lease. `Missing`: the event is no longer stored, or the endpoint is deleted, inactive or inbound.
    async fn redeliver(
        &self,
        account: AccountId,
        id: WebhookId,
        event: WebhookEventId,
    ) -> Result<RowOutcome, StoreError>;

    /// Enqueues the deliveries to this endpoint that failed or were dropped since `since` and did not succeed
    /// afterwards, from the first attempt, and returns their number. Includes those that wait for a retry, except leased
    /// ones. Commits batches of at most `slice` deliveries one after another, in the order of their failures. It covers
    /// the failures that existed at its start, so that new failures do not prolong it.
    async fn recover(
        &self,
        account: AccountId,
        id: WebhookId,
        since: OffsetDateTime,
        slice: i64,
    ) -> Result<i64, StoreError>;
}

/// Inbound endpoints and their logs.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InboundStore: Send + Sync {
    /// Finds an active inbound endpoint of any account that is not suspended.
    async fn endpoint(&self, id: WebhookId) -> Result<Option<(AccountId, StoredWebhook)>, StoreError>;

    /// Whether the endpoint has already accepted a call with this `webhook-id`.
    async fn is_taken(&self, account: AccountId, id: WebhookId, message_id: &str) -> Result<bool, StoreError>;

    /// Logs a call with its response. An accepted call MUST be logged only once.
    async fn log(&self, account: AccountId, entry: &InboundLogEntry) -> Result<(), StoreError>;
}

/// The key of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey {
    pub account_id: AccountId,
    pub event_id: WebhookEventId,
    pub endpoint_id: WebhookId,
}

/// A delivery that this process may attempt.
#[derive(Clone, PartialEq)]
pub struct ClaimedDelivery {
    pub key: DeliveryKey,
    /// Fencing token: the number of the claim.
    pub claim: i64,
    /// How many attempts ended before this claim.
    pub attempts: u32,
    /// The endpoint's name.
    pub name: String,
    pub url: String,
    /// The secrets that sign. An expired previous secret is absent.
    pub secrets: SealedSecrets,
    /// The endpoint's health at the time of the claim.
    pub health: Health,
    /// The type of the event.
    pub kind: String,
    pub occurred_at: OffsetDateTime,
    pub data: Value,
}

redacted_debug!(ClaimedDelivery { key });

/// Limits of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The limit of each of these endpoints.
    pub endpoints: Vec<(WebhookId, i64)>,
    /// The limit of every endpoint that is not in `endpoints`.
    pub others: i64,
    /// The limit of the whole claim.
    pub limit: i64,
}

/// The state that an attempt leaves a delivery in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeliveryState {
    /// It succeeded. Its log remains.
    Delivered,
    /// It waits for this time before the next attempt.
    Waiting(time::Duration),
    /// It is abandoned, unless the account recovers it.
    Failed,
}

/// A finished attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub key: DeliveryKey,
    /// The claim under which it was made.
    pub claim: i64,
    pub log_id: WebhookLogId,
    /// Counted from 1.
    pub number: u32,
    /// The type of the event.
    pub kind: String,
    /// The HTTP status of the response.
    pub status: Option<u16>,
    /// Why there was no response.
    pub error: Option<String>,
    pub duration: time::Duration,
    /// When it ended.
    pub at: OffsetDateTime,
    pub state: DeliveryState,
}

/// A change of an endpoint's health.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthUpdate {
    /// A delivery succeeded: reset the failures.
    Recovered,
    /// Optimistic locking: records the failure only if the stored first failure still equals that of `known`.
    Failing {
        known: Health,
        /// The first failure.
        since: OffsetDateTime,
        /// The failure that is recorded as the last one.
        at: OffsetDateTime,
    },
    /// Disables the endpoint if it is still active: increments its version, drops its waiting deliveries and appends
    /// `events`. Unless `reason` is `Gone`, the stored first failure must still equal that of `known`.
    Disabled {
        known: Health,
        reason: DisabledReason,
        /// The notification and audit entry to append to the outbox.
        events: Vec<Event>,
    },
}

/// Deliveries of all accounts.
///
/// Contract: only one process MUST hold the claim of a delivery at a time. Any process may claim it again after the
/// lease expires. The number of a claim MUST be greater than those of all earlier claims of the same event and endpoint,
/// also after a delivery that succeeded is enqueued again. An attempt under an older claim is logged but MUST NOT change
/// the delivery. Deliveries to inactive endpoints and of suspended accounts MUST NOT be claimed.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryQueue: Send + Sync {
    /// Claims due deliveries: of each endpoint those that have been due longest. If `ClaimRequest::limit` is lower than
    /// their number, the choice among endpoints is open. Returns them in the order of their events. MUST remove the
    /// deliveries whose event is no longer stored; they count towards the limits.
    async fn claim(&self, request: &ClaimRequest, lease: time::Duration) -> Result<Vec<ClaimedDelivery>, StoreError>;

    /// Records attempts, their logs and the health updates in one transaction. It MUST be idempotent. A success under the
    /// latest claim MUST remove the delivery even if it was released, dropped or enqueued again meanwhile. Any other
    /// result MUST change the delivery only if its latest claim has neither ended nor been released.
    async fn finish(
        &self,
        attempts: &[Attempt],
        health_updates: &[(AccountId, WebhookId, HealthUpdate)],
    ) -> Result<(), StoreError>;

    /// Releases claims for which no attempt was made: the deliveries are due at once. Claims that are not the latest are
    /// ignored.
    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError>;

    /// Purges up to `limit` failed or dropped deliveries of events that are older than `older_than` by the time in their
    /// id, and returns how many.
    async fn sweep(&self, older_than: time::Duration, limit: i64) -> Result<usize, StoreError>;
}

/// Wakes the deliverer when deliveries may be due.
#[async_trait]
pub trait WorkSignal: Send + Sync {
    /// Returns when deliveries may be due.
    async fn wait_for_work(&self);
}

/// Logs and counts what the deliverer does. An implementation MUST NOT block.
pub trait DelivererReport: Send + Sync {
    /// A claim returned this many deliveries.
    fn claimed(&self, deliveries: usize);

    /// The operation `what` failed. The deliverer retries it.
    fn failed(&self, what: &'static str, error: &StoreError);
}
