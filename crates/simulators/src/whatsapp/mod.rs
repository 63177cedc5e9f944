//! The WhatsApp simulator: sends, templates, uploads and media with the responses of the Cloud API, signed callbacks,
//! and scripted faults.

mod bounded;
mod burst_limiter;
mod business_updates;
mod callback;
mod control;
mod core;
mod definition;
mod fault;
mod files;
mod graph;
mod inbound;
mod job;
mod media;
mod number_routes;
mod numbers;
mod options;
mod phone;
mod registry;
mod send;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use serde_json::{Value, json};

pub use business_updates::BusinessUpdateCallback;
pub use callback::signature;
pub use control::{Counters, ReceivedRequest};
pub use fault::{On, WhatsappFault, WhatsappFaultKind};
pub use files::FileSettings;
pub use inbound::{ContactCard, Inbound, InboundBatch, InboundFile, Preference};
pub use numbers::NumberSettings;
pub use options::{Approval, WhatsappOptions};
pub use phone::wa_id;

use core::Core;
use graph::{GraphError, bearer};
use job::Job;
use registry::{Query, Template};

use crate::call::{Call, Response};
use crate::control::Service;
use crate::fault::Faults;
use crate::host::Host;
use crate::ledger::Ledger;
use crate::locked;

/// The running simulator; it stops when dropped.
pub struct Whatsapp {
    host: Host,
    core: Arc<Core>,
}

impl Whatsapp {
    /// Returns when the port listens.
    pub fn start(options: WhatsappOptions) -> io::Result<Self> {
        let bind = options.bind.clone();
        let core = Arc::new(Core {
            options: Mutex::new(options),
            ..Core::default()
        });
        let host = Host::start(&bind, Arc::<Core>::clone(&core))?;
        let worker = Arc::clone(&core);
        thread::Builder::new()
            .name("callbacks".into())
            .spawn(move || worker.queue.work(|due| worker.pack(due)))?;
        Ok(Self { host, core })
    }

    /// `http://127.0.0.1:PORT`, where the control routes are.
    pub fn origin(&self) -> String {
        self.host.origin()
    }

    /// Origin and API version: the base URL to configure in the product.
    pub fn base_url(&self) -> String {
        format!("{}/v25.0", self.origin())
    }

    pub fn script(&self, faults: Vec<WhatsappFault>) {
        self.core.faults.add(faults);
    }

    /// The received requests, oldest first.
    pub fn ledger(&self) -> Vec<ReceivedRequest> {
        self.core.received()
    }

    /// The received sends, accepted or not, oldest first.
    pub fn sends(&self) -> Vec<ReceivedRequest> {
        let is_send = |received: &ReceivedRequest| received.request.path.ends_with("/messages");
        self.ledger().into_iter().filter(is_send).collect()
    }

    pub fn counters(&self) -> Counters {
        self.core.counters()
    }

    /// Adds a template without review and returns its id. `waba_id` defaults to that of the options, `status` to
    /// APPROVED.
    pub fn add_template(&self, template: &Value) -> String {
        self.core.add_template(template)
    }

    /// Sets a template's status and sends the callback. False: the template does not exist.
    pub fn set_template_status(&self, id: &str, event: &str, reason: Option<&str>) -> bool {
        self.core.set_template_status(id, event, reason)
    }

    /// Sends a callback about a template that is not a status update, for example `message_template_quality_update`
    /// with `{"new_quality_score": "RED"}`. False: the template does not exist.
    pub fn send_template_update(&self, id: &str, field: &str, value: &Value) -> bool {
        self.core.send_template_update(id, field, value)
    }

    /// Sends the callback of an inbound message and returns the message's id.
    pub fn inbound(&self, inbound: &Inbound) -> String {
        self.core.inbound(inbound)
    }

    /// Sends several inbound messages in one callback and returns their ids in the order of `messages`.
    pub fn inbound_batch(&self, batch: &InboundBatch) -> Vec<String> {
        self.core.inbound_batch(batch)
    }

