//! Database ports of billing.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    Change, ChangeOutcome, GatewayEvent, GatewayPayment, Overview, Payment, RecordOutcome, ReserveOutcome, StoredEvent,
    Subscription, SubscriptionFacts,
};
use crate::shared::{AccountId, GatewayEventId, GuardOutcome, Page, PageQuery, StoreError, SubscriptionId};

/// Subscriptions and their changes. Every method sees the rows of one account only.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SubscriptionStore: Send + Sync {
    /// Inserts an attempt as the account's one live subscription. Of concurrent callers exactly one succeeds.
    async fn reserve(&self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError>;

    /// Finds a subscription or an attempt.
    async fn find(&self, account: AccountId, id: SubscriptionId) -> Result<Option<Subscription>, StoreError>;

    /// Returns what [`super::effect`] reads: the subscription, the payment with this gateway id, and the account's
    /// other subscriptions.
    async fn facts(
        &self,
        account: AccountId,
        id: SubscriptionId,
        gateway_payment_id: Option<String>,
    ) -> Result<Option<SubscriptionFacts>, StoreError>;

    /// Writes a change if the subscription still has the version of `change.subscription` (optimistic locking). Keeps
    /// its billing type, billing e-mail and creation time.
    ///
    /// The guards are checked in the order `Repeated`, `Exceeds`, `Missing`, `Stale`; the first one that refuses the
    /// change is the outcome, and nothing is written. Otherwise one transaction MUST:
    /// - mark the applied event. A change whose event is already marked is `Repeated`.
    /// - write the subscription, with a version raised by one, and the account's plan.
    /// - insert the payment, or update the row with its gateway id, which keeps its id, subscription and creation time.
    /// - map a new gateway subscription id to the subscription for [`GatewayEventStore::owner`]. An id stays with the
    ///   first subscription that has it. Afterwards the store makes the deferred events of this id due.
    /// - append `change.events`, then the [`changed_event`](super::changed_event) if there is one.
    async fn write(&self, change: &Change) -> Result<ChangeOutcome, StoreError>;

    /// Marks an event without effect as applied, so that a later application has no effect either.
    async fn mark_applied(&self, account: AccountId, event: GatewayEventId) -> Result<(), StoreError>;

    /// Deletes an attempt, with its payments, if it still has this version. `Stale`: the version differs or the row is
    /// no attempt.
    async fn remove(&self, attempt: &Subscription) -> Result<GuardOutcome, StoreError>;
}

/// The plan, usage and payments of an account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait BillingAccountStore: Send + Sync {
    /// Returns the account's plan, usage and live subscription. Attempts are excluded.
    async fn overview(&self, account: AccountId) -> Result<Overview, StoreError>;

    /// Returns one page of the payments, newest first, with the exact total.
    async fn history(&self, account: AccountId, page: PageQuery) -> Result<Page<Payment>, StoreError>;

    /// Whether a payment of the gateway belongs to one of the account's subscriptions.
    async fn owns(&self, account: AccountId, payment: &GatewayPayment) -> Result<bool, StoreError>;
}

/// Parses the events that the gateway posts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait GatewayEventReader: Send + Sync {
    /// Returns the deduplication key of an event and the few fields that are stored. MUST return an event without effect
    /// for a malformed body.
    fn read(&self, body: &[u8]) -> GatewayEvent;
}

/// Received gateway events of all accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait GatewayEventStore: Send + Sync {
    /// Inserts an event, deduplicated by its key. An event that can have an effect waits to be applied. It is claimed
    /// at once if the lease is positive and no other event of its gateway subscription waits.
    async fn record(
        &self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> Result<RecordOutcome, StoreError>;

    /// Claims the first due event that has no older waiting event of the same gateway subscription: of `subject`, or of
    /// any if `None`. No other caller receives it before the lease expires.
    async fn claim(&self, subject: Option<String>, lease: Duration) -> Result<Option<StoredEvent>, StoreError>;

    /// Marks an event as finished: its effect is written, or it has none.
    async fn finish(&self, id: GatewayEventId) -> Result<(), StoreError>;

    /// Makes an event due again after `delay` and counts the attempt, unless it is finished.
    async fn defer(&self, id: GatewayEventId, delay: Duration) -> Result<(), StoreError>;

    /// Finds the account and subscription by the gateway's subscription id.
    async fn owner(&self, subject: &str) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;

    /// Deletes up to `limit` finished events that were received at least `age` ago, oldest first, with their marks.
    /// Returns how many.
    async fn purge(&self, age: Duration, limit: i64) -> Result<usize, StoreError>;
}

/// Queues of the subscription reconciler, across all accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SubscriptionWorkStore: Send + Sync {
    /// Claims the subscription whose intent has been due for a check for the longest time, and makes it due again after
    /// `pause`. MUST NOT change its version or its lease: the request that calls the gateway may still write first.
    async fn claim_intent(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;

    /// Claims the subscription with the earliest `check_at` that has passed, because the gateway sent no event. It is due
    /// again after `pause`. MUST NOT change its version. Ended subscriptions have no `check_at`.
    async fn claim_check(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;

    /// Finds the cancelled subscription without `lapsed_at` whose paid period ended first. A missing period ended before
    /// all others.
    async fn next_lapse(&self) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;
}
