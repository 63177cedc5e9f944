//! A webhook as it came, and the standard's own word on whether it is genuine.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use crate::host::Call;
use crate::now_ms;

/// How long a secret in hex is.
const HEX_CHARS: usize = 64;

/// One POST.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// When it came, in milliseconds since 1970.
    pub at_ms: u64,
    pub path: String,
    /// Every header, by its lower-case name.
    pub headers: HashMap<String, String>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The status answered; none when the connection was closed instead.
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

    /// A header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The event's id.
    pub fn id(&self) -> Option<&str> {
        self.header(HEADER_WEBHOOK_ID)
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Verifies signature and time by the published library. The secret is its 32 bytes in hex, or `whsec_` and base64.
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
