//! Calls at inbound endpoints: verified by signature, applied once and logged.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use uuid::Uuid;

use super::{
    InboundLogEntry, InboundStore, SecretBytes, StoredWebhook, Unverified, WebhookError, check_headers, verify,
};
use crate::contacts::{ContactError, Contacts};
use crate::ingestion::{EventInput, Ingestion, IngestionError, OrderInput};
use crate::shared::{AccountId, Cipher, Clock, FieldErrors, Ids, SealContext, Strict, WebhookId, redacted_debug, text};

/// The longest event type.
const KIND_CHARS: usize = 100;

/// The largest body in bytes that a log stores. It bounds the size of a page of logs.
const LOGGED_BYTES: usize = 64 * 1024;

/// The published `event_type` of a log whose body could not be parsed.
const UNREADABLE: &str = "unreadable";

/// An unverified call.
#[derive(Clone, Copy)]
pub struct InboundCall<'a> {
    /// The headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    pub headers: [Option<&'a str>; 3],
    /// The signed body.
    pub body: &'a [u8],
}

redacted_debug!(InboundCall<'_> {});

/// The inbound endpoint of a call.
#[derive(Clone, Debug)]
pub struct InboundEndpoint {
    id: WebhookId,
    account: AccountId,
    stored: StoredWebhook,
}

/// Why a call is rejected.
#[derive(Debug, Error)]
pub enum InboundCallError {
    /// The inbound endpoint does not exist or is inactive.
    #[error("not found")]
    NotFound,
    /// The signature or its timestamp is invalid.
    #[error(transparent)]
    Unverified(#[from] Unverified),
    /// The body is invalid.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// An internal error: a repeated call may succeed.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
}

/// The use cases of inbound endpoints.
pub struct InboundWebhooks {
    pub store: Arc<dyn InboundStore>,
    pub ingestion: Ingestion,
    pub contacts: Contacts,
    pub cipher: Arc<dyn Cipher>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
}

impl InboundWebhooks {
    /// Finds the endpoint of a call and checks the headers. The caller reads the body only after this succeeds.
    pub async fn open(&self, id: WebhookId, headers: [Option<&str>; 3]) -> Result<InboundEndpoint, InboundCallError> {
        let found = self.store.endpoint(id).await.map_err(WebhookError::from)?;
        let (account, stored) = found.ok_or(InboundCallError::NotFound)?;
        check_headers(headers, self.clock.now())?;
        Ok(InboundEndpoint { id, account, stored })
    }

    /// Verifies, applies and logs a call. The `webhook-id` is its idempotency key: an accepted call has no effect a
    /// second time. The event is applied before the log is written, and has its own idempotency key: a crash between
    /// the two, or two concurrent calls, apply nothing twice.
    pub async fn receive(&self, endpoint: InboundEndpoint, call: InboundCall<'_>) -> Result<(), InboundCallError> {
        let InboundEndpoint { id, account, stored } = endpoint;
        let message_id = verify(
            &self.secrets(account, &stored),
            call.headers,
            call.body,
            self.clock.now(),
        )?;
        let duplicate = self.store.is_taken(account, id, message_id).await;
        if duplicate.map_err(WebhookError::from)? {
            return Ok(());
        }
        let (payload, kind) = parse_body(call.body);
        let (kind, outcome) = match kind {
            Ok(kind) => {
                let outcome = self.apply(account, id, message_id, &kind, &payload).await;
                (kind, outcome)
            }
            Err(errors) => (UNREADABLE.to_owned(), Err(errors.into())),
        };
        let (response_status, error) = match &outcome {
            Ok(()) => (200, None),
            Err(InboundCallError::Invalid(errors)) => (422, Some(summarize(errors))),
            // An internal error is not logged: the sender repeats the call, and its `webhook-id` must stay unused.
            Err(_) => return outcome,
        };
        let entry = InboundLogEntry {
            id: self.ids.next().into(),
            endpoint_id: id,
            message_id: message_id.to_owned(),
            event_type: kind,
            payload: logged_payload(payload, call.body.len()),
            response_status,
            error,
            at: self.clock.now(),
        };
        let logged = self.store.log(account, &entry).await;
        logged.map_err(WebhookError::from)?;
        outcome
    }

    /// Opens the valid secrets: the current one, and the previous one until its overlap ends.
    fn secrets(&self, account: AccountId, endpoint: &StoredWebhook) -> Vec<SecretBytes> {
        let now = self.clock.now();
        let context = SealContext::webhook_secret(account, endpoint.webhook.id);
        let previous = endpoint.secrets.previous.as_ref().filter(|(_, until)| *until > now);
        let sealed = std::iter::once(&endpoint.secrets.current).chain(previous.map(|(sealed, _)| sealed));
        sealed
            .filter_map(|sealed| SecretBytes::from_hex(&self.cipher.open(sealed, &context)?))
            .collect()
    }

    /// Applies an event by its type. Unknown types succeed without effect: the account can read them in its logs.
    async fn apply(
        &self,
        account: AccountId,
        id: WebhookId,
        message_id: &str,
        kind: &str,
        payload: &Value,
    ) -> Result<(), InboundCallError> {
        match kind {
            "metric.recorded" => {
                let mut event: EventInput = parse_item(event_data(payload)?)?;
                event.id.get_or_insert_with(|| derive_event_id(id, message_id).into());
                map_ingestion_result(self.ingestion.events(account, vec![event]).await)
            }
            "order.recorded" => map_ingestion_result(
                self.ingestion
                    .orders(account, vec![parse_item::<OrderInput>(event_data(payload)?)?])
                    .await,
            ),
            "contact.upserted" => match self.contacts.upsert(account, &event_data(payload)?).await {
                Ok(_) => Ok(()),
                Err(ContactError::Invalid(FieldErrors(field_errors))) => {
                    let within = |(field, messages)| (format!("data.{field}"), messages);
                    Err(FieldErrors(field_errors.into_iter().map(within).collect()).into())
                }
                Err(ContactError::Conflict(conflict)) => Err(WebhookError::from(conflict).into()),
                Err(ContactError::Store(error)) => Err(WebhookError::from(error).into()),
                Err(ContactError::NotFound) => Err(InboundCallError::NotFound),
            },
            _ => Ok(()),
        }
    }
}

/// Parses a body into the payload to log and the event type. A logged payload is an object: a body that is not an
/// object, not JSON, or cannot be stored is logged as an empty object.
fn parse_body(body: &[u8]) -> (Value, Result<String, FieldErrors>) {
    let invalid = |field: &str, message: &str| Err(FieldErrors::one(field, message));
    let Ok(payload) = serde_json::from_slice::<Value>(body) else {
        return (json!({}), invalid("body", "is not JSON"));
    };
    if text::holds_nul(&payload) {
        return (json!({}), invalid("body", "contains a NUL character"));
    }
    let kind = payload.get("type").and_then(Value::as_str);
    let kind = match kind.filter(|kind| (1..=KIND_CHARS).contains(&kind.chars().count())) {
        Some(kind) => Ok(kind.to_owned()),
        None => invalid("type", "must be a string of 1 to 100 characters"),
    };
    match payload.is_object() {
        true => (payload, kind),
        false => (json!({}), kind),
    }
}

fn logged_payload(payload: Value, bytes: usize) -> Value {
    if bytes > LOGGED_BYTES {
        json!({ "omitted_bytes": bytes })
    } else {
        payload
    }
}

/// Returns the object in `data`.
fn event_data(payload: &Value) -> Result<Map<String, Value>, FieldErrors> {
    let data = payload.get("data").and_then(Value::as_object).cloned();
    data.ok_or_else(|| FieldErrors::one("data", "must be an object"))
}

fn parse_item<T: DeserializeOwned>(data: Map<String, Value>) -> Result<T, FieldErrors> {
    T::deserialize(Strict::new(Value::Object(data))).map_err(|error| FieldErrors::one("data", error.to_string()))
}

/// Maps the result of a batch of one item: a field path such as `events[0].name` becomes `data.name`.
fn map_ingestion_result<T>(result: Result<T, IngestionError>) -> Result<(), InboundCallError> {
    match result {
        Ok(_) => Ok(()),
        Err(IngestionError::Invalid(FieldErrors(field_errors))) => {
            let renamed = |(path, messages): (String, Vec<String>)| {
                let field = path.split_once("[0]").map_or("", |(_, field)| field);
                (format!("data{field}"), messages)
            };
            Err(FieldErrors(field_errors.into_iter().map(renamed).collect()).into())
        }
        Err(IngestionError::Store(error)) => Err(WebhookError::from(error).into()),
    }
}

/// Derives the id of an event without one from the endpoint and `webhook-id`, so that a repeated call has the same id.
fn derive_event_id(endpoint: WebhookId, message_id: &str) -> Uuid {
    let digest = Sha256::new()
        .chain_update(endpoint.0)
        .chain_update(message_id)
        .finalize();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn summarize(errors: &FieldErrors) -> String {
    let field_errors = errors
        .0
        .iter()
        .map(|(field, messages)| format!("{field} {}", messages.join(", ")));
    field_errors.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
