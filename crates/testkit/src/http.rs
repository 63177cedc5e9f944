//! JSON over HTTP to a server on this machine.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

pub struct Client {
    agent: ureq::Agent,
    base: String,
    headers: Vec<(&'static str, String)>,
}

pub struct JsonResponse {
    pub status: u16,
    pub body: Value,
}

impl Client {
    pub fn new(base: &str, headers: Vec<(&'static str, String)>) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(10)))
            // A proxy from the environment would lead away from this machine.
            .proxy(None)
            .build()
            .into();
        Self {
            agent,
            base: base.to_owned(),
            headers,
        }
    }

    pub fn get(&self, path: &str) -> Result<JsonResponse> {
        self.text(path).map(JsonResponse::from)
    }

    /// Returns the status and the raw body, so that a measurement excludes the parsing of JSON.
    pub fn text(&self, path: &str) -> Result<(u16, String)> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        text(request.call().with_context(|| format!("GET {path}"))?)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<JsonResponse> {
        self.send(self.agent.post(format!("{}{path}", self.base)), body)
    }

    pub fn put(&self, path: &str, body: &Value) -> Result<JsonResponse> {
        self.send(self.agent.put(format!("{}{path}", self.base)), body)
    }

    fn send(&self, request: ureq::RequestBuilder<ureq::typestate::WithBody>, body: &Value) -> Result<JsonResponse> {
        let mut request = request.header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let sent = request.send(body.to_string());
        text(sent.with_context(|| format!("cannot send to {}", self.base))?).map(JsonResponse::from)
    }

    pub fn delete(&self, path: &str) -> Result<JsonResponse> {
        let mut request = self.agent.delete(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        text(request.call().with_context(|| format!("DELETE {path}"))?).map(JsonResponse::from)
    }
}

/// Maximum size of a response: a simulator's complete ledger.
const LARGEST: u64 = 64 * 1024 * 1024;

impl From<(u16, String)> for JsonResponse {
    fn from((status, text): (u16, String)) -> Self {
        // Return a body that is not JSON as a string, so that errors can show it.
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, body }
    }
}

fn text(mut response: ureq::http::Response<ureq::Body>) -> Result<(u16, String)> {
    let body = response.body_mut().with_config().limit(LARGEST).read_to_string();
    Ok((response.status().as_u16(), body.context("cannot read the response")?))
}
