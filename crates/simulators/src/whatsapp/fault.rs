//! The faults of the messaging platform that can be scripted: at the answer to a send or to a template's creation,
//! and at the callbacks a send causes.

use serde::{Deserialize, Serialize};

use super::phone::wa_id;

/// What goes wrong. One send consumes at most one fault of its answer and one of its callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// Rejected with this error object.
    Error {
        code: u32,
        #[serde(default = "bad_request")]
        http_status: u16,
        #[serde(default)]
        details: String,
    },
    /// Rejected with 130429, as over the number's throughput.
    Throttle,
    /// Rejected with HTTP 429 and `Retry-After`.
    RateLimited { retry_after_s: u32 },
    /// Accepted, answered late.
    Hang { ms: u64 },
    /// Accepted; the connection is closed without an answer.
    AcceptThenReset,
    /// Accepted, answered with HTTP 500 and code 131000.
    AcceptThenStatus500,
    /// Accepted, answered with 200 and broken JSON.
    GarbageJson,
    /// Accepted, answered without the message's (or the template's) id.
    AnswerWithoutId,
    /// Of an upload only so many bytes arrive; the connection is closed without an answer.
    BreakAfter { bytes: usize },
    /// Every callback of the send comes this many times more.
    DuplicateCallbacks { n: u32 },
    /// The callbacks come backwards: read, delivered, sent.
    ReorderCallbacks,
    /// The send causes no callback.
    DropCallbacks,
    /// The callbacks are signed with another secret, and posted once.
    WrongSignature,
}

/// Which request a fault waits for.
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
}

/// A fault, consumed by the first request that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    #[serde(flatten)]
    pub kind: FaultKind,
    #[serde(default)]
    pub on: On,
    /// Only sends to this recipient, in any written form with the country code, or by its user id.
    #[serde(default)]
    pub to: Option<String>,
}

impl Fault {
    /// A fault of the next send.
    pub fn send(kind: FaultKind) -> Self {
        Self {
            kind,
            on: On::Send,
            to: None,
        }
    }

    /// A fault of the next send to one recipient.
    pub fn send_to(to: &str, kind: FaultKind) -> Self {
        Self {
            kind,
            on: On::Send,
            to: Some(to.to_owned()),
        }
    }

    /// A fault of the next creation of a template.
    pub fn template(kind: FaultKind) -> Self {
        Self {
            kind,
            on: On::Template,
            to: None,
        }
    }

    /// A fault of the next request of a kind.
    pub fn of(on: On, kind: FaultKind) -> Self {
        Self { kind, on, to: None }
    }

    pub(super) fn fits_send(&self, recipient: &str) -> bool {
        self.on == On::Send
            && self
                .to
                .as_ref()
                .is_none_or(|to| to == recipient || wa_id(to) == recipient)
    }

    pub(super) fn is_of_callbacks(&self) -> bool {
        use FaultKind::{DropCallbacks, DuplicateCallbacks, ReorderCallbacks, WrongSignature};
        matches!(
            self.kind,
            DuplicateCallbacks { .. } | ReorderCallbacks | DropCallbacks | WrongSignature
        )
    }
}

fn bad_request() -> u16 {
    400
}
