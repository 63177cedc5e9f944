//! Notifications, their query and error.

use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::{AccountId, CursorQuery, NotificationId, StoreError};

/// A message to the members of an account inside the product.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    pub id: NotificationId,
    /// Severity: `info`, `success`, `warning` or `error`. More values may be added.
    pub kind: String,
    pub title: String,
    pub message: String,
    /// Machine-readable details, as an object whose fields depend on the kind of change.
    pub data: Value,
    /// When a member of the account marked it as read.
    pub read_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

/// A notification with its sequence number: the order in which notifications of all accounts became visible.
#[derive(Clone, Debug, PartialEq)]
pub struct SequencedNotification {
    pub seq: i64,
    pub account_id: AccountId,
    pub notification: Notification,
}

/// Query of an account's notifications, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationQuery {
    /// Only unread notifications.
    pub unread: bool,
    pub page: CursorQuery,
}

/// Error of a notification use case.
#[derive(Debug, Error)]
pub enum NotificationError {
    /// The account has no such notification.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}
