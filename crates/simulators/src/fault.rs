//! Scripted faults: every matching request consumes the first one of the list. The kinds here fit any HTTP API; the
//! WhatsApp simulator has kinds of its own. Every kind translates to an `Effect`.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::{Call, Reply, Response};
use crate::locked;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// Responds with this status and body. The request has no effect.
    Status {
        http_status: u16,
        #[serde(default)]
        body: Value,
        #[serde(default)]
        retry_after_s: Option<u32>,
    },
    /// Redirects the caller. The request has no effect.
    Redirect { http_status: u16, location: String },
    /// Executes the request and responds late.
    Hang { ms: u64 },
    /// Executes the request, then closes the connection without a response.
    AcceptThenReset,
    /// Executes the request, then resets the connection (TCP RST).
    AcceptThenBreakOff,
    /// Executes the request, then responds byte by byte, with a pause before each.
    Drip { ms: u64 },
    /// Executes the request, then responds with a body of this many bytes.
    Flood { bytes: u64 },
    /// Executes the request, then responds with 500.
    AcceptThenStatus500,
    /// Executes the request, then responds with 200 and broken JSON.
    GarbageJson,
}

impl FaultKind {
    /// A response with this status and body to a request that has no effect.
    pub fn status(http_status: u16, body: Value) -> Self {
        Self::Status {
            http_status,
            body,
            retry_after_s: None,
        }
    }
}

/// A fault and the requests that it matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    #[serde(flatten)]
    pub kind: FaultKind,
    /// Restricts the fault to this method.
    #[serde(default)]
    pub method: Option<String>,
    /// Restricts the fault to paths that contain this text.
    #[serde(default)]
    pub path: Option<String>,
    /// A permanent fault affects every matching request until the script is cleared.
    #[serde(default)]
    pub stays: bool,
}

impl Fault {
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            method: None,
            path: None,
            stays: false,
        }
    }

    /// Makes the fault permanent: it affects every matching request.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { stays: true, ..self }
    }

    /// Restricts the fault to a method and to paths that contain a text.
    #[must_use]
    pub fn on(self, method: &str, path: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            path: Some(path.to_owned()),
            ..self
        }
    }
}

impl Scripted for Fault {
    fn matches(&self, call: &Call) -> bool {
        self.method
            .as_ref()
            .is_none_or(|method| method.eq_ignore_ascii_case(&call.method))
            && self.path.as_ref().is_none_or(|path| call.path.contains(path.as_str()))
    }

    fn is_permanent(&self) -> bool {
        self.stays
    }

    fn effect(self) -> Effect {
        match self.kind {
            FaultKind::Status {
                http_status,
                body,
                retry_after_s,
            } => {
                let response = Response::json(http_status, &body);
                Effect::Instead(match retry_after_s {
                    Some(seconds) => response
                        .with_header("Retry-After", seconds)
                        .with_header("RateLimit-Reset", seconds),
                    None => response,
                })
            }
            FaultKind::Redirect { http_status, location } => {
                Effect::Instead(Response::json(http_status, &Value::Null).with_header("Location", location))
            }
            FaultKind::Hang { ms } => Effect::late(ms),
            FaultKind::AcceptThenReset => Effect::replace(Response::close()),
            FaultKind::AcceptThenBreakOff => Effect::replace(Response::now(Reply::Reset)),
            FaultKind::Drip { ms } => Effect::then(move |response| match response.reply {
                Reply::Send { status, body, .. } => Response::now(Reply::Drip {
                    status,
                    body,
                    pause: Duration::from_millis(ms),
                }),
                reply => Response::now(reply),
            }),
            FaultKind::Flood { bytes } => Effect::then(move |response| {
                let status = response.status().unwrap_or(200);
                Response::now(Reply::Flood { status, bytes })
            }),
            FaultKind::AcceptThenStatus500 => Effect::replace(Response::refuse(500, "scripted")),
            FaultKind::GarbageJson => Effect::garbage(),
        }
    }
}

/// The effect of a fault on a request and on its response.
pub(crate) enum Effect {
    /// Sends this response. The request has no effect.
    Instead(Response),
    /// Executes the request and changes its response.
    Then(Box<dyn FnOnce(Response) -> Response>),
    /// Delivers only this many bytes of the request body, then closes the connection without a response.
    BreakAfter(usize),
}

impl Effect {
    pub(crate) fn then(change: impl FnOnce(Response) -> Response + 'static) -> Self {
        Self::Then(Box::new(change))
    }

    /// Executes the request and sends this response.
    pub(crate) fn replace(response: Response) -> Self {
        Self::then(|_| response)
    }

    pub(crate) fn late(milliseconds: u64) -> Self {
        Self::then(move |response| response.delayed(milliseconds))
    }

    /// Executes the request and responds with truncated JSON.
    pub(crate) fn garbage() -> Self {
        Self::replace(Response::raw(200, "{\"object\":\""))
    }
}

/// A fault that a `Script` can hold.
pub(crate) trait Scripted: Clone + DeserializeOwned + Send + 'static {
    fn matches(&self, call: &Call) -> bool;

    /// Whether the fault affects every matching request instead of only the first.
    fn is_permanent(&self) -> bool {
        false
    }

    fn effect(self) -> Effect;
}

/// The pending faults, in the order in which requests consume them.
#[derive(Debug)]
pub(crate) struct Script<F>(Mutex<VecDeque<F>>);

impl<F> Default for Script<F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<F: Scripted> Script<F> {
    pub(crate) fn add(&self, faults: Vec<F>) {
        locked(&self.0).extend(faults);
    }

    /// Takes the first fault for which the predicate holds. A permanent fault is copied and not removed.
    pub(crate) fn take(&self, predicate: impl Fn(&F) -> bool) -> Option<F> {
        let mut faults = locked(&self.0);
        let position = faults.iter().position(predicate)?;
        if faults.get(position).is_some_and(F::is_permanent) {
            return faults.get(position).cloned();
        }
        faults.remove(position)
    }

    /// Executes a request under the first fault that matches it.
    pub(crate) fn run(&self, call: &Call, act: impl FnOnce(&Call) -> Response) -> Response {
        match self.take(|fault| fault.matches(call)).map(F::effect) {
            None => act(call),
            Some(Effect::Instead(response)) => response,
            Some(Effect::Then(change)) => change(act(call)),
            Some(Effect::BreakAfter(bytes)) => {
                act(&call.truncated(bytes));
                Response::close()
            }
        }
    }
}

/// A `Script` with faults of any type, for the control routes.
pub(crate) trait Faults {
    /// Adds the fault or the list of faults in the body. A body that is not valid gets 400.
    fn add_from(&self, call: &Call) -> Result<Response, Response>;
    fn clear(&self);
}

impl<F: Scripted> Faults for Script<F> {
    fn add_from(&self, call: &Call) -> Result<Response, Response> {
        let faults = match call.json() {
            Value::Array(faults) => faults,
            fault => vec![fault],
        };
        let faults = faults.into_iter().map(serde_json::from_value);
        let faults: Vec<F> = faults
            .collect::<Result<_, _>>()
            .map_err(|error| Response::refuse(400, error))?;
        let response = Response::ok(&json!({ "scripted": faults.len() }));
        self.add(faults);
        Ok(response)
    }

    fn clear(&self) {
        locked(&self.0).clear();
    }
}
