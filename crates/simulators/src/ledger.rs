//! The ledger: a record of every request that a simulator received, so that a test can assert what the product sent.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde::Serialize;
use serde_json::{Value, json};

use crate::call::Call;
use crate::{locked, now_ms};

/// Maximum number of entries. A new entry then replaces the oldest.
const MAX_ENTRIES: usize = 20_000;

/// A received request.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Time of receipt in milliseconds since 1970.
    pub at_ms: u64,
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The JSON body, `{"bytes": n}` if the body is not JSON, or null without a body.
    pub body: Value,
    /// Status of the response. None: the connection was closed instead.
    pub status: Option<u16>,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<VecDeque<Entry>>);

impl Ledger {
    pub(crate) fn record(&self, call: &Call, status: Option<u16>) {
        let body = match serde_json::from_slice(&call.body) {
            Ok(body) => body,
            Err(_) if call.body.is_empty() => Value::Null,
            Err(_) => json!({ "bytes": call.body.len() }),
        };
        let (method, path, query) = (call.method.clone(), call.path.clone(), call.query.clone());
        let entry = Entry {
            at_ms: now_ms(),
            method,
            path,
            query,
            body,
            status,
        };
        let mut entries = locked(&self.0);
        if entries.len() >= MAX_ENTRIES {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        locked(&self.0).iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        locked(&self.0).clear();
    }
}
