//! JSON over HTTP to a server on this machine.

use std::time::Duration;

use serde_json::Value;

use anyhow::{Context, Result};

pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    headers: Vec<(&'static str, String)>,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Client {
    pub(crate) fn new(base: &str, headers: Vec<(&'static str, String)>) -> Self {
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

    pub(crate) fn get(&self, path: &str) -> Result<Reply> {
        self.text(path).map(Reply::from)
    }

    /// Returns the status and the raw body, so that a measurement excludes the parsing of JSON.
    pub(crate) fn text(&self, path: &str) -> Result<(u16, String)> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        text(request.call().with_context(|| format!("GET {path}"))?)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Reply> {
        self.send(self.agent.post(format!("{}{path}", self.base)), body)
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<Reply> {
        self.send(self.agent.put(format!("{}{path}", self.base)), body)
    }

    fn send(&self, request: ureq::RequestBuilder<ureq::typestate::WithBody>, body: &Value) -> Result<Reply> {
        let mut request = request.header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let sent = request.send(body.to_string());
        text(sent.with_context(|| format!("cannot send to {}", self.base))?).map(Reply::from)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Reply> {
        let mut request = self.agent.delete(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        text(request.call().with_context(|| format!("DELETE {path}"))?).map(Reply::from)
    }
}

/// Maximum size of a response: a simulator's complete ledger.
const LARGEST: u64 = 64 * 1024 * 1024;

impl From<(u16, String)> for Reply {
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