    /// Adds a file that a message may name, and returns its media id.
    pub fn add_file(&self, file: FileSettings) -> String {
        locked(&self.core.state).files.add(file)
    }

    /// Sends the callback of a user who stops or resumes marketing messages.
    pub fn preference(&self, preference: &Preference) {
        self.core.preference(preference);
    }

    /// Sends the callback of an update of a business account or one of its numbers.
    pub fn business_update(&self, update: &BusinessUpdateCallback) {
        self.core.business_update(update);
    }

    /// Changes what the platform knows about a phone number.
    pub fn set_number(&self, id: &str, change: impl FnOnce(&mut NumberSettings)) {
        let numbers = &mut locked(&self.core.state).accounts;
        let mut settings = numbers.settings(id);
        change(&mut settings);
        numbers.set_settings(id, settings);
    }

    /// Sets how many other numbers a business account lists before those that were asked for.
    pub fn set_other_numbers(&self, waba: &str, count: u32) {
        locked(&self.core.state).accounts.set_other_numbers(waba, count);
    }

    /// The business accounts to which the app is subscribed, oldest first.
    pub fn subscriptions(&self) -> Vec<String> {
        locked(&self.core.state).accounts.subscribed()
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.core.faults.clear();
    }

    /// Changes the options at run time. A changed `bind` has no effect.
    pub fn set_options(&self, change: impl FnOnce(&mut WhatsappOptions)) {
        change(&mut locked(&self.core.options));
    }

    /// Waits until no callback is queued or in flight. False: `at_most` ran out first.
    pub fn wait_idle(&self, at_most: Duration) -> bool {
        self.core.queue.wait_idle(at_most)
    }

    /// Clears templates, numbers, faults, ledger and counters.
    pub fn reset(&self) {
        crate::control::reset(&*self.core);
    }
}

