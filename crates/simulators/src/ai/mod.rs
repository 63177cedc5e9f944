//! The AI service simulator: OpenAI-compatible chat completions. Plain rules replace the model, so that extraction
//! gives a real result without a network.

mod extract;

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::call::{Call, Response};
use crate::control::Service;
use crate::fault::{Fault, Faults, Script};
use crate::host::Host;
use crate::ledger::{Entry, Ledger};
use crate::{now_ms, set};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AiOptions {
    /// The address to listen on.
    pub bind: String,
    /// The required bearer token. None: accepts any token.
    pub api_key: Option<String>,
}

impl Default for AiOptions {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:0".into(),
            api_key: None,
        }
    }
}

/// The running simulator; it stops when dropped.
pub struct Ai {
    host: Host,
    core: Arc<Core>,
}

impl Ai {
    /// Returns when the port listens.
    pub fn start(options: AiOptions) -> io::Result<Self> {
        let core = Arc::new(Core {
            api_key: options.api_key,
            faults: Script::default(),
            ledger: Ledger::default(),
        });
        let host = Host::start(&options.bind, Arc::<Core>::clone(&core))?;
        Ok(Self { host, core })
    }

    /// `http://127.0.0.1:PORT`, where the control routes are.
    pub fn origin(&self) -> String {
        self.host.origin()
    }

    /// The base URL to configure in the product.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Adds faults. [`crate::fault::FaultKind::Status`] with a [`completion`] scripts any response.
    pub fn script(&self, faults: Vec<Fault>) {
        self.core.faults.add(faults);
    }

    /// The received requests, oldest first.
    pub fn ledger(&self) -> Vec<Entry> {
        self.core.ledger.entries()
    }
}

/// The body of a completion, for scripted responses such as truncated JSON, a code fence or a refusal.
pub fn completion(content: Option<&str>, finish_reason: &str, refusal: Option<&str>) -> Value {
    json!({
        "id": format!("chatcmpl-{}", Uuid::new_v4().simple()),
        "object": "chat.completion",
        "created": now_ms() / 1000,
        "model": "simulator",
        "choices": [{
            "index": 0,
            "finish_reason": finish_reason,
            "logprobs": null,
            "message": { "role": "assistant", "content": content, "refusal": refusal },
        }],
        "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 },
    })
}

struct Core {
    api_key: Option<String>,
    faults: Script<Fault>,
    ledger: Ledger,
}

impl Service for Core {
    fn respond(&self, call: &Call) -> Response {
        match (call.method.as_str(), call.segments().as_slice()) {
            ("POST", ["v1", "chat", "completions"]) => self.faults.run(call, |call| self.complete(call)),
            ("GET", ["v1", "models"]) => self.faults.run(call, |call| self.list_models(call)),
            _ => error(404, "not_found", "unknown path"),
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn faults(&self) -> &dyn Faults {
        &self.faults
    }
}

impl Core {
    fn is_authorized(&self, call: &Call) -> bool {
        let token = call
            .header("authorization")
            .and_then(|header| header.strip_prefix("Bearer "));
        token.is_some_and(|token| self.api_key.as_deref().is_none_or(|key| key == token))
    }

    fn list_models(&self, call: &Call) -> Response {
        if !self.is_authorized(call) {
            return error(401, "invalid_api_key", "Incorrect API key provided");
        }
        let model = json!({ "id": "simulated", "object": "model", "owned_by": "recado" });
        Response::ok(&json!({ "object": "list", "data": [model] }))
    }

    fn complete(&self, call: &Call) -> Response {
        if !self.is_authorized(call) {
            return error(401, "invalid_api_key", "Incorrect API key provided");
        }
        let body = call.json();
        let content = |message: &Value| match message.get("content") {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(parts)) => Some(
                parts
                    .iter()
                    .filter_map(|part| part.get("text").and_then(Value::as_str))
                    .collect::<Vec<_>>()
                    .join("\n"),
            ),
            _ => None,
        };
        let messages = body
            .get("messages")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let by_user = |message: &&Value| message.get("role").and_then(Value::as_str) == Some("user");
        let Some(prompt) = messages.iter().rfind(by_user).and_then(content) else {
            return error(400, "invalid_request", "a user message is required");
        };
        let facts = extract::facts(&prompt, body.pointer("/response_format/json_schema/schema")).to_string();
        let mut response = completion(Some(&facts), "stop", None);
        let (prompt_words, completion_words) = (prompt.split_whitespace().count(), facts.split_whitespace().count());
        set(
            &mut response,
            "usage",
            json!({
                "prompt_tokens": prompt_words,
                "completion_tokens": completion_words,
                "total_tokens": prompt_words + completion_words,
            }),
        );
        if let Some(model) = body.get("model") {
            set(&mut response, "model", model.clone());
        }
        Response::ok(&response)
    }
}

fn error(status: u16, code: &str, message: &str) -> Response {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": null, "code": code });
    Response::json(status, &json!({ "error": error }))
}
