//! Notifications as published, and their query and error.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, CursorQuery, NotificationId, StoreError, timestamp};

/// A message to the members of an account inside the product.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Notification {
    /// Id of the notification.
    pub id: NotificationId,
    /// Severity: `info`, `success`, `warning` or `error`. More values may be added.
    #[schemars(example = &"warning")]
    #[serde(rename = "type")]
    pub kind: String,
    /// Title in one line.
    #[schemars(example = "Campaign finished: Volta às aulas")]
    pub title: String,
    /// Text in one or two sentences.
    #[schemars(example = "1832 messages were sent, 8 were not.")]
    pub message: String,
    /// Machine-readable details, as an object whose fields depend on the kind of change.
    #[schemars(with = "serde_json::Map<String, Value>", example = serde_json::json!({
        "campaign_id": "0190a1b2-c3d4-7e5f-8a9b-000000000007", "status": "partial", "total": 1840, "sent": 1832,
        "failed": 8, "simulated": false
    }))]
    pub data: Value,
    /// When a member of the account marked it as read; null while it is unread.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub read_at: Option<OffsetDateTime>,
    /// When the change happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
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
