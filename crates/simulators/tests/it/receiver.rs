//! A receiver of callbacks that stores every POST and can refuse the first ones.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::receiver::{self, Delivery};
use serde_json::Value;

pub(crate) struct Receiver {
    pub(crate) url: String,
    receiver: receiver::Receiver,
}

impl Receiver {
    /// Responds with 503 to the first `refusals` POSTs, then with 200.
    pub(crate) fn start(refusals: usize) -> Self {
        let receiver = receiver::Receiver::start(receiver::ReceiverOptions::default()).unwrap();
        receiver.script(vec![Fault::new(FaultKind::status(503, Value::Null)); refusals]);
        let url = receiver.url("/hook");
        Self { url, receiver }
    }

    pub(crate) fn posts(&self) -> Vec<Delivery> {
        self.receiver.deliveries()
    }

    /// The received status updates, in order.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        self.changes("statuses")
    }

    /// The items under `list` of all received changes.
    pub(crate) fn changes(&self, list: &str) -> Vec<Value> {
        let values = self.values().into_iter();
        values
            .filter_map(|value| value[list].as_array().cloned())
            .flatten()
            .collect()
    }

    /// The values of all received changes.
    pub(crate) fn values(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for post in self.posts() {
            for entry in post.json()["entry"].as_array().unwrap() {
                for change in entry["changes"].as_array().unwrap() {
                    found.push(change["value"].clone());
                }
            }
        }
        found
    }
}
