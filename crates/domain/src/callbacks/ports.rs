//! Ports of callbacks: their queue, the store of status updates, and the report of what is not applied.

use async_trait::async_trait;
use time::Duration;

use super::{CallbackPayload, NamedRecipient, StatusUpdate, Unread, Unreadable};
use crate::shared::{AccountId, CallbackId, StoreError, redacted_debug};

/// Callbacks, stored until they are processed, and the directory from WhatsApp's ids to accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait CallbackStore: Send + Sync {
    /// Stores a callback, claimed by the caller.
    async fn store(&self, id: CallbackId, body: &[u8], lease: Duration) -> Result<(), StoreError>;

    /// Claims the oldest due callback for `lease`: its lease has expired or does not exist, and its retry time has
    /// passed. None if no callback is due. The number of claims is counted, so that a callback which crashes every
    /// worker is recognized.
    async fn claim(&self, lease: Duration) -> Result<Option<StoredCallback>, StoreError>;

    /// Deletes a callback that was processed, or that will never match.
    async fn delete(&self, id: CallbackId) -> Result<(), StoreError>;

    /// Releases a callback that was applied as far as possible. It is due again after `delay`; `attempts` grows by one
    /// and `claims` is reset.
    async fn defer(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError>;

    /// Releases a callback that could not be applied. It is due again after `delay`.
    async fn postpone(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError>;

    /// Stores a callback as set aside: it is not claimed until an operator makes it due.
    async fn set_aside(&self, id: CallbackId) -> Result<(), StoreError>;

    /// The accounts that have or had this number. Messages that were sent from it still belong to them.
    async fn accounts_that_had_number(&self, phone_number_id: &str) -> Result<Vec<AccountId>, StoreError>;
}

/// A callback that waits to be processed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredCallback {
    pub id: CallbackId,
    /// The body as it was signed.
    pub body: Vec<u8>,
    /// How often the callback was applied and deferred.
    pub attempts: u32,
    /// How often the callback was claimed since then without being applied.
    pub claims: u32,
}

redacted_debug!(StoredCallback { id, attempts, claims });

/// Parses the bodies of callbacks.
pub trait CallbackReader: Send + Sync {
    /// Returns the changes in the order of the callback. MUST skip unsupported and malformed items, so that the rest of
    /// their batch is not lost.
    fn read(&self, body: &[u8]) -> Result<CallbackPayload, Unreadable>;
}

/// Counts and logs the parts of callbacks that are not applied. An implementation MUST NOT block, and MUST NOT log
/// bodies.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait CallbackReport: Send + Sync {
    /// A callback has an unsupported field or message type.
    fn unread(&self, unread: &Unread);

    /// A signed body is not a WhatsApp callback.
    fn unreadable(&self, id: CallbackId);

    /// A callback was set aside after its last attempt failed with this error.
    fn set_aside(&self, id: CallbackId, error: &StoreError);
}

/// Applies status updates to campaign sends and to replies.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait StatusUpdateStore: Send + Sync {
    /// Applies status updates to the account's sends and replies in one transaction with the counters. A message is
    /// found by Recado's id, otherwise by WhatsApp's. Each status follows `SendStatus::advance`, and each send advances
    /// at most once. A missing `wa_message_id` is stored. An error of the class `OptedOut` opts the contact out.
    /// Returns the positions in `updates` that match no message of the account.
    async fn apply(&self, account: AccountId, updates: &[StatusUpdate]) -> Result<Vec<usize>, StoreError>;

    /// The recipients of the account's messages of whose contacts the user id, or the parent's, is not stored. If a
    /// message was sent to a phone number and the recipient has none, it is that of the contact. Takes no locks: most
    /// status updates name what is stored.
    async fn new_recipients(
        &self,
        account: AccountId,
        recipients: &[NamedRecipient],
    ) -> Result<Vec<NamedRecipient>, StoreError>;
}
