//! Database ports of notifications.

use async_trait::async_trait;

use super::{Notification, NotificationQuery, SequencedNotification};
use crate::shared::{AccountId, CursorPage, NotificationId, RowOutcome, StoreError};

/// Notifications of one account.
///
/// Read-your-writes: `list` MUST return, and `read_all` MUST mark, the notification of an operation that has returned
/// in any process. The store first moves the account's waiting outbox events, for at most one second.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait NotificationStore: Send + Sync {
    /// Returns a page, newest first (keyset pagination by id; the cursor is the last item's id).
    async fn list(&self, account: AccountId, query: &NotificationQuery)
    -> Result<CursorPage<Notification>, StoreError>;

    /// Marks a notification as read if it is unread.
    async fn read(&self, account: AccountId, id: NotificationId) -> Result<RowOutcome, StoreError>;

    /// Marks all unread notifications as read.
    async fn read_all(&self, account: AccountId) -> Result<(), StoreError>;
}

/// Notifications of all accounts in the order in which they became visible. Sequence numbers grow: after a reader has
/// seen one, no smaller one ever becomes visible. A reader that stores the last sequence number misses none.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait NotificationFeed: Send + Sync {
    /// Returns the greatest sequence number; 0 before the first notification.
    async fn latest(&self) -> Result<i64, StoreError>;

    /// Returns up to `limit` notifications after a sequence number, in order.
    async fn after(&self, seq: i64, limit: i64) -> Result<Vec<SequencedNotification>, StoreError>;

    /// Returns the sequence number of a notification; `None` if the account has no such notification.
    async fn seq_of(&self, account: AccountId, id: NotificationId) -> Result<Option<i64>, StoreError>;

    /// Returns up to `limit` notifications of the account with `after < seq <= until`, in order.
    async fn between(
        &self,
        account: AccountId,
        after: i64,
        until: i64,
        limit: i64,
    ) -> Result<Vec<SequencedNotification>, StoreError>;
}
