//! What billing needs from the store.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    GatewayEvent, GatewayPayment, Overview, Payment, PlanLimits, RecordOutcome, StoredEvent, Subscription,
    SubscriptionFacts,
};
use crate::shared::{AccountId, Event, FieldErrors, GatewayEventId, Page, PageQuery, StoreError, SubscriptionId};

/// A change of a subscription, and all that commits with it. Every change of a subscription is one of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The subscription as it shall be; its version is the one that was decided on.
    pub subscription: Subscription,
    /// The plan that the account's subscriptions give it, where that changes. The store MUST write the better of it and
    /// the granted plan.
    pub account_plan: Option<String>,
    /// Whether the plan that an administrator granted is withdrawn: the subscription has the plan that they want.
    pub withdraws_grant: bool,
    /// The event of the gateway whose effect this is.
    pub applies: Option<GatewayEventId>,
    /// A row of the history, new or changed: there is one for each payment of the gateway.
    pub payment: Option<Payment>,
    /// Limits that the usage has to fit, as counted in the same transaction.
    pub limits: Option<PlanLimits>,
    /// What the rest of the system is told.
    pub events: Vec<Event>,
}

impl Change {
    /// A change of the subscription alone.
    pub fn of(subscription: Subscription) -> Self {
        Self {
            subscription,
            account_plan: None,
            withdraws_grant: false,
            applies: None,
            payment: None,
            limits: None,
            events: vec![],
        }
    }
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// Written.
    Done,
    /// The subscription, or the account's other ones, changed since: nothing was written.
    Stale,
    /// There is no such subscription.
    Missing,
    /// The usage does not fit: nothing was written.
    Exceeds(FieldErrors),
    /// The event has had its effect before: nothing was written.
    Repeated,
}

/// How a reservation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// The place is taken by this attempt.
    Done,
    /// Another subscription, or another attempt, has the place.
    Taken(Box<Subscription>),
}

/// Subscriptions and payments. Every method sees the one account alone.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SubscriptionStore: Send + Sync {
    /// What the account has and uses. Its subscription is the live one, attempts aside.
    async fn overview(&self, account: AccountId) -> Result<Overview, StoreError>;

    /// Takes the account's one place for a live subscription. Of concurrent callers one gets it.
    async fn reserve(&self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError>;

    /// One subscription, also an attempt.
    async fn find(&self, account: AccountId, id: SubscriptionId) -> Result<Option<Subscription>, StoreError>;

    /// What news about a subscription, and about the payment that the gateway knows by this id, meets.
    async fn facts(
        &self,
        account: AccountId,
        id: SubscriptionId,
        gateway_payment_id: Option<String>,
    ) -> Result<Option<SubscriptionFacts>, StoreError>;

    /// Writes a change, provided the subscription still has the version that was decided on. A new gateway id also
    /// enters the directory by which events find the account. The event that the change applies MUST be marked as
    /// applied in the same transaction, and a change whose event is marked MUST NOT be written.
    async fn write(&self, change: &Change) -> Result<ChangeOutcome, StoreError>;

    /// Marks an event that changes nothing as applied, so that it changes nothing later either.
    async fn mark_applied(&self, account: AccountId, event: GatewayEventId) -> Result<(), StoreError>;

    /// Removes an attempt, provided it still has this version; false when it has not, or is none.
    async fn remove(&self, attempt: &Subscription) -> Result<bool, StoreError>;

    /// One page of the payments, the newest first, with the exact total.
    async fn history(&self, account: AccountId, page: PageQuery) -> Result<Page<Payment>, StoreError>;

    /// Whether a payment of the gateway is of one of the account's subscriptions.
    async fn owns(&self, account: AccountId, payment: &GatewayPayment) -> Result<bool, StoreError>;
}

/// Events of the gateway as they were received; across accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait GatewayEventStore: Send + Sync {
    /// Keeps an event that arrived at a moment, to be applied unless it can change nothing. Where no other event of its
    /// subject waits it is claimed at the same time.
    async fn record(
        &self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> Result<RecordOutcome, StoreError>;

    /// Takes the first waiting event that is due and that no older waiting event of the same subject stands before: of
    /// this subject, or of any. Nobody else gets it before the lease is over.
    async fn claim(&self, subject: Option<String>, lease: Duration) -> Result<Option<StoredEvent>, StoreError>;

    /// Its effect is written, or there is none.
    async fn finish(&self, id: GatewayEventId) -> Result<(), StoreError>;

    /// Tries it again later, unless it is finished.
    async fn defer(&self, id: GatewayEventId, delay: Duration) -> Result<(), StoreError>;

    /// Whose subscription the gateway knows by this id.
    async fn owner(&self, subject: &str) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;

    /// Deletes up to `limit` finished events that are older than `age`. Returns how many.
    async fn purge(&self, age: Duration, limit: i64) -> Result<usize, StoreError>;
}

/// What has to be done about subscriptions by themselves; across accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SubscriptionWorkStore: Send + Sync {
    /// Takes a subscription with an intent that the gateway is to be asked about; it comes up again after the pause. Its
    /// version and its lease MUST stay: the request that makes the call may still be first to write.
    async fn claim_intent(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;

    /// Takes a live subscription that the gateway should have told something about; it comes up again after the pause.
    async fn claim_check(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;

    /// A cancelled subscription whose paid period is over and whose end was not noted yet.
    async fn next_lapse(&self) -> Result<Option<(AccountId, SubscriptionId)>, StoreError>;
}
