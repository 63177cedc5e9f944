//! What notifications need from the store.

use async_trait::async_trait;

use super::{Notification, NotificationQuery, SequencedNotification};
use crate::shared::{AccountId, CursorPage, NotificationId, StoreError};

/// Notifications of one account.
///
/// Whoever was answered by an operation MUST find its notification in `list`, and have it marked by `read_all`,
/// whichever process answered: the store first carries out what the account's operations left waiting. It waits for
/// that a second at most.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait NotificationStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &NotificationQuery)
    -> Result<CursorPage<Notification>, StoreError>;

    /// Marks one as read, unless it is; false when there is no such one.
    async fn read(&self, account: AccountId, id: NotificationId) -> Result<bool, StoreError>;

    /// Marks all as read that are not.
    async fn read_all(&self, account: AccountId) -> Result<(), StoreError>;
}

/// Notifications of all accounts in the order in which they became visible: sequence numbers grow, and no smaller one
/// ever comes after a greater one was seen. Whoever remembers the last sequence number misses nothing.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait NotificationFeed: Send + Sync {
    /// The greatest sequence number so far; 0 before the first.
    async fn latest(&self) -> Result<i64, StoreError>;

    /// What became visible after a sequence number, in order, at most so much.
    async fn after(&self, seq: i64, limit: i64) -> Result<Vec<SequencedNotification>, StoreError>;

    /// The sequence number of one of the account's notifications; none where the account has no such one.
    async fn seq_of(&self, account: AccountId, id: NotificationId) -> Result<Option<i64>, StoreError>;

    /// What the account's notifications became visible after a sequence number and not after another one, oldest first,
    /// at most so many.
    async fn between(
        &self,
        account: AccountId,
        after: i64,
        until: i64,
        limit: i64,
    ) -> Result<Vec<SequencedNotification>, StoreError>;
}
