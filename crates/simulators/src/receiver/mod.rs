//! The systems of our customers that webhooks go to: takes every POST at any path, keeps it byte for byte, and verifies
//! it by the published library of the standard, not by ours. At `/site` stands the page of a shop, as small shops have
//! them: in an old character set that only its `meta` tells, with scripts and tabs.

mod delivery;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::json;

pub use self::delivery::Delivery;
use crate::fault::{Fault, Script};
use crate::host::{Answer, Call, Host, Service};
use crate::ledger::{Entry, Ledger};
use crate::locked;

/// How many deliveries are kept; the oldest goes first.
const KEPT: usize = 100_000;

/// The page in its characters (ISO-8859-1, in which each of them is one byte).
fn site() -> Vec<u8> {
    let page = include_str!("site.html").chars();
    page.map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The address to listen on.
    pub bind: String,
    /// What every POST has to be signed with, else it is answered with 401: the secret in hex, or with `whsec_`. None:
    /// anything is taken.
    pub secret: Option<String>,
}

impl Default for Options {
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
    /// Listens and returns, or says why it cannot listen.
    pub fn start(options: Options) -> io::Result<Self> {
        let core = Arc::new(Core {
            secret: options.secret,
            script: Script::default(),
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

    /// An endpoint's address: any path will do, and tells endpoints apart.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }

    /// Adds faults.
    pub fn script(&self, faults: Vec<Fault>) {
        self.core.script.add(faults);
    }

    /// Forgets the faults that are still to come.
    pub fn forget_faults(&self) {
        self.core.script.clear();
    }

    /// Every POST received, oldest first, whatever it was answered with.
    pub fn deliveries(&self) -> Vec<Delivery> {
        locked(&self.core.deliveries).iter().cloned().collect()
    }

    /// How many of them there are, of those that are kept.
    pub fn count(&self) -> usize {
        locked(&self.core.deliveries).len()
    }

    /// The POSTs to one path.
    pub fn deliveries_to(&self, path: &str) -> Vec<Delivery> {
        let mut deliveries = self.deliveries();
        deliveries.retain(|delivery| delivery.path == path);
        deliveries
    }

    /// Every request received, oldest first.
    pub fn ledger(&self) -> Vec<Entry> {
        self.core.ledger.entries()
    }
}

struct Core {
    secret: Option<String>,
    script: Script<Fault>,
    ledger: Ledger,
    deliveries: Mutex<VecDeque<Delivery>>,
}

impl Service for Core {
    fn answer(&self, call: &Call) -> Answer {
        match (call.method.as_str(), call.segments().as_slice()) {
            ("GET", ["_sim", "ledger"]) => Answer::ok(&json!(self.ledger.entries())),
            ("GET", ["_sim", "deliveries"]) => {
                let deliveries = locked(&self.deliveries);
                Answer::ok(&deliveries.iter().map(Delivery::shown).collect())
            }
            ("GET", ["_sim", "count"]) => Answer::ok(&json!({ "count": locked(&self.deliveries).len() })),
            ("POST", ["_sim", "faults"]) => self.script.scripted_by(call),
            ("DELETE", ["_sim", "faults"]) => {
                self.script.clear();
                Answer::ok(&json!({}))
            }
            ("POST", ["_sim", "reset"]) => {
                self.script.clear();
                self.ledger.clear();
                locked(&self.deliveries).clear();
                Answer::ok(&json!({}))
            }
            ("GET", ["site"]) => Answer::raw(200, site()).with_header("Content-Type", "text/html"),
            ("POST", _) => self.take(call),
            _ => Answer::refuse(405, "webhooks are posted"),
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl Core {
    fn take(&self, call: &Call) -> Answer {
        let mut delivery = Delivery::new(call);
        let verified = self.secret.as_ref().map_or(Ok(()), |secret| delivery.verify(secret));
        let answer = self.script.through(call, || match &verified {
            Ok(()) => Answer::ok(&json!({ "received": true })),
            Err(why) => Answer::refuse(401, why),
        });
        delivery.status = answer.status();
        let mut deliveries = locked(&self.deliveries);
        if deliveries.len() >= KEPT {
            deliveries.pop_front();
        }
        deliveries.push_back(delivery);
        answer
    }
}
