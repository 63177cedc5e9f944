//! Notifications, as they are shown.

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::{AccountId, NotificationId, SliceQuery, StoreError, timestamp};

/// A notification, as published.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notification {
    /// Its id.
    pub id: NotificationId,
    /// How it is shown: the stored word, also one that a later version wrote.
    #[serde(rename = "type")]
    pub kind: String,
    /// One line.
    pub title: String,
    /// One or two sentences.
    pub message: String,
    /// What a program needs to act on it.
    pub data: Value,
    /// When anybody of the account marked it as read.
    #[serde(with = "timestamp::option")]
    pub read_at: Option<OffsetDateTime>,
    /// When it came to be.
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// A notification and its place in the order in which notifications became visible, over all accounts.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Its place.
    pub place: i64,
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
    pub slice: SliceQuery,
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
