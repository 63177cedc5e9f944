//! Scripted faults: a list that the next matching requests consume, one each. The kinds here fit any HTTP API; the
//! messaging simulator has kinds of its own. Whatever a kind is called, it comes to an `Effect`.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::host::{Call, Reply, Response};
use crate::locked;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// Nothing is done; this status and body are answered.
    Status {
        http_status: u16,
        #[serde(default)]
        body: Value,
        #[serde(default)]
        retry_after_s: Option<u32>,
    },
    /// Nothing is done; the caller is sent elsewhere.
    Redirect { http_status: u16, location: String },
    /// The request is carried out and answered late.
    Hang { ms: u64 },
    /// The request is carried out, then the connection is closed without an answer.
    AcceptThenReset,
    /// The request is carried out, then the connection is broken off: the caller sees a reset.
    AcceptThenBreakOff,
    /// The request is carried out, then answered byte by byte, with a pause before each.
    Drip { ms: u64 },
    /// The request is carried out, then answered with so many bytes.
    Flood { bytes: u64 },
    /// The request is carried out, then answered with 500.
    AcceptThenStatus500,
    /// The request is carried out, then answered with 200 and broken JSON.
    GarbageJson,
}

impl FaultKind {
    /// This status and body, and nothing done.
    pub fn status(http_status: u16, body: Value) -> Self {
        Self::Status {
            http_status,
            body,
            retry_after_s: None,
        }
    }
}

/// A fault, and the requests it waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    #[serde(flatten)]
    pub kind: FaultKind,
    /// Only requests with this method.
    #[serde(default)]
    pub method: Option<String>,
    /// Only requests whose path holds this text.
    #[serde(default)]
    pub path: Option<String>,
    /// Whether it stays for every request that fits, until the faults are forgotten.
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

    /// Lets the fault stay for every request that fits.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { stays: true, ..self }
    }

    /// Restricts the fault to a method and to paths that hold a text.
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

/// What becomes of a request that meets a fault, and of its answer.
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

    /// The request is carried out and answered late.
    pub(crate) fn late(milliseconds: u64) -> Self {
        Self::then(move |response| response.delayed(milliseconds))
    }

    /// The request is carried out, and answered with JSON cut in the middle.
    pub(crate) fn garbage() -> Self {
        Self::replace(Response::raw(200, "{\"object\":\""))
    }
}

/// A fault as a script holds it.
pub(crate) trait Scripted: Clone + DeserializeOwned + Send + 'static {
    fn matches(&self, call: &Call) -> bool;

    /// Whether the fault affects every matching request instead of only the first.
    fn is_permanent(&self) -> bool {
        false
    }

    fn effect(self) -> Effect;
}

/// The faults still to come.
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

/// A script, whatever its faults are.
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
