//! Simulates a customer's system that receives webhooks: accepts every POST at any path and stores it byte for byte. It
//! verifies signatures with the published library of Standard Webhooks, not with our own code. `/site` is the page of a
//! small shop, with scripts and tabs, in an old character set that only its `meta` element declares.

mod delivery;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::json;

pub use self::delivery::Delivery;
use crate::call::{Call, Response};
use crate::control::Service;
use crate::control::no_route;
use crate::fault::{Fault, Faults, Script};
use crate::host::Host;
use crate::ledger::{Entry, Ledger};
use crate::locked;

/// Maximum number of stored deliveries. A new delivery then replaces the oldest.
const MAX_DELIVERIES: usize = 100_000;

/// Encodes the page in ISO-8859-1: one byte per character.
fn site() -> Vec<u8> {
    let page = include_str!("site.html").chars();
    page.map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// The address to listen on.
    pub bind: String,
    /// Secret that must sign every POST, in hex or with the prefix `whsec_`; other POSTs get 401. None: accepts any.
    pub secret: Option<String>,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:0".into(),
            secret: None,
        }
    }
}

/// The running simulator; it stops when dropped.
pub struct Receiver {
    host: Host,
    core: Arc<Core>,
}

impl Receiver {
    /// Returns when the port listens.
    pub fn start(options: ReceiverOptions) -> io::Result<Self> {
        let core = Arc::new(Core {
            secret: options.secret,
            faults: Script::default(),
            ledger: Ledger::default(),
            deliveries: Mutex::default(),
        });
        let host = Host::start(&options.bind, Arc::<Core>::clone(&core))?;
        Ok(Self { host, core })
    }

    /// `http://127.0.0.1:PORT`, where the control routes are.
    pub fn origin(&self) -> String {
        self.host.origin()
    }

    /// An endpoint's URL. Every path is accepted; use one path per endpoint.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }

    pub fn script(&self, faults: Vec<Fault>) {
        self.core.faults.add(faults);
    }

    pub fn clear_faults(&self) {
        self.core.faults.clear();
    }

    /// The received POSTs, whatever their response, oldest first.
    pub fn deliveries(&self) -> Vec<Delivery> {
        locked(&self.core.deliveries).iter().cloned().collect()
    }

    /// The number of stored deliveries.
    pub fn count(&self) -> usize {
        locked(&self.core.deliveries).len()
    }

    pub fn deliveries_to(&self, path: &str) -> Vec<Delivery> {
        let mut deliveries = self.deliveries();
        deliveries.retain(|delivery| delivery.path == path);
        deliveries
    }

    /// The received requests, oldest first.
    pub fn ledger(&self) -> Vec<Entry> {
        self.core.ledger.entries()
    }
}

struct Core {
    secret: Option<String>,
    faults: Script<Fault>,
    ledger: Ledger,
    deliveries: Mutex<VecDeque<Delivery>>,
}

impl Service for Core {
    fn respond(&self, call: &Call) -> Response {
        match (call.method.as_str(), call.segments().as_slice()) {
            ("GET", ["site"]) => Response::raw(200, site()).with_header("Content-Type", "text/html"),
            ("POST", _) => self.receive(call),
            _ => Response::refuse(405, "webhooks must be sent by POST"),
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn faults(&self) -> &dyn Faults {
        &self.faults
    }

    fn control(&self, call: &Call, route: &[&str]) -> Result<Response, Response> {
        let deliveries = locked(&self.deliveries);
        match (call.method.as_str(), route) {
            ("GET", ["deliveries"]) => Ok(Response::ok(&deliveries.iter().map(Delivery::to_json).collect())),
            ("GET", ["count"]) => Ok(Response::ok(&json!({ "count": deliveries.len() }))),
            _ => Err(no_route()),
        }
    }

    fn clear_state(&self) {
        locked(&self.deliveries).clear();
    }
}

impl Core {
    fn receive(&self, call: &Call) -> Response {
        let mut delivery = Delivery::new(call);
        let verified = self.secret.as_ref().map_or(Ok(()), |secret| delivery.verify(secret));
        let response = self.faults.run(call, |_| match &verified {
            Ok(()) => Response::ok(&json!({ "received": true })),
            Err(reason) => Response::refuse(401, reason),
        });
        delivery.status = response.status();
        let mut deliveries = locked(&self.deliveries);
        if deliveries.len() >= MAX_DELIVERIES {
            deliveries.pop_front();
        }
        deliveries.push_back(delivery);
        response
    }
}
