//! Endpoints, logs and the feed, as they are published and kept.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::{
    AccountId, Conflict, FieldErrors, Sealed, StoreError, WebhookEventId, WebhookId, WebhookLogId, redacted_debug,
    string_enum, timestamp,
};

string_enum! {
    /// Who calls whom: `outbound`, Recado calls the account's address; `inbound`, the account calls Recado.
    #[schemars(rename = "WebhookDirection")]
    Direction {
        /// We call the account's address.
        Outbound = "outbound",
        /// We are called.
        Inbound = "inbound",
    }
}

string_enum! {
    /// Why deliveries switched an endpoint off.
    DisabledReason {
        /// The receiver said that it is gone for good.
        Gone = "gone",
        /// Nothing but failures for days.
        Failing = "failing",
    }
}

string_enum! {
    /// What became of an attempt, as logs are asked for.
    LogStatus {
        /// 200 to 299.
        Success = "success",
        /// 400 and above, or no answer.
        Failed = "failed",
    }
}

/// A webhook endpoint.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Webhook {
    /// The endpoint's id.
    pub id: WebhookId,
    /// What it is for, in the account's own words: 1 to 100 characters.
    #[schemars(example = &"CRM")]
    pub name: String,
    /// Where it is; null for an inbound one without an address. Nothing is delivered to an inbound one.
    #[schemars(example = "https://crm.example/recado")]
    pub url: Option<String>,
    /// The kinds of events that it is told, or `*` for all.
    #[schemars(example = ["message.received", "campaign.finished"])]
    pub events: Vec<String>,
    /// Who calls whom.
    pub direction: Direction,
    /// Whether it is switched on.
    #[schemars(example = true)]
    pub is_active: bool,
    /// The last four characters of its secret.
    #[schemars(example = "9f3a")]
    pub secret_hint: String,
    /// When deliveries switched it off; null when they did not.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub disabled_at: Option<OffsetDateTime>,
    /// Why they did; null when they did not.
    pub disabled_reason: Option<DisabledReason>,
    /// When the endpoint was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When the endpoint was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

redacted_debug!(Webhook {
    id,
    direction,
    events,
    is_active
});

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
    /// Raised by every change.
    pub version: i64,
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
#[derive(Clone, Default, PartialEq, Eq)]
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

redacted_debug!(WebhookInput {});

/// Something that happened, as it is delivered to endpoints and as it stands in the feed.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub struct WebhookEvent {
    /// Its id: the `webhook-id` of every delivery.
    pub id: WebhookEventId,
    /// What happened; further words may come.
    #[schemars(example = "message.received")]
    #[serde(rename = "type")]
    pub kind: String,
    /// When it happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub timestamp: OffsetDateTime,
    /// The account that it happened in.
    pub account_id: AccountId,
    /// What it says: an object whose names depend on what happened.
    #[schemars(with = "serde_json::Map<String, Value>", example = serde_json::json!({"conversation_id": "0190a1b2-c3d4-7e5f-8a9b-000000000007", "text": "Oi!"}))]
    pub data: Value,
}

redacted_debug!(WebhookEvent {
    id,
    kind,
    timestamp,
    account_id
});

/// One attempt to deliver, or one call that was received.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub struct WebhookLog {
    /// The log's id.
    pub id: WebhookLogId,
    /// The endpoint; it may be deleted by now.
    pub endpoint_id: WebhookId,
    /// Who called whom.
    pub direction: Direction,
    /// The kind of event that was told.
    #[schemars(example = "message.received")]
    pub event_type: String,
    /// What was sent or received; of a call of more than 65,536 bytes `omitted_bytes`, how many it had.
    #[schemars(example = serde_json::json!({"type": "message.received", "data": {"text": "Oi!"}}))]
    pub payload: Value,
    /// The HTTP status that was answered; null without an answer.
    #[schemars(example = 200)]
    pub response_status: Option<i32>,
    /// Which attempt it was, from 1.
    #[schemars(example = 1)]
    pub attempt: i32,
    /// How long it took, in milliseconds; null for calls that were received.
    #[schemars(example = 84)]
    pub duration_ms: Option<i32>,
    /// Why there was no answer: `refused`, `resolution`, `connection`, `tls`, `timed_out` or `broken`; for a call that
    /// was received, why it was refused. Null when there is nothing to say.
    #[schemars(example = &"timed_out")]
    pub error: Option<String>,
    /// The `webhook-id` of the delivery.
    #[schemars(example = "0190a1b2-c3d4-7e5f-8a9b-000000000007")]
    pub message_id: String,
    /// When the next attempt follows; null when none does.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When it happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(WebhookLog {
    id,
    endpoint_id,
    event_type,
    response_status
});

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
pub enum RedeliveryRefusal {
    /// Nobody is called there.
    #[error("this endpoint is inbound: nothing is delivered to it")]
    Inbound,
    /// It is switched off.
    #[error("this endpoint is not active: set is_active to true first")]
    Inactive,
    /// The endpoint of a log is deleted.
    #[error("the endpoint of this log was deleted")]
    Deleted,
    /// Retention purged the event of the log.
    #[error("the event of this log is no longer stored")]
    EventPurged,
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
    Refused(#[from] RedeliveryRefusal),
    /// Other changes of the endpoint came first, again and again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
