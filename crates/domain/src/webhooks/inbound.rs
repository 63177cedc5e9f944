//! What is received at inbound endpoints: proved by a signature, carried out once, and logged.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{InboundStore, SecretBytes, StoredWebhook, Unverified, WebhookError, check_headers, verify};
use crate::contacts::{ContactError, Contacts};
use crate::ingestion::{EventInput, Ingestion, IngestionError, OrderInput};
use crate::shared::{
    AccountId, Cipher, Clock, FieldErrors, Ids, Strict, WebhookId, WebhookLogId, redacted_debug, text,
};

/// How long the name of a kind of event may be.
const KIND_CHARS: usize = 100;

/// The largest call, in bytes, that the log shows: a page of it holds a hundred.
const LOGGED_BYTES: usize = 64 * 1024;

/// What a log calls a call that could not be read.
const UNREADABLE: &str = "unreadable";

/// A call, as it came.
#[derive(Clone, Copy)]
pub struct InboundCall<'a> {
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    pub headers: [Option<&'a str>; 3],
    /// What was signed.
    pub body: &'a [u8],
}

redacted_debug!(InboundCall<'_> {});

/// An endpoint that is called.
#[derive(Clone, Debug)]
pub struct InboundEndpoint {
    id: WebhookId,
    account: AccountId,
    stored: StoredWebhook,
}

/// A call that was answered, as it is logged.
#[derive(Clone, PartialEq)]
pub struct InboundLogEntry {
    /// Its id.
    pub id: WebhookLogId,
    /// Where it came.
    pub endpoint_id: WebhookId,
    /// The sender's name for it.
    pub message_id: String,
    /// What it told.
    pub event_type: String,
    /// All of it, or how much it was.
    pub payload: Value,
    /// What was answered.
    pub response_status: i32,
    /// Why it was refused.
    pub error: Option<String>,
    /// When.
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

/// Why a call is not taken.
#[derive(Debug, Error)]
pub enum InboundCallError {
    /// There is no such inbound endpoint, or it is switched off.
    #[error("not found")]
    NotFound,
    /// Nobody who knows the secret made it, or not now.
    #[error(transparent)]
    Unverified(#[from] Unverified),
    /// It says something wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Something failed: whoever calls again may succeed.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
}

/// The use case of inbound endpoints.
pub struct Inbound {
    /// Endpoints and logs.
    pub store: Arc<dyn InboundStore>,
    /// Takes in orders and events.
    pub ingestion: Ingestion,
    /// Takes in contacts.
    pub contacts: Contacts,
    /// Secrets at rest.
    pub cipher: Arc<dyn Cipher>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn Ids>,
}

impl Inbound {
    /// Finds the endpoint of a call, and refuses what its headers alone rule out: before any of the body is read.
    pub async fn open(&self, id: WebhookId, headers: [Option<&str>; 3]) -> Result<InboundEndpoint, InboundCallError> {
        let found = self.store.endpoint(id).await.map_err(WebhookError::from)?;
        let (account, stored) = found.ok_or(InboundCallError::NotFound)?;
        check_headers(headers, self.clock.now())?;
        Ok(InboundEndpoint { id, account, stored })
    }

    /// Takes a call. One that was taken before, by its `webhook-id`, changes nothing more. What it tells is carried out
    /// before it is logged, and under keys of its own: a crash between the two, or two calls at once, tell nothing twice.
    pub async fn receive(&self, endpoint: InboundEndpoint, call: InboundCall<'_>) -> Result<(), InboundCallError> {
        let InboundEndpoint { id, account, stored } = endpoint;
        let message_id = verify(&self.secrets(&stored), call.headers, call.body, self.clock.now())?;
        let taken = self.store.is_taken(account, id, message_id).await;
        if taken.map_err(WebhookError::from)? {
            return Ok(());
        }
        let (payload, kind) = read(call.body);
        let (kind, outcome) = match kind {
            Ok(kind) => {
                let outcome = self.carry_out(account, id, message_id, &kind, &payload).await;
                (kind, outcome)
            }
            Err(errors) => (UNREADABLE.to_owned(), Err(errors.into())),
        };
        let (response_status, error) = match &outcome {
            Ok(()) => (200, None),
            Err(InboundCallError::Invalid(errors)) => (422, Some(told(errors))),
            // Not answered for good: the sender comes again, and nothing was taken.
            Err(_) => return outcome,
        };
        let entry = InboundLogEntry {
            id: self.ids.next().into(),
            endpoint_id: id,
            message_id: message_id.to_owned(),
            event_type: kind,
            payload: shown(payload, call.body.len()),
            response_status,
            error,
            at: self.clock.now(),
        };
        let logged = self.store.log(account, &entry).await;
        logged.map_err(WebhookError::from)?;
        outcome
    }

    /// The secret before the last one counts until its day is over.
    fn secrets(&self, endpoint: &StoredWebhook) -> Vec<SecretBytes> {
        let now = self.clock.now();
        let previous = endpoint.secrets.previous.as_ref().filter(|(_, until)| *until > now);
        let sealed = std::iter::once(&endpoint.secrets.current).chain(previous.map(|(sealed, _)| sealed));
        sealed
            .filter_map(|sealed| SecretBytes::of_hex(&self.cipher.open(sealed)?))
            .collect()
    }

    /// Kinds that mean nothing to us are logged all the same: the account may read them there.
    async fn carry_out(
        &self,
        account: AccountId,
        id: WebhookId,
        message_id: &str,
        kind: &str,
        payload: &Value,
    ) -> Result<(), InboundCallError> {
        match kind {
            "metric.recorded" => {
                let mut event: EventInput = item(data(payload)?)?;
                event.id.get_or_insert_with(|| named_after(id, message_id).into());
                ingested(self.ingestion.events(account, vec![event]).await)
            }
            "order.recorded" => ingested(
                self.ingestion
                    .orders(account, vec![item::<OrderInput>(data(payload)?)?])
                    .await,
            ),
            "contact.upserted" => match self.contacts.upsert(account, &data(payload)?).await {
                Ok(_) => Ok(()),
                Err(ContactError::Invalid(FieldErrors(faults))) => {
                    let within = |(field, messages)| (format!("data.{field}"), messages);
                    Err(FieldErrors(faults.into_iter().map(within).collect()).into())
                }
                Err(ContactError::Conflict(conflict)) => Err(WebhookError::from(conflict).into()),
                Err(ContactError::Store(error)) => Err(WebhookError::from(error).into()),
                Err(ContactError::NotFound) => Err(InboundCallError::NotFound),
            },
            _ => Ok(()),
        }
    }
}

/// What the log is to show of a body, and the kind that it names. The log's payload is an object: what is none, cannot
/// be read or cannot be stored is an empty one there.
fn read(body: &[u8]) -> (Value, Result<String, FieldErrors>) {
    let wrong = |field: &str, message: &str| Err(FieldErrors::one(field, message));
    let Ok(payload) = serde_json::from_slice::<Value>(body) else {
        return (json!({}), wrong("body", "is not JSON"));
    };
    if text::holds_nul(&payload) {
        return (json!({}), wrong("body", "holds a NUL character"));
    }
    let kind = payload.get("type").and_then(Value::as_str);
    let kind = match kind.filter(|kind| (1..=KIND_CHARS).contains(&kind.chars().count())) {
        Some(kind) => Ok(kind.to_owned()),
        None => wrong("type", "must be a text of 1 to 100 characters"),
    };
    match payload.is_object() {
        true => (payload, kind),
        false => (json!({}), kind),
    }
}

fn shown(payload: Value, bytes: usize) -> Value {
    if bytes > LOGGED_BYTES {
        json!({ "omitted_bytes": bytes })
    } else {
        payload
    }
}

/// What there is to a kind that is carried out.
fn data(payload: &Value) -> Result<Map<String, Value>, FieldErrors> {
    let data = payload.get("data").and_then(Value::as_object).cloned();
    data.ok_or_else(|| FieldErrors::one("data", "must be an object"))
}

fn item<T: DeserializeOwned>(data: Map<String, Value>) -> Result<T, FieldErrors> {
    T::deserialize(Strict::new(Value::Object(data))).map_err(|error| FieldErrors::one("data", error.to_string()))
}

/// Faults of the one item of a batch, named by their place in the call.
fn ingested<T>(result: Result<T, IngestionError>) -> Result<(), InboundCallError> {
    match result {
        Ok(_) => Ok(()),
        Err(IngestionError::Invalid(FieldErrors(faults))) => {
            let renamed = |(path, messages): (String, Vec<String>)| {
                let field = path.split_once("[0]").map_or("", |(_, field)| field);
                (format!("data{field}"), messages)
            };
            Err(FieldErrors(faults.into_iter().map(renamed).collect()).into())
        }
        Err(IngestionError::Store(error)) => Err(WebhookError::from(error).into()),
    }
}

/// The id of what has none of its own: the same whenever the call is repeated.
fn named_after(endpoint: WebhookId, message_id: &str) -> Uuid {
    let digest = Sha256::new()
        .chain_update(endpoint.0)
        .chain_update(message_id)
        .finalize();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn told(errors: &FieldErrors) -> String {
    let faults = errors
        .0
        .iter()
        .map(|(field, messages)| format!("{field} {}", messages.join(", ")));
    faults.collect::<Vec<_>>().join("; ")
}
