//! A received webhook, and the verification of its signature by the library of Standard Webhooks.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use crate::call::Call;
use crate::now_ms;

/// Length of a secret in hex.
const HEX_CHARS: usize = 64;

/// A received POST.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Time of receipt in milliseconds since 1970.
    pub at_ms: u64,
    pub path: String,
    /// Header values by lower-case name.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    /// Status of the response. None: the connection was closed instead.
    pub status: Option<u16>,
}

impl Delivery {
    pub(super) fn new(call: &Call) -> Self {
        Self {
            at_ms: now_ms(),
            path: call.path.clone(),
            headers: call.headers().clone(),
            body: call.body.to_vec(),
            status: None,
        }
    }

    /// Returns a header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The event's id, from the header `webhook-id`.
    pub fn id(&self) -> Option<&str> {
        self.header(HEADER_WEBHOOK_ID)
    }

    /// The body as JSON, or null if it is not valid JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Verifies signature and timestamp with the published library. The secret is 32 bytes in hex, or `whsec_` and
    /// base64.
    pub fn verify(&self, secret: &str) -> Result<(), String> {
        let webhook = match hex::decode(secret) {
            Ok(key) if secret.len() == HEX_CHARS => Webhook::from_bytes(key),
            _ => Webhook::new(secret),
        };
        let webhook = webhook.map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        for name in [HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP] {
            if let Some(Ok(value)) = self.header(name).map(HeaderValue::from_str) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        webhook.verify(&self.body, &headers).map_err(|error| error.to_string())
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "at_ms": self.at_ms,
            "path": self.path,
            "headers": self.headers,
            "body": String::from_utf8_lossy(&self.body),
            "body_base64": STANDARD.encode(&self.body),
            "status": self.status,
        })
    }
}
