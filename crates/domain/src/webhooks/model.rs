//! Endpoints, logs and the feed, as they are published and kept.

use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::{
    AccountId, FieldErrors, Sealed, StoreError, WebhookEventId, WebhookId, WebhookLogId, timestamp, words,
};

words! {
    /// Who calls whom.
    Direction {
        /// We call the account's address.
        Outbound = "outbound",
        /// We are called.
        Inbound = "inbound",
    }
}

words! {
    /// Why deliveries switched an endpoint off.
    DisabledReason {
        /// The receiver said that it is gone for good.
        Gone = "gone",
        /// Nothing but failures for days.
        Failing = "failing",
    }
}

words! {
    /// What became of an attempt, as logs are asked for.
    LogStatus {
        /// 200 to 299.
        Success = "success",
        /// 400 and above, or no answer.
        Failed = "failed",
    }
}

/// An endpoint, as published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// What it is for, in its maker's words; 1 to 100 characters.
    pub name: String,
    /// Where it is; an inbound one has none.
    pub url: Option<String>,
    /// The kinds of events that it is told, or `*`.
    pub events: Vec<String>,
    /// Who calls whom.
    pub direction: Direction,
    /// Whether it is switched on.
    pub is_active: bool,
    /// The last four characters of its secret.
    pub secret_hint: String,
    /// When deliveries switched it off.
    #[serde(with = "timestamp::option")]
    pub disabled_at: Option<OffsetDateTime>,
    /// Why.
    pub disabled_reason: Option<DisabledReason>,
    /// When it was made.
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

/// The secrets of an endpoint, as they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecrets {
    /// The one that was shown last.
    pub current: Sealed,
    /// The one before, and until when it signs too.
    pub previous: Option<(Sealed, OffsetDateTime)>,
}

/// An endpoint and what is not published of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWebhook {
    /// What is published.
    pub webhook: Webhook,
    /// What signs.
    pub secrets: SealedSecrets,
}

/// An endpoint whose secret was just made: the one time that it is shown.
#[derive(Debug)]
pub struct NewWebhook {
    /// The endpoint.
    pub webhook: Webhook,
    /// The 32 bytes in hexadecimal.
    pub secret: SecretString,
    /// The same bytes as ready-made libraries want them.
    pub signing_secret: SecretString,
}

/// What may be said of an endpoint; absent fields keep what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookInput {
    /// Its name.
    pub name: Option<String>,
    /// Its address.
    pub url: Option<Option<String>>,
    /// What it is told.
    pub events: Option<Vec<String>>,
    /// Who calls whom.
    pub direction: Option<String>,
    /// Whether it is switched on.
    pub is_active: Option<bool>,
}

/// Something that happened, as it is delivered and as it stands in the feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Body {
    /// Its id: the `webhook-id` of every delivery.
    pub id: WebhookEventId,
    /// What happened: a stored word, also one that a later version wrote.
    #[serde(rename = "type")]
    pub kind: String,
    /// When.
    #[serde(with = "timestamp")]
    pub timestamp: OffsetDateTime,
    /// To whom.
    pub account_id: AccountId,
    /// What it says.
    pub data: Value,
}

/// One attempt to deliver, or one call that was received.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebhookLog {
    /// Its id.
    pub id: WebhookLogId,
    /// Of which endpoint; it may be deleted by now.
    pub endpoint_id: WebhookId,
    /// Who called whom.
    pub direction: Direction,
    /// What was told.
    pub event_type: String,
    /// What was sent or received.
    pub payload: Value,
    /// What was answered; null without an answer.
    pub response_status: Option<i32>,
    /// Which attempt it was, from 1.
    pub attempt: i32,
    /// How long it took.
    pub duration_ms: Option<i32>,
    /// Why there was no answer.
    pub error: Option<String>,
    /// The `webhook-id`.
    pub message_id: String,
    /// When the next attempt follows.
    #[serde(with = "timestamp::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When it happened.
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// Asks for logs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Only of this direction.
    pub direction: Option<Direction>,
    /// Only those that ended so.
    pub status: Option<LogStatus>,
    /// Only of this endpoint.
    pub endpoint_id: Option<WebhookId>,
    /// Only of this kind of event.
    pub event_type: Option<String>,
    /// How many at most.
    pub limit: i64,
}

/// Asks for what happened, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedQuery {
    /// What was seen last; none begins with the oldest that is kept.
    pub after: Option<WebhookEventId>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// How many at most.
    pub limit: i64,
}

/// What redelivering, testing and recovering cannot be done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Nobody is called there.
    #[error("this endpoint is inbound: nothing is delivered to it")]
    Inbound,
    /// It is switched off.
    #[error("this endpoint is not active: set is_active to true first")]
    Inactive,
    /// The endpoint of a log is deleted.
    #[error("the endpoint of this log was deleted")]
    Deleted,
    /// The event of a log is past its days.
    #[error("the event of this log is not kept any more")]
    Forgotten,
}

/// Why an operation on webhooks did not happen.
#[derive(Debug, Error)]
pub enum WebhookError {
    /// No such endpoint or log in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The state of the endpoint does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It was changed by somebody else at the same moment, again and again.
    #[error("the webhook is being changed by another request")]
    Contended,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
