//! Webhook endpoints, logs and feed events.

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
    /// The direction of the calls: `outbound`, Recado calls the account's address; `inbound`, the account calls Recado.
    #[schemars(rename = "WebhookDirection")]
    Direction {
        /// Recado calls the account's address.
        Outbound = "outbound",
        /// The account calls Recado.
        Inbound = "inbound",
    }
}

string_enum! {
    /// Why Recado disabled an endpoint.
    DisabledReason {
        /// The receiver responded with 410 Gone.
        Gone = "gone",
        /// All deliveries failed for several days.
        Failing = "failing",
    }
}

string_enum! {
    /// The result of an attempt, as a filter of logs.
    LogStatus {
        /// The response status is 200 to 299.
        Success = "success",
        /// The response status is 400 or above, or there was no response.
        Failed = "failed",
    }
}

/// A webhook endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    pub id: WebhookId,
    pub name: String,
    /// The URL that deliveries call. An inbound endpoint receives no deliveries, and its URL may be none.
    pub url: Option<String>,
    /// The event types that are delivered to the endpoint, or `*` for all.
    pub events: Vec<String>,
    pub direction: Direction,
    pub is_active: bool,
    /// The last four characters of the endpoint's secret.
    pub secret_hint: String,
    /// When Recado disabled the endpoint because of failed deliveries.
    pub disabled_at: Option<OffsetDateTime>,
    /// Why Recado disabled the endpoint.
    pub disabled_reason: Option<DisabledReason>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

redacted_debug!(Webhook {
    id,
    direction,
    events,
    is_active
});

/// An endpoint's secrets as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecrets {
    /// The secret that was shown last.
    pub current: Sealed,
    /// The replaced secret, and the end of the overlap in which it signs too.
    pub previous: Option<(Sealed, OffsetDateTime)>,
}

/// An endpoint with its unpublished data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWebhook {
    pub webhook: Webhook,
    pub secrets: SealedSecrets,
    /// Optimistic locking: every change increments it.
    pub version: i64,
}

/// An endpoint with its new secret, which is shown only once.
#[derive(Debug)]
pub struct NewWebhook {
    pub webhook: Webhook,
    /// The 32 bytes in hexadecimal.
    pub secret: SecretString,
    /// The same bytes in the form that Standard Webhooks libraries accept.
    pub signing_secret: SecretString,
}

/// The unchecked fields of a new or changed endpoint. A change does not touch absent fields.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WebhookInput {
    pub name: Option<String>,
    /// `Some(None)` clears the URL.
    pub url: Option<Option<String>>,
    pub events: Option<Vec<String>>,
    pub direction: Option<String>,
    pub is_active: Option<bool>,
}

redacted_debug!(WebhookInput {});

/// A webhook event, as it is delivered to endpoints and listed in the feed.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub struct WebhookEvent {
    /// The event's id. Every delivery of the event sends it as `webhook-id`.
    pub id: WebhookEventId,
    /// The event type. Later versions may add types.
    #[schemars(example = "message.received")]
    #[serde(rename = "type")]
    pub kind: String,
    /// When the event happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub timestamp: OffsetDateTime,
    /// The account of the event.
    pub account_id: AccountId,
    /// The event's payload: an object whose fields depend on `type`.
    #[schemars(with = "serde_json::Map<String, Value>", example = serde_json::json!({"conversation_id": "0190a1b2-c3d4-7e5f-8a9b-000000000007", "text": "Oi!"}))]
    pub data: Value,
}

redacted_debug!(WebhookEvent {
    id,
    kind,
    timestamp,
    account_id
});

/// One attempt of a delivery, or one call that an inbound endpoint received.
#[derive(Clone, PartialEq)]
pub struct WebhookLog {
    pub id: WebhookLogId,
    /// The endpoint, which may have been deleted since.
    pub endpoint_id: WebhookId,
    pub direction: Direction,
    pub event_type: String,
    /// The body that was sent or received. For a received body of more than 65,536 bytes, only `omitted_bytes`: its
    /// size in bytes.
    pub payload: Value,
    /// The HTTP status of the response, if there was one.
    pub response_status: Option<i32>,
    /// The number of the attempt, counted from 1.
    pub attempt: i32,
    /// The duration of the attempt in milliseconds; none for received calls.
    pub duration_ms: Option<i32>,
    /// Why there was no response: `refused`, `resolution`, `connection`, `tls`, `timed_out`, `broken` or
    /// `secret_unreadable`. For a received call: why it was rejected.
    pub error: Option<String>,
    /// The `webhook-id` of the delivery.
    pub message_id: String,
    /// When the next attempt follows, if one does.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When the attempt ended or the call was received.
    pub created_at: OffsetDateTime,
}

redacted_debug!(WebhookLog {
    id,
    endpoint_id,
    event_type,
    response_status
});

/// Filters of the logs, which are listed newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub direction: Option<Direction>,
    pub status: Option<LogStatus>,
    pub endpoint_id: Option<WebhookId>,
    pub event_type: Option<String>,
    /// The last log of the page before.
    pub cursor: Option<WebhookLogId>,
    /// Logs made at this time or later.
    pub since: Option<OffsetDateTime>,
    /// Logs made before this time.
    pub until: Option<OffsetDateTime>,
    pub limit: i64,
}

/// A page request for the feed, which is listed oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedQuery {
    /// The event that the client read last. `None` starts with the oldest stored event.
    pub after: Option<WebhookEventId>,
    pub kind: Option<String>,
    pub limit: i64,
}

/// Why an endpoint or log cannot be tested, redelivered or recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RedeliveryRefusal {
    #[error("this endpoint is inbound: nothing is delivered to it")]
    Inbound,
    #[error("this endpoint is not active: set is_active to true first")]
    Inactive,
    #[error("the endpoint of this log was deleted")]
    Deleted,
    /// Retention purged the event of the log.
    #[error("the event of this log is no longer stored")]
    EventPurged,
}

/// Why an operation on webhooks failed.
#[derive(Debug, Error)]
pub enum WebhookError {
    /// The account has no such endpoint or log.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The endpoint's state does not allow it.
    #[error(transparent)]
    Refused(#[from] RedeliveryRefusal),
    /// Every try met a concurrent change of the endpoint.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A log of a call that received its response.
#[derive(Clone, PartialEq)]
pub struct InboundLogEntry {
    pub id: WebhookLogId,
    pub endpoint_id: WebhookId,
    /// The call's `webhook-id`.
    pub message_id: String,
    pub event_type: String,
    /// The body, or only its size if it is too large to be logged.
    pub payload: Value,
    pub response_status: i32,
    /// Why the call was rejected.
    pub error: Option<String>,
    pub at: OffsetDateTime,
}

redacted_debug!(InboundLogEntry {
    id,
    endpoint_id,
    event_type,
    response_status,
    error,
    at
});
