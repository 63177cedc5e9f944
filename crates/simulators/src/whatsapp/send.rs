//! `POST /{phone_number_id}/messages`: checks, limits, scripted faults, the response, and the status updates.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;

use super::core::{Core, State};
use super::definition::{check_parameters, check_white_space, text};
use super::fault::WhatsappFaultKind;
use super::graph::GraphError;
use super::job::{Job, Message};
use super::options::WhatsappOptions;
use super::phone::{hash, wa_id};
use crate::call::{Call, Response};
use crate::{locked, now_ms};

const PAIR_INTERVAL: Duration = Duration::from_secs(6);
const PAIR_BURST: u32 = 45;

struct Recipient {
    /// The recipient as written in the request.
    input: String,
    /// The recipient's `wa_id` or user id.
    id: String,
    by_user_id: bool,
}

impl Core {
    pub(super) fn send(&self, number: &str, call: &Call) -> Response {
        let options = self.options();
        let mut accepted = false;
        let response = self
            .faults
            .run(call, |call| match self.receive(number, call, &options) {
                Ok(response) => {
                    accepted = true;
                    response
                }
                Err(error) => error.to_response(),
            });
        if !accepted {
            locked(&self.state).rejected += 1;
        }
        response.delayed(options.latency_ms)
    }

    /// Accepts a message and enqueues its status updates.
    fn receive(&self, number: &str, call: &Call, options: &WhatsappOptions) -> Result<Response, GraphError> {
        let body = call.json();
        let recipient = parse_recipient(&body)?;
        let message = self.accept(number, &body, &recipient, options)?;
        let response = Response::ok(&acceptance(&recipient, &message.id));
        self.schedule(message, options);
        Ok(response)
    }

    /// Checks the limits and the template's rules, and counts the message as accepted.
    fn accept(
        &self,
        number: &str,
        body: &Value,
        to: &Recipient,
        options: &WhatsappOptions,
    ) -> Result<Arc<Message>, GraphError> {
        let mut state = locked(&self.state);
        check_limits(&mut state, number, &to.id, options)?;
        let (waba, category) = match body.get("template") {
            Some(template) => check_template(&state, template, options)?,
            None => (options.waba_id.clone(), "SERVICE".to_owned()),
        };
        state.accepted += 1;
        *state.per_recipient.entry(to.id.clone()).or_default() += 1;
        let window = (number.to_owned(), to.id.clone());
        let is_free = category == "UTILITY" && state.open_windows.contains(&window);
        Ok(Arc::new(Message {
            is_free,
            id: format!(
                "wamid.{}",
                STANDARD.encode(format!("{}{}", to.id, Uuid::new_v4().simple()))
            ),
            number: number.to_owned(),
            waba,
            recipient: to.id.clone(),
            by_user_id: to.by_user_id,
            callback_data: body
                .get("biz_opaque_callback_data")
                .and_then(Value::as_str)
                .map(str::to_owned),
            category,
        }))
    }

    /// Enqueues the status updates of an accepted message.
    fn schedule(&self, message: Arc<Message>, options: &WhatsappOptions) {
        let fault = self
            .faults
            .take(|fault| fault.affects_callbacks() && fault.is_for(&message.recipient));
        let fault = fault.map(|fault| fault.kind);
        let mut statuses = statuses(&message.recipient, options);
        let mut copies = 1;
        match fault {
            Some(WhatsappFaultKind::DropCallbacks) => return,
            Some(WhatsappFaultKind::DuplicateCallbacks { n }) => copies += n,
            Some(WhatsappFaultKind::ReorderCallbacks) => reverse_delivery(&mut statuses),
            _ => {}
        }
        let (now, wall) = (Instant::now(), now_ms());
        for Planned {
            status,
            after_ms,
            delivered_after_ms,
        } in statuses
        {
            let job = Job::Status {
                message: Arc::clone(&message),
                status,
                at: (wall + after_ms) / 1000,
                wrong_signature: fault == Some(WhatsappFaultKind::WrongSignature),
            };
            for _ in 0..copies {
                self.queue
                    .push(now + Duration::from_millis(delivered_after_ms), job.clone());
            }
        }
    }
}

/// A status update, with the delay of its timestamp and the delay of its callback.
struct Planned {
    status: &'static str,
    after_ms: u64,
    delivered_after_ms: u64,
}

fn statuses(recipient: &str, options: &WhatsappOptions) -> Vec<Planned> {
    let is_selected = |purpose: &str, percent: u8| hash(recipient, purpose) % 100 < u64::from(percent);
    let steps = if is_selected("fail", options.fail_percent) {
        vec![("failed", options.sent_ms)]
    } else {
        let read = options
            .read_ms
            .filter(|_| !is_selected("read", options.never_read_percent));
        vec![
            ("sent", options.sent_ms),
            ("delivered", options.delivered_ms),
            ("read", read),
        ]
    };
    // The same factor for all statuses of a recipient preserves their order.
    let delay_percent = 100 + hash(recipient, "jitter") % (u64::from(options.jitter_percent) + 1);
    let planned = |(status, after): (&'static str, Option<u64>)| {
        let after_ms = after? * delay_percent / 100;
        Some(Planned {
            status,
            after_ms,
            delivered_after_ms: after_ms,
        })
    };
    steps.into_iter().filter_map(planned).collect()
}

