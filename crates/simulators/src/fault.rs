//! Scripted faults: a list that the next matching requests consume, one each. The kinds here fit any HTTP API; the
//! messaging simulator has kinds of its own. Whatever a kind is called, it comes to an `Effect`.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    fn waits_for(&self, call: &Call) -> bool {
        self.method
            .as_ref()
            .is_none_or(|method| method.eq_ignore_ascii_case(&call.method))
            && self.path.as_ref().is_none_or(|path| call.path.contains(path.as_str()))
    }

    fn stays(&self) -> bool {
        self.stays
    }

    fn effect(self) -> Effect {
        match self.kind {
            FaultKind::Status {
                http_status,
                body,
                retry_after_s,
            } => {
                let answer = Answer::json(http_status, &body);
                Effect::Instead(match retry_after_s {
                    Some(seconds) => answer
                        .with_header("Retry-After", seconds)
                        .with_header("RateLimit-Reset", seconds),
                    None => answer,
                })
            }
            FaultKind::Redirect { http_status, location } => {
                Effect::Instead(Answer::json(http_status, &Value::Null).with_header("Location", location))
            }
            FaultKind::Hang { ms } => Effect::late(ms),
            FaultKind::AcceptThenReset => Effect::answer(Answer::close()),
            FaultKind::AcceptThenBreakOff => Effect::answer(Answer::now(Reply::Reset)),
            FaultKind::Drip { ms } => Effect::then(move |answer| match answer.reply {
                Reply::Send { status, body, .. } => Answer::now(Reply::Drip {
                    status,
                    body,
                    pause: Duration::from_millis(ms),
                }),
                reply => Answer::now(reply),
            }),
            FaultKind::Flood { bytes } => Effect::then(move |answer| {
                let status = answer.status().unwrap_or(200);
                Answer::now(Reply::Flood { status, bytes })
            }),
            FaultKind::AcceptThenStatus500 => Effect::answer(Answer::refuse(500, "scripted")),
            FaultKind::GarbageJson => Effect::garbage(),
        }
    }
}

/// What becomes of a request that meets a fault, and of its answer.
pub(crate) enum Effect {
    /// Nothing is done; this is answered.
    Instead(Answer),
    /// The request is carried out, and its answer changed.
    Then(Box<dyn FnOnce(Answer) -> Answer>),
    /// Only so many bytes of the body arrive; the connection is closed without an answer.
    BreakAfter(usize),
}

impl Effect {
    pub(crate) fn then(change: impl FnOnce(Answer) -> Answer + 'static) -> Self {
        Self::Then(Box::new(change))
    }

    /// The request is carried out, and this answered.
    pub(crate) fn answer(answer: Answer) -> Self {
        Self::then(|_| answer)
    }

    /// The request is carried out and answered late.
    pub(crate) fn late(milliseconds: u64) -> Self {
        Self::then(move |answer| answer.delayed(milliseconds))
    }

    /// The request is carried out, and answered with JSON cut in the middle.
    pub(crate) fn garbage() -> Self {
        Self::answer(Answer::raw(200, "{\"object\":\""))
    }
}

/// A fault as a script holds it.
pub(crate) trait Scripted: Clone + DeserializeOwned + Send + 'static {
    fn waits_for(&self, call: &Call) -> bool;

    /// Whether it stays for every request that fits.
    fn stays(&self) -> bool {
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

    /// The first fault that fits; it goes, unless it is there to stay.
    pub(crate) fn take(&self, fits: impl Fn(&F) -> bool) -> Option<F> {
        let mut faults = locked(&self.0);
        let position = faults.iter().position(fits)?;
        if faults.get(position).is_some_and(F::stays) {
            return faults.get(position).cloned();
        }
        faults.remove(position)
    }

    /// Answers a request, through the first fault that waits for it.
    pub(crate) fn through(&self, call: &Call, act: impl FnOnce(&Call) -> Answer) -> Answer {
        match self.take(|fault| fault.waits_for(call)).map(F::effect) {
            None => act(call),
            Some(Effect::Instead(answer)) => answer,
            Some(Effect::Then(change)) => change(act(call)),
            Some(Effect::BreakAfter(bytes)) => {
                act(&call.cut(bytes));
                Answer::close()
            }
        }
    }
}

/// A script, whatever its faults are.
pub(crate) trait Faults {
    /// Adds a fault or a list of them; refuses what is none.
    fn scripted_by(&self, call: &Call) -> Result<Answer, Answer>;
    fn clear(&self);
}

impl<F: Scripted> Faults for Script<F> {
    fn scripted_by(&self, call: &Call) -> Result<Answer, Answer> {
        let faults = match call.json() {
            Value::Array(faults) => faults,
            fault => vec![fault],
        };
        let faults = faults.into_iter().map(serde_json::from_value);
        let faults: Vec<F> = faults
            .collect::<Result<_, _>>()
            .map_err(|error| Answer::refuse(400, error))?;
        let answer = Answer::ok(&json!({ "scripted": faults.len() }));
        self.add(faults);
        Ok(answer)
    }

    fn clear(&self) {
        locked(&self.0).clear();
    }
}
