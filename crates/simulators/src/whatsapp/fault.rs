//! The scripted faults of WhatsApp: in the response to a send, template, upload, file, list or call about a number and
//! its account, and in the callbacks of a send.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::text;
use super::graph::{GraphError, bearer};
use super::numbers::names_field;
use super::phone::wa_id;
use crate::call::{Call, Response};
use crate::fault::{Effect, Scripted};

/// One send consumes at most one fault of its response and one of its callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WhatsappFaultKind {
    /// Rejects with this error object.
    Error {
        code: u32,
        #[serde(default = "bad_request")]
        http_status: u16,
        #[serde(default)]
        details: String,
    },
    /// Rejects with 130429, as if the number exceeded its throughput.
    Throttle,
    /// Rejects with HTTP 429 and `Retry-After`.
    RateLimited { retry_after_s: u32 },
    /// Rejects with this status and an empty body.
    EmptyStatus { http_status: u16 },
    /// Accepts and responds late.
    Hang { ms: u64 },
    /// Accepts, then closes the connection without a response.
    AcceptThenReset,
    /// Accepts, then responds with HTTP 500 and code 131000.
    AcceptThenStatus500,
    /// Accepts, then responds with 200 and broken JSON.
    GarbageJson,
    /// Accepts, then responds without the id of the message or template.
    AnswerWithoutId,
    /// Receives only this many bytes of an upload, then closes the connection without a response.
    BreakAfter { bytes: usize },
    /// Repeats every callback of the send this many times.
    DuplicateCallbacks { n: u32 },
    /// Sends the callbacks in reverse order: read, delivered, sent.
    ReorderCallbacks,
    /// Sends no callback for the message.
    DropCallbacks,
    /// Signs the callbacks with another secret and posts each of them once.
    WrongSignature,
}

impl WhatsappFaultKind {
    /// Rejects with this code and HTTP 400, as WhatsApp mostly does.
    pub fn error(code: u32, details: &str) -> Self {
        Self::Error {
            code,
            http_status: bad_request(),
            details: details.to_owned(),
        }
    }
}

/// The kind of request that a fault matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    #[default]
    Send,
    /// The creation of a template.
    Template,
    /// The bytes of a resumable upload.
    Upload,
    /// A file for messages.
    Media,
    /// A page of the list of templates.
    List,
    /// The fields of a phone number.
    Number,
    /// A page of the phone numbers of a business account.
    PhoneNumbers,
    /// The subscription of the app to a business account.
    Subscription,
    /// The registration of a phone number.
    Registration,
    /// The health of a phone number.
    Health,
    /// Any of the calls about a number and its account: `number` to `health`.
    Account,
    /// Every request.
    Any,
}

/// A fault. The first matching request consumes it, unless it stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatsappFault {
    #[serde(flatten)]
    pub kind: WhatsappFaultKind,
    #[serde(default)]
    pub on: On,
    /// Restricts the fault to sends to this recipient: a phone number with its country code in any format, or a user
    /// id.
    #[serde(default)]
    pub to: Option<String>,
    /// Restricts the fault to requests with this access token.
    #[serde(default)]
    pub token: Option<String>,
    /// Restricts the fault to requests to this object: a phone number ID, or the id of a business account.
    #[serde(default)]
    pub id: Option<String>,
    /// A permanent fault affects every matching request until the faults are cleared.
    #[serde(default)]
    pub stays: bool,
}

impl WhatsappFault {
    /// A fault of the next send.
    pub fn send(kind: WhatsappFaultKind) -> Self {
        Self::of(On::Send, kind)
    }

    /// A fault of the next send to one recipient.
    pub fn send_to(to: &str, kind: WhatsappFaultKind) -> Self {
        Self {
            to: Some(to.to_owned()),
            ..Self::send(kind)
        }
    }

    /// A fault of the next creation of a template.
    pub fn template(kind: WhatsappFaultKind) -> Self {
        Self::of(On::Template, kind)
    }

    /// A fault of the next request of a kind.
    pub fn of(on: On, kind: WhatsappFaultKind) -> Self {
        Self {
            kind,
            on,
            to: None,
            token: None,
            id: None,
            stays: false,
        }
    }

    /// Restricts the fault to requests with this access token.
    #[must_use]
    pub fn for_token(self, token: &str) -> Self {
        let token = Some(token.to_owned());
        Self { token, ..self }
    }

    /// Restricts the fault to requests to this phone number or business account.
    #[must_use]
    pub fn for_id(self, id: &str) -> Self {
        let id = Some(id.to_owned());
        Self { id, ..self }
    }