/// Sends the last status at the time of the first one, and so on. The timestamps remain.
fn reverse_delivery(statuses: &mut [Planned]) {
    let times: Vec<u64> = statuses.iter().map(|planned| planned.after_ms).collect();
    statuses.reverse();
    for (planned, time) in statuses.iter_mut().zip(times) {
        planned.delivered_after_ms = time;
    }
}

fn parse_recipient(body: &Value) -> Result<Recipient, GraphError> {
    if text(body, "messaging_product") != "whatsapp" {
        return Err(GraphError::new(100, "messaging_product must be whatsapp"));
    }
    match text(body, "type") {
        "template" => {
            let template = body.get("template").unwrap_or(&Value::Null);
            let language = template
                .pointer("/language/code")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if text(template, "name").is_empty() || language.is_empty() {
                return Err(GraphError::new(
                    131008,
                    "template.name and template.language.code are required",
                ));
            }
        }
        "text" | "" => {
            let content = body.pointer("/text/body").and_then(Value::as_str).unwrap_or_default();
            if content.is_empty() {
                return Err(GraphError::new(131008, "text.body is required"));
            }
        }
        "interactive" if body.pointer("/interactive/type") == Some(&json!("request_contact_info")) => {
            let at = |path: &str| body.pointer(path).and_then(Value::as_str).unwrap_or_default();
            if at("/interactive/body/text").is_empty() || at("/interactive/action/name") != "request_contact_info" {
                return Err(GraphError::new(
                    131008,
                    "interactive.body.text and interactive.action.name are required",
                ));
            }
        }
        "image" | "video" | "document" | "audio" | "sticker" | "interactive" => {}
        kind => return Err(GraphError::new(131009, format!("type {kind:?} is not supported"))),
    }
    let (to, user) = (text(body, "to"), text(body, "recipient"));
    if to.is_empty() && !user.is_empty() {
        return Ok(Recipient {
            input: user.to_owned(),
            id: user.to_owned(),
            by_user_id: true,
        });
    }
    if to.is_empty() {
        return Err(GraphError::new(131008, "to is required"));
    }
    let id = wa_id(to);
    if !(8..=15).contains(&id.len()) {
        return Err(GraphError::new(
            131009,
            "to is not a phone number with its country code",
        ));
    }
    Ok(Recipient {
        input: to.to_owned(),
        id,
        by_user_id: false,
    })
}

fn check_limits(state: &mut State, number: &str, recipient: &str, options: &WhatsappOptions) -> Result<(), GraphError> {
    let now = Instant::now();
    // The number's limit comes first, so that a message that it rejects does not count towards the recipient's limit.
    if let Some(rate) = options.number_rate.map(|rate| rate.max(1))
        && !state.numbers.admit(number, Duration::from_secs(1) / rate, rate, now)
    {
        return Err(GraphError::throttled());
    }
    let pair = format!("{number}/{recipient}");
    if options.pair_limit && !state.pairs.admit(&pair, PAIR_INTERVAL, PAIR_BURST, now) {
        return Err(GraphError::new(
            131056,
            "Too many messages to this recipient in a short time.",
        ));
    }
    Ok(())
}

/// Checks a send against its template; returns business account and category. An empty registry accepts every name.
fn check_template(state: &State, sent: &Value, options: &WhatsappOptions) -> Result<(String, String), GraphError> {
    check_white_space(sent)?;
    if state.templates.is_empty() {
        return Ok((options.waba_id.clone(), "MARKETING".to_owned()));
    }
    let language = sent
        .pointer("/language/code")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let name = text(sent, "name");
    let Some(template) = state.templates.find(name, language) else {
        return Err(GraphError::new(
            132001,
            format!("template name ({name}) does not exist in {language}"),
        ));
    };
    match template.status.as_str() {
        "APPROVED" => {}
        "PAUSED" => return Err(GraphError::new(132015, format!("template ({name}) is paused"))),
        "DISABLED" => return Err(GraphError::new(132016, format!("template ({name}) is disabled"))),
        status => {
            return Err(GraphError::new(
                132001,
                format!("template ({name}) is {status}, not APPROVED"),
            ));
        }
    }
    check_parameters(&template.definition, sent)?;
    state.uploads.check_files(sent)?;
    Ok((template.waba.clone(), text(&template.definition, "category").to_owned()))
}

fn acceptance(recipient: &Recipient, id: &str) -> Value {
    let id_field = if recipient.by_user_id { "user_id" } else { "wa_id" };
    json!({
        "messaging_product": "whatsapp",
        "contacts": [{ "input": recipient.input, id_field: recipient.id }],
        "messages": [{ "id": id, "message_status": "accepted" }],
    })
}
