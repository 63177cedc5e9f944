//! The subscription of an account, which is one key.

use serde_json::{Value, json};

use super::checker::Model;
use super::transport::{Client, KeyHistory, Outcome};
use crate::billing::{card_order, order};
use crate::harness::client::{Reply, Request};
use crate::harness::text;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subscription {
    /// `None` while no response has shown the id.
    pub(super) id: Option<String>,
    pub(super) plan: String,
    pub(super) status: String,
}

/// The live subscription: active or pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LiveSubscription(pub(super) Option<Subscription>);

#[derive(Clone, Debug)]
pub(super) enum Call {
    Subscribe { plan: &'static str, by_card: bool },
    Get,
    Change(&'static str),
    Cancel,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    One(Subscription),
    /// The id of the new subscription. The response may show a later change: another request may complete this one.
    Subscribed(Option<String>),
    /// The id and the new plan.
    Changed(Option<String>, String),
    /// No subscription is live, in the response to a read.
    Nothing,
    Cancelled,
    /// No subscription is live, in the response to a command.
    Missing,
    /// The account has a live subscription, or it has this plan already.
    Refused,
    /// Another request changed the subscription. It may have completed this call, but no one completes it later.
    Contended,
}

impl Model for LiveSubscription {
    type Call = Call;
    type Response = Response;

    fn after(&self, call: &Call, response: Option<&Response>) -> Vec<Self> {
        let shown = match response {
            Some(Response::One(Subscription { id, .. }) | Response::Subscribed(id) | Response::Changed(id, _)) => {
                id.clone()
            }
            _ => None,
        };
        let mut live = self.0.clone();
        if let Some(current) = &mut live {
            current.id = current.id.take().or(shown.clone());
        }
        let (after, outcome) = match (live, call) {
            (None, Call::Subscribe { plan, by_card }) => {
                let status = if *by_card { "active" } else { "pending" };
                let (plan, status) = ((*plan).to_owned(), status.to_owned());
                let id = shown.clone();
                (Some(Subscription { id, plan, status }), Response::Subscribed(shown))
            }
            (None, Call::Get) => (None, Response::Nothing),
            (None, Call::Change(_) | Call::Cancel) => (None, Response::Missing),
            (Some(current), Call::Get) => (Some(current.clone()), Response::One(current)),
            (Some(current), Call::Subscribe { .. }) => (Some(current), Response::Refused),
            (Some(current), Call::Change(plan)) if current.plan == *plan => (Some(current), Response::Refused),
            (Some(current), Call::Change(plan)) => {
                let (id, plan) = (current.id.clone(), (*plan).to_owned());
                let after = Subscription {
                    plan: plan.clone(),
                    ..current
                };
                (Some(after), Response::Changed(id, plan))
            }
            (Some(_), Call::Cancel) => (None, Response::Cancelled),
        };
        match response {
            Some(Response::Contended) => vec![self.clone(), Self(after)],
            Some(response) if *response != outcome => Vec::new(),
            _ => vec![Self(after)],
        }
    }

    fn is_read(call: &Call) -> bool {
        matches!(call, Call::Get)
    }
}

fn subscription(json: &Value) -> Subscription {
    Subscription {
        id: Some(text(&json["id"])),
        plan: text(&json["plan"]),
        status: text(&json["status"]),
    }
}

fn read(call: &Call, reply: &Reply) -> Outcome<Response> {
    Outcome::Known(match reply.status {
        404 => Response::Missing,
        409 => match call {
            // The attempt has ended, and the gateway's subscription is cancelled.
            Call::Subscribe { .. } => return Outcome::NotDone,
            _ => Response::Contended,
        },
        422 => {
            let error = reply.clone().refused(422, "VALIDATION_ERROR");
            let text = error["details"]["fields"]["plan"].to_string();
            // A concurrent or interrupted request to subscribe has no outcome yet.
            if text.contains("in progress") {
                return Outcome::NotDone;
            }
            Response::Refused
        }
        status => {
            assert!([200, 201].contains(&status), "{}", reply.text);
            let data = &reply.json()["data"];
            match (call, &data["subscription"]) {
                (Call::Cancel, _) => Response::Cancelled,
                (_, Value::Null) => Response::Nothing,
                (Call::Subscribe { .. }, live) => Response::Subscribed(subscription(live).id),
                (Call::Change(_), live) => Response::Changed(subscription(live).id, text(&data["new_plan"])),
                (Call::Get, live) => Response::One(subscription(live)),
            }
        }
    })
}

/// An account and the history of its subscription.
pub(super) struct SubscriptionKey {
    /// A request of the account's owner.
    pub(super) request: Request,
    pub(super) history: KeyHistory<LiveSubscription>,
}

impl SubscriptionKey {
    pub(super) fn new(request: Request) -> Self {
        let history = KeyHistory::default();
        Self { request, history }
    }

    /// Makes one random call.
    pub(super) fn make_random_call(&self, client: &mut Client<'_>) {
        let plan = ["starter", "growth", "scale"][usize::try_from(client.rng.below(3)).unwrap()];
        let call = match client.rng.below(8) {
            0..2 => Call::Subscribe {
                plan,
                by_card: client.rng.below(2) == 0,
            },
            2..5 => Call::Get,
            5..7 => Call::Change(plan),
            _ => Call::Cancel,
        };
        self.call(client, call);
    }

    pub(super) fn read_all(&self, client: &mut Client<'_>) {
        self.call(client, Call::Get);
    }

    fn call(&self, client: &mut Client<'_>, call: Call) {
        let to = |method: &str, path: &str| {
            self.request
                .clone()
                .method(method)
                .path(&format!("/api/billing/{path}"))
        };
        let request = match &call {
            Call::Subscribe { plan, by_card } => {
                let mut body = if *by_card {
                    card_order("4000000000001234", "987")
                } else {
                    order("PIX")
                };
                body["plan"] = json!(plan);
                to("POST", "subscribe").json(&body)
            }
            Call::Get => to("GET", "subscription"),
            Call::Change(plan) => to("PUT", "subscription").json(&json!({ "plan": plan })),
            Call::Cancel => to("POST", "cancel"),
        };
        let sent = call.clone();
        client.call(&self.history, call, request, |reply| read(&sent, reply));
    }
}
