//! Notifications, as they are shown.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, CursorQuery, NotificationId, StoreError, timestamp};

/// Something that the people of an account are told.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Notification {
    /// The notification's id.
    pub id: NotificationId,
    /// How it is shown: `info`, `success`, `warning` or `error`; further words may come.
    #[schemars(example = &"warning")]
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened, in one line.
    #[schemars(example = "Campaign finished: Volta às aulas")]
    pub title: String,
    /// What happened, in one or two sentences.
    #[schemars(example = "1832 messages were sent, 8 were not.")]
    pub message: String,
    /// What a program needs to act on it: an object whose names depend on what happened.
    #[schemars(with = "serde_json::Map<String, Value>", example = serde_json::json!({
        "campaign_id": "0190a1b2-c3d4-7e5f-8a9b-000000000007", "status": "partial", "total": 1840, "sent": 1832,
        "failed": 8, "simulated": false
    }))]
    pub data: Value,
    /// When anybody of the account marked it as read; null while nobody did.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub read_at: Option<OffsetDateTime>,
    /// When it happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// A notification and its sequence number: the order in which notifications became visible, over all accounts.
#[derive(Clone, Debug, PartialEq)]
pub struct SequencedNotification {
    /// Its sequence number.
    pub seq: i64,
    /// Whose it is.
    pub account_id: AccountId,
    /// What it is.
    pub notification: Notification,
}

/// Asks for notifications, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationQuery {
    /// Only those that nobody read.
    pub unread: bool,
    /// Which part of the list.
    pub page: CursorQuery,
}

/// Why an operation on notifications did not happen.
#[derive(Debug, Error)]
pub enum NotificationError {
    /// No such notification in the account.
    #[error("not found")]
    NotFound,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
