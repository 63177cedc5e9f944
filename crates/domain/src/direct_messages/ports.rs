//! The ports of direct messages.

use async_trait::async_trait;
use time::Duration;
use uuid::Uuid;

use super::{
    CreationFacts, CreationPlan, DirectMessage, DirectMessageQuery, HoldReason, LeavingMessage, MessageRequest,
    NumberChoice, NumberQueue,
};
use crate::campaigns::SendResult;
use crate::shared::{AccountId, CursorPage, MessageId, ProfileId, StoreError};
use crate::whatsapp::StoredProfile;

/// How the insert of new messages ended. Unless it is `Inserted`, nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationOutcome {
    Inserted,
    /// One of the references or contacts exists now: the caller reads the facts again.
    Changed,
    /// The month has only `left` messages for these.
    QuotaExceeded {
        month: time::Date,
        left: i64,
    },
}

/// How a cancel ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelOutcome {
    /// The message is cancelled, now or before.
    Cancelled(Box<DirectMessage>),
    /// The message was started, or has ended otherwise.
    AlreadyLeft,
    Missing,
}

/// Direct messages. Each method reads and writes one account only.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DirectMessageStore: Send + Sync {
    /// What decides on these requests.
    async fn facts(&self, account: AccountId, requests: &[MessageRequest]) -> Result<CreationFacts, StoreError>;

    /// Stores contacts and messages, queues the messages and reserves their quota, in one transaction.
    async fn insert(&self, account: AccountId, plan: &CreationPlan) -> Result<CreationOutcome, StoreError>;

    async fn find(&self, account: AccountId, id: MessageId) -> Result<Option<DirectMessage>, StoreError>;

    /// Newest first, then by id.
    async fn list(
        &self,
        account: AccountId,
        query: &DirectMessageQuery,
    ) -> Result<CursorPage<DirectMessage>, StoreError>;

    /// Cancels a message that was not started, with its event, and returns its quota. A cancel and a start of one
    /// message exclude each other.
    async fn cancel(&self, account: AccountId, id: MessageId) -> Result<CancelOutcome, StoreError>;
}

/// What a worker reads of a queue that it has leased.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueInputs {
    /// The number of the queue. None: the queue has none, or its number was removed.
    pub profile: Option<StoredProfile>,
    /// Whether the account is active.
    pub is_active: bool,
    /// Why and how long all messages of the queue are still held.
    pub held: Option<(HoldReason, Duration)>,
    /// Of a queue without a number: the number that sends its messages, because the account has connected one.
    pub successor: Option<NumberChoice>,
}

/// The queues of direct messages, across accounts. One worker at a time has leased a queue. Every method with a worker
/// renews or requires its lease; the database's clock decides when it expires.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DirectMessageQueue: Send + Sync {
    /// Leases the queue that has waited longest and has a due message. The messages that an earlier worker started and
    /// did not record become unknown.
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<NumberQueue>, StoreError>;

    /// None: the account was deleted.
    async fn inputs(&self, queue: NumberQueue) -> Result<Option<QueueInputs>, StoreError>;

    /// How many messages are due, at most `limit`. Holds due messages that the account's settings hold, so that they take
    /// no send slot; `start` checks the others again.
    async fn due(&self, queue: NumberQueue, limit: u32) -> Result<u32, StoreError>;

    /// Decides on up to `limit` due messages by [`departure`](super::departure): starts those that leave, holds those that
    /// the account's settings hold, and fails the others. Returns the started ones. None: another worker has leased the
    /// queue. Marketing messages to one person are checked one after another, with those of campaigns.
    ///
    /// The caller MUST call WhatsApp for a message only after this has returned it, and once.
    async fn start(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        limit: u32,
        lease: Duration,
        is_number_removed: bool,
    ) -> Result<Option<Vec<LeavingMessage>>, StoreError>;

    /// Records the results of started messages by [`MessageState::after`](super::MessageState::after), with quota,
    /// statistics and events, in one transaction. Valid also after the lease was lost.
    async fn record(&self, queue: NumberQueue, results: &[(MessageId, SendResult)]) -> Result<(), StoreError>;

    /// Releases the queue. It is due again when its first message is. The caller MUST have recorded all messages that
    /// it started.
    async fn release(&self, queue: NumberQueue, worker: Uuid) -> Result<(), StoreError>;

    /// Releases the queue and fails a batch of due messages that have expired. If a message is due within `delay`, all
    /// messages of the queue wait until `delay` is over. The queue is due earlier if a message expires earlier.
    async fn hold(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        reason: HoldReason,
        delay: Duration,
    ) -> Result<(), StoreError>;

    /// Moves the due messages of a queue without a number to that of the contact's conversation, if it is verified, else
    /// to that of `number`, and releases the queue.
    async fn hand_over(&self, queue: NumberQueue, worker: Uuid, number: ProfileId) -> Result<(), StoreError>;

    /// Releases the queue after an error. Messages that were started and not recorded become unknown.
    async fn abandon(&self, queue: NumberQueue, worker: Uuid) -> Result<(), StoreError>;

    /// Makes at most `limit` held messages due whose account has changed its settings since they were checked, across
    /// accounts. Returns how many.
    async fn release_holds(&self, limit: i64) -> Result<u64, StoreError>;

    /// Fails at most `limit` pending messages that were started more than `ttl` ago, also those not yet marked unknown.
    /// Returns how many.
    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError>;
}
