//! Scripted faults: a list that the next matching requests consume, one each. The kinds here fit any HTTP API; the
//! messaging simulator has more of its own.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::{Answer, Call, Reply};
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

    fn fits(&self, call: &Call) -> bool {
        self.method
            .as_ref()
            .is_none_or(|method| method.eq_ignore_ascii_case(&call.method))
            && self.path.as_ref().is_none_or(|path| call.path.contains(path.as_str()))
    }
}

/// The faults still to come.
#[derive(Debug)]
pub(crate) struct Script<F>(Mutex<VecDeque<F>>);

impl<F> Default for Script<F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<F: for<'de> Deserialize<'de>> Script<F> {
    pub(crate) fn add(&self, faults: Vec<F>) {
        locked(&self.0).extend(faults);
    }

    pub(crate) fn clear(&self) {
        locked(&self.0).clear();
    }

    /// Removes and returns the first fault that fits.
    pub(crate) fn take(&self, fits: impl Fn(&F) -> bool) -> Option<F> {
        let mut faults = locked(&self.0);
        let position = faults.iter().position(fits)?;
        faults.remove(position)
    }

    /// The control route `POST /_sim/faults`: a fault or a list of them.
    pub(crate) fn scripted_by(&self, call: &Call) -> Answer {
        let faults = match call.json() {
            Value::Array(faults) => faults,
            fault => vec![fault],
        };
        match faults
            .into_iter()
            .map(serde_json::from_value)
            .collect::<Result<Vec<F>, _>>()
        {
            Ok(faults) => {
                let answer = Answer::ok(&serde_json::json!({ "scripted": faults.len() }));
                self.add(faults);
                answer
            }
            Err(error) => Answer::refuse(400, error),
        }
    }
}

impl Script<Fault> {
    /// The first fault that fits; it goes, unless it is there to stay.
    fn next(&self, call: &Call) -> Option<FaultKind> {
        let mut faults = locked(&self.0);
        let position = faults.iter().position(|fault| fault.fits(call))?;
        let fault = faults.remove(position)?;
        let kind = fault.kind.clone();
        if fault.stays {
            faults.insert(position, fault);
        }
        Some(kind)
    }

    /// Answers a request, through the first fault that waits for it.
    pub(crate) fn through(&self, call: &Call, act: impl FnOnce() -> Answer) -> Answer {
        let Some(kind) = self.next(call) else {
            return act();
        };
        match kind {
            FaultKind::Status {
                http_status,
                body,
                retry_after_s,
            } => {
                let answer = Answer::json(http_status, &body);
                match retry_after_s {
                    Some(seconds) => answer
                        .with_header("Retry-After", seconds)
                        .with_header("RateLimit-Reset", seconds),
                    None => answer,
                }
            }
            FaultKind::Redirect { http_status, location } => {
                Answer::json(http_status, &Value::Null).with_header("Location", location)
            }
            FaultKind::Hang { ms } => act().delayed(ms),
            FaultKind::AcceptThenBreakOff => {
                act();
                Answer::now(Reply::Reset)
            }
            FaultKind::Drip { ms } => match act().reply {
                Reply::Send { status, body, .. } => Answer::now(Reply::Drip {
                    status,
                    body,
                    pause: Duration::from_millis(ms),
                }),
                reply => Answer::now(reply),
            },
            FaultKind::Flood { bytes } => {
                let status = act().status().unwrap_or(200);
                Answer::now(Reply::Flood { status, bytes })
            }
            FaultKind::AcceptThenReset => {
                act();
                Answer::close()
            }
            FaultKind::AcceptThenStatus500 => {
                act();
                Answer::refuse(500, "scripted")
            }
            FaultKind::GarbageJson => {
                act();
                Answer::raw(200, BROKEN_JSON)
            }
        }
    }
}

/// JSON cut in the middle.
pub(crate) const BROKEN_JSON: &str = "{\"object\":\"";