impl Service for Core {
    fn respond(&self, call: &Call) -> Response {
        let segments = call.segments();
        match segments.as_slice() {
            [version, ..] if is_version(version) && !authorized(call) => GraphError::unauthorized().to_response(),
            [version, number, "messages"] if is_version(version) && call.method == "POST" => self.send(number, call),
            [version, route @ ..] if is_version(version) => self.faults.run(call, |call| {
                self.route(call, route).unwrap_or_else(|error| error.to_response())
            }),
            ["files", id] if call.method == "GET" => locked(&self.state).files.serve(id, call),
            _ => GraphError::new(2500, "Unknown path components")
                .with_status(404)
                .to_response(),
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn faults(&self) -> &dyn Faults {
        &self.faults
    }

    fn ledger_json(&self) -> Value {
        json!(self.received())
    }

    fn control(&self, call: &Call, route: &[&str]) -> Result<Response, Response> {
        self.control_route(call, route)
    }

    fn clear_state(&self) {
        self.reset_state();
    }

    fn stop(&self) {
        self.queue.stop();
    }
}

impl Core {
    fn route(&self, call: &Call, route: &[&str]) -> Result<Response, GraphError> {
        match (call.method.as_str(), route) {
            ("POST", [_, "media"]) => locked(&self.state).uploads.media(call),
            ("POST", [_, "uploads"]) => locked(&self.state).uploads.open(call),
            ("POST", [upload]) if upload.starts_with("upload:") => locked(&self.state).uploads.receive(upload, call),
            ("GET", [upload]) if upload.starts_with("upload:") => locked(&self.state).uploads.show(upload),
            ("GET", [waba, "phone_numbers"]) => Ok(self.list_numbers(waba, call)),
            ("POST", [waba, "subscribed_apps"]) => Ok(self.set_subscription(waba, true)),
            ("DELETE", [waba, "subscribed_apps"]) => Ok(self.set_subscription(waba, false)),
            ("GET", [waba, "subscribed_apps"]) => Ok(self.list_subscriptions(waba)),
            ("POST", [number, "register"]) => self.register_number(number, call),
            ("GET", ["debug_token"]) => self.debug_token(call),
            ("POST", [waba, "message_templates"]) => self.create_template(waba, call),
            ("GET", [waba, "message_templates"]) => Ok(self.list_templates(waba, call)),
            ("DELETE", [waba, "message_templates"]) => self.delete_templates(waba, call),
            ("POST", [id]) => self.edit_template(id, call),
            ("GET", [id]) => self.show(id, call),
            _ => Err(GraphError::new(2500, "Unknown path components").with_status(404)),
        }
    }

    fn create_template(&self, waba: &str, call: &Call) -> Result<Response, GraphError> {
        locked(&self.state).uploads.check_handles(&call.json())?;
        let template = locked(&self.state).templates.create(waba, &call.json())?;
        self.enqueue_review(&template);
        Ok(Response::ok(&template.to_json(Some("status,category"))))
    }

    /// Queues WhatsApp's decision on a template.
    fn enqueue_review(&self, template: &Template) {
        let (event, after_ms, reason) = match self.options().template_approval {
            Approval::Approve { after_ms } => ("APPROVED", after_ms, None),
            Approval::Reject { after_ms, reason } => ("REJECTED", after_ms, Some(reason)),
            Approval::Manual => return,
        };
        let decision = Job::Decide {
            id: template.id,
            version: template.version,
            event,
            reason,
        };
        self.queue
            .push(Instant::now() + Duration::from_millis(after_ms), decision);
    }

    fn list_templates(&self, waba: &str, call: &Call) -> Response {
        let limit = call
            .param("limit")
            .and_then(|limit| limit.parse::<usize>().ok())
            .unwrap_or(25);
        let query = Query {
            url: format!("http://{}{}", call.header("host").unwrap_or_default(), call.path),
            name: call.param("name"),
            status: call.param("status"),
            fields: call.param("fields"),
            after: call.param("after"),
            limit: limit.clamp(1, 250),
        };
        Response::ok(&locked(&self.state).templates.page(waba, &query))
    }

    fn delete_templates(&self, waba: &str, call: &Call) -> Result<Response, GraphError> {
        let Some(name) = call.param("name") else {
            return Err(GraphError::new(100, "name is required"));
        };
        // Ids begin at 1, so an id that is not a number matches no template.
        let id = call.param("hsm_id").map(|id| id.parse().unwrap_or(0));
        match locked(&self.state).templates.delete(waba, name, id) {
            0 => Err(GraphError::new(100, "Message template not found")),
            _ => Ok(Response::ok(&json!({ "success": true }))),
        }
    }

    fn edit_template(&self, id: &str, call: &Call) -> Result<Response, GraphError> {
        locked(&self.state).uploads.check_handles(&call.json())?;
        let template = locked(&self.state)
            .templates
            .edit(id.parse().unwrap_or(0), &call.json())?;
        self.enqueue_review(&template);
        Ok(Response::ok(&json!({ "success": true })))
    }

    /// `GET /{id}`: the template with this id, or else a phone number or business account.
    fn show(&self, id: &str, call: &Call) -> Result<Response, GraphError> {
        let number = id.parse().unwrap_or(0);
        let mut state = locked(&self.state);
        if let Some(located) = state.files.locate(id, call) {
            return located;
        }
        if let Some(template) = state.templates.get(number) {
            return Ok(Response::ok(&template.to_json(call.param("fields"))));
        }
        if state.templates.was_deleted(number) {
            return Err(GraphError::new(
                100,
                "Unsupported get request: the object does not exist.",
            ));
        }
        drop(state);
        self.show_number(id, call)
    }
}

/// Whether a path segment is an API version such as `v25.0`.
fn is_version(segment: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = segment.strip_prefix('v').and_then(|numbers| numbers.split_once('.'));
    numbers.is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// Accepts every token except those that begin with `expired`.
fn authorized(call: &Call) -> bool {
    let token = bearer(call);
    !token.is_empty() && !token.starts_with("expired")
}
