//! The control routes of the WhatsApp simulator: counters, templates, numbers, inbound messages, preferences, business
//! updates, options.

use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::callback::template_change;
use super::core::{Core, State};
use super::definition::{parameters, text};
use super::job::Job;
use super::options::WhatsappOptions;
use crate::call::{Call, Response};
use crate::callback_sender::Deliveries;
use crate::control::{done, no_route};
use crate::ledger::Entry;
use crate::{locked, set};

/// A ledger entry with the main fields of a message extracted.
#[derive(Debug, Clone, Serialize)]
pub struct ReceivedRequest {
    #[serde(flatten)]
    pub request: Entry,
    pub to: Option<String>,
    pub callback_data: Option<String>,
    pub template: Option<String>,
    pub language: Option<String>,
    /// The parameters as text, in order.
    pub parameters: Vec<String>,
}

impl From<Entry> for ReceivedRequest {
    fn from(request: Entry) -> Self {
        let at = |path: &str| request.body.pointer(path).and_then(Value::as_str).map(str::to_owned);
        Self {
            to: at("/to"),
            callback_data: at("/biz_opaque_callback_data"),
            template: at("/template/name").or_else(|| at("/name")),
            language: at("/template/language/code").or_else(|| at("/language")),
            parameters: request.body.get("template").map(parameters).unwrap_or_default(),
            request,
        }
    }
}

/// Counts of accepted and rejected sends and of callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub accepted: u64,
    pub rejected: u64,
    /// Number of distinct recipients of accepted sends.
    pub recipients: usize,
    /// Maximum number of accepted sends to the same recipient.
    pub per_recipient_max: u32,
    pub callbacks: Deliveries,
}

#[derive(Deserialize)]
struct AccountBody {
    other_numbers: u32,
}

#[derive(Deserialize)]
struct StatusBody {
    event: String,
    #[serde(default)]
    reason: Option<String>,
}

impl Core {
    pub(super) fn control_route(&self, call: &Call, route: &[&str]) -> Result<Response, Response> {
        let body = match (call.method.as_str(), route) {
            ("GET", ["counters"]) => json!(self.counters()),
            ("GET", ["options"]) => json!(self.options()),
            ("POST", ["options"]) => self.change_options(call.json())?,
            ("POST", ["templates"]) => json!({ "id": self.add_template(&call.json()) }),
            ("POST", ["templates", id, "status"]) => {
                let body: StatusBody = call.read()?;
                let found = self.set_template_status(id, &body.event, body.reason.as_deref());
                return done(found, "no such template");
            }
            ("POST", ["inbound"]) => json!({ "id": self.inbound(&call.read()?) }),
            ("POST", ["inbound", "batch"]) => json!({ "ids": self.inbound_batch(&call.read()?) }),
            ("POST", ["files"]) => {
                let file = call.read()?;
                json!({ "id": locked(&self.state).files.add(file) })
            }
            ("POST", ["preferences"]) => {
                self.preference(&call.read()?);
                json!({})
            }
            ("POST", ["business-update"]) => {
                self.business_update(&call.read()?);
                json!({})
            }
            ("GET", ["subscriptions"]) => json!(locked(&self.state).accounts.subscribed()),
            (_, ["numbers", id]) => return self.number_route(call, id),
            ("POST", ["accounts", waba]) => {
                let body: AccountBody = call.read()?;
                locked(&self.state).accounts.set_other_numbers(waba, body.other_numbers);
                json!({})
            }
            _ => return Err(no_route()),
        };
        Ok(Response::ok(&body))
    }

    /// Returns, changes or removes the settings of a number.
    fn number_route(&self, call: &Call, id: &str) -> Result<Response, Response> {
        let numbers = &mut locked(&self.state).accounts;
        match call.method.as_str() {
            "GET" => {}
            "POST" => numbers.set_settings(id, merged(&numbers.settings(id), call.json())?),
            "DELETE" => return done(numbers.remove_settings(id), "the number has no settings"),
            _ => return Err(no_route()),
        }
        Ok(Response::ok(&json!(numbers.settings(id))))
    }

    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.ledger.entries().into_iter().map(ReceivedRequest::from).collect()
    }

    pub(super) fn counters(&self) -> Counters {
        let state = locked(&self.state);
        Counters {
            accepted: state.accepted,
            rejected: state.rejected,
            recipients: state.per_recipient.len(),
            per_recipient_max: state.per_recipient.values().copied().max().unwrap_or(0),
            callbacks: self.queue.deliveries(),
        }
    }

    /// Clears templates, files, numbers and counters. Template ids are never reused.
    pub(super) fn reset_state(&self) {
        let mut state = locked(&self.state);
        let mut templates = std::mem::take(&mut state.templates);
        templates.clear();
        *state = State {
            templates,
            ..Default::default()
        };
    }

    pub(super) fn add_template(&self, body: &Value) -> String {
        let options = self.options();
        let waba = Some(text(body, "waba_id"))
            .filter(|waba| !waba.is_empty())
            .unwrap_or(&options.waba_id);
        let status = Some(text(body, "status"))
            .filter(|status| !status.is_empty())
            .unwrap_or("APPROVED");
        locked(&self.state).templates.insert(waba, body, status).id.to_string()
    }

    pub(super) fn set_template_status(&self, id: &str, event: &str, reason: Option<&str>) -> bool {
        let id = id.parse().unwrap_or(0);
        let Some(template) = locked(&self.state).templates.set_status(id, None, event, reason) else {
            return false;
        };
        let change = template_change(template.update(event, reason));
        self.queue.push(
            Instant::now(),
            Job::Change {
                waba: template.waba,
                change,
            },
        );
        true
    }

    pub(super) fn send_template_update(&self, id: &str, field: &str, value: &Value) -> bool {
        let Some(template) = locked(&self.state).templates.get(id.parse().unwrap_or(0)).cloned() else {
            return false;
        };
        let mut value = value.clone();
        set(&mut value, "message_template_id", json!(template.id));
        set(
            &mut value,
            "message_template_name",
            json!(text(&template.definition, "name")),
        );
        let change = json!({ "field": field, "value": value });
        let waba = template.waba;
        self.queue.push(Instant::now(), Job::Change { waba, change });
        true
    }

    fn change_options(&self, changes: Value) -> Result<Value, Response> {
        let mut options = locked(&self.options);
        let changed: WhatsappOptions = merged(&*options, changes)?;
        *options = WhatsappOptions {
            bind: options.bind.clone(),
            ..changed
        };
        Ok(json!(*options))
    }
}

/// Replaces the named fields of a value. 400 for a field that does not exist or has the wrong type.
fn merged<T: Serialize + DeserializeOwned>(current: &T, changes: Value) -> Result<T, Response> {
    let mut merged = json!(current);
    let (Value::Object(fields), Value::Object(changes)) = (&mut merged, changes) else {
        return Err(Response::refuse(400, "the body must be an object of fields to change"));
    };
    fields.extend(changes);
    serde_json::from_value(merged).map_err(|error| Response::refuse(400, error))
}