    /// Makes the fault permanent.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { stays: true, ..self }
    }

    /// Whether the fault matches sends to this recipient (a `wa_id` or user id).
    pub(super) fn is_for(&self, recipient: &str) -> bool {
        let is_recipient = |to: &String| to == recipient || wa_id(to) == recipient;
        self.on == On::Send && self.to.as_ref().is_none_or(is_recipient)
    }

    pub(super) fn affects_callbacks(&self) -> bool {
        use WhatsappFaultKind::{DropCallbacks, DuplicateCallbacks, ReorderCallbacks, WrongSignature};
        matches!(
            self.kind,
            DuplicateCallbacks { .. } | ReorderCallbacks | DropCallbacks | WrongSignature
        )
    }
}

impl On {
    fn of(call: &Call) -> Option<Self> {
        match (call.method.as_str(), call.segments().as_slice()) {
            ("POST", [.., "messages"]) => Some(Self::Send),
            ("POST", [.., "media"]) => Some(Self::Media),
            ("POST", [.., "message_templates"]) => Some(Self::Template),
            ("GET", [.., "message_templates"]) => Some(Self::List),
            ("POST", [.., upload]) if upload.starts_with("upload:") => Some(Self::Upload),
            ("GET", [.., "phone_numbers"]) => Some(Self::PhoneNumbers),
            (_, [.., "subscribed_apps"]) => Some(Self::Subscription),
            ("POST", [.., "register"]) => Some(Self::Registration),
            ("GET", [_, _]) if names_field(call.param("fields"), "health_status") => Some(Self::Health),
            ("GET", [_, _]) => Some(Self::Number),
            _ => None,
        }
    }

    fn covers(self, request: Option<Self>) -> bool {
        match self {
            Self::Any => true,
            Self::Account => matches!(
                request,
                Some(Self::Number | Self::PhoneNumbers | Self::Subscription | Self::Registration | Self::Health)
            ),
            kind => request == Some(kind),
        }
    }
}

impl Scripted for WhatsappFault {
    fn matches(&self, call: &Call) -> bool {
        !self.affects_callbacks()
            && self.on.covers(On::of(call))
            && (self.to.is_none() || self.is_for(&recipient(&call.json())))
            && self.token.as_deref().is_none_or(|token| bearer(call) == token)
            && self.id.as_deref().is_none_or(|id| call.segments().get(1) == Some(&id))
    }

    fn is_permanent(&self) -> bool {
        self.stays
    }

    fn effect(self) -> Effect {
        match self.kind {
            WhatsappFaultKind::Error {
                code,
                http_status,
                details,
            } => Effect::Instead(GraphError::new(code, details).with_status(http_status).to_response()),
            WhatsappFaultKind::Throttle => Effect::Instead(GraphError::throttled().to_response()),
            WhatsappFaultKind::RateLimited { retry_after_s } => {
                let error = GraphError::new(80007, "The account has reached its rate limit.").with_status(429);
                Effect::Instead(error.to_response().with_header("Retry-After", retry_after_s))
            }
            WhatsappFaultKind::EmptyStatus { http_status } => Effect::Instead(Response::raw(http_status, "")),
            WhatsappFaultKind::Hang { ms } => Effect::late(ms),
            WhatsappFaultKind::AcceptThenReset => Effect::replace(Response::close()),
            WhatsappFaultKind::AcceptThenStatus500 => {
                let error = GraphError::new(131000, "Something went wrong.").with_status(500);
                Effect::replace(error.to_response())
            }
            WhatsappFaultKind::GarbageJson => Effect::garbage(),
            WhatsappFaultKind::AnswerWithoutId => Effect::then(|response| response.edited(without_id)),
            WhatsappFaultKind::BreakAfter { bytes } => Effect::BreakAfter(bytes),
            // `Core::schedule` applies these to the callbacks.
            WhatsappFaultKind::DuplicateCallbacks { .. }
            | WhatsappFaultKind::ReorderCallbacks
            | WhatsappFaultKind::DropCallbacks
            | WhatsappFaultKind::WrongSignature => Effect::then(|response| response),
        }
    }
}

/// The recipient of a message, as a `wa_id` or user id.
fn recipient(body: &Value) -> String {
    match text(body, "to") {
        "" => text(body, "recipient").to_owned(),
        to => wa_id(to),
    }
}

/// Removes the id from the response to a send or to a template's creation.
fn without_id(response: &mut Value) {
    let message = match response.pointer("/messages/0") {
        Some(_) => response.pointer_mut("/messages/0"),
        None => Some(response),
    };
    if let Some(fields) = message.and_then(Value::as_object_mut) {
        fields.remove("id");
    }
}

fn bad_request() -> u16 {
    400
}
