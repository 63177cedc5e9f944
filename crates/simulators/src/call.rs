//! A request that a simulator received, and its response.

use std::collections::HashMap;
use std::time::Duration;

use actix_web::{HttpRequest, web};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A request with its complete body.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: web::Bytes,
    headers: HashMap<String, String>,
}

impl Call {
    pub(crate) fn new(request: &HttpRequest, body: web::Bytes) -> Self {
        let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string());
        let headers = request.headers().iter();
        Self {
            method: request.method().to_string(),
            path: request.path().replace("%3A", ":").replace("%3a", ":"),
            query: query.map(web::Query::into_inner).unwrap_or_default(),
            body,
            headers: headers
                .map(|(name, value)| {
                    (
                        name.as_str().to_owned(),
                        String::from_utf8_lossy(value.as_bytes()).into_owned(),
                    )
                })
                .collect(),
        }
    }

    /// Header values by lower-case name.
    pub(crate) fn headers(&self) -> &HashMap<String, String> {
        &self.headers
    }

    /// Returns a header by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns a query parameter. An empty value counts as absent.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON, or null if it is not valid JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Parses the body; the error is a 400 response.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Response> {
        serde_json::from_slice(&self.body).map_err(|error| Response::refuse(400, error))
    }

    /// Returns the request with its body truncated to `bytes`.
    pub(crate) fn truncated(&self, bytes: usize) -> Self {
        let body = self.body.slice(..bytes.min(self.body.len()));
        Self { body, ..self.clone() }
    }

    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.split('/').filter(|segment| !segment.is_empty()).collect()
    }
}

/// A reply and the delay before it.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) after: Duration,
    pub(crate) reply: Reply,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Send {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Sends the body byte by byte, with a pause before each.
    Drip {
        status: u16,
        body: Vec<u8>,
        pause: Duration,
    },
    /// Declares this length, sends the body, then closes the connection.
    CutOff { status: u16, body: Vec<u8>, length: u64 },
    /// Sends this many zero bytes as fast as the client reads.
    Flood { status: u16, bytes: u64 },
    /// Closes the connection without sending a byte.
    Close,
    /// Resets the connection (TCP RST).
    Reset,
}

impl Response {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::raw(status, body.to_string())
    }

    pub(crate) fn ok(body: &Value) -> Self {
        Self::json(200, body)
    }

    /// The response of a control route without a result.
    pub(crate) fn done() -> Self {
        Self::ok(&json!({}))
    }

    pub(crate) fn raw(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let reply = Reply::Send {
            status,
            headers: Vec::new(),
            body: body.into(),
        };
        Self {
            after: Duration::ZERO,
            reply,
        }
    }

    pub(crate) fn close() -> Self {
        Self::now(Reply::Close)
    }

    pub(crate) fn now(reply: Reply) -> Self {
        Self {
            after: Duration::ZERO,
            reply,
        }
    }

    /// The error response of a control route.
    pub(crate) fn refuse(status: u16, reason: impl std::fmt::Display) -> Self {
        Self::json(status, &json!({ "error": reason.to_string() }))
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl ToString) -> Self {
        if let Reply::Send { headers, .. } = &mut self.reply {
            headers.push((name, value.to_string()));
        }
        self
    }

    /// Changes the body if it is JSON.
    pub(crate) fn edited(mut self, change: impl FnOnce(&mut Value)) -> Self {
        if let Reply::Send { body, .. } = &mut self.reply
            && let Ok(mut value) = serde_json::from_slice(body)
        {
            change(&mut value);
            *body = value.to_string().into_bytes();
        }
        self
    }

    pub(crate) fn delayed(mut self, milliseconds: u64) -> Self {
        self.after += Duration::from_millis(milliseconds);
        self
    }

    /// The status to send. None: the connection is closed instead.
    pub(crate) fn status(&self) -> Option<u16> {
        match &self.reply {
            Reply::Send { status, .. }
            | Reply::Drip { status, .. }
            | Reply::CutOff { status, .. }
            | Reply::Flood { status, .. } => Some(*status),
            Reply::Close | Reply::Reset => None,
        }
    }
}
