//! The payment gateway simulator: customers, subscriptions and payments in memory, with errors and webhooks.

mod money;
mod routes;
mod store;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::call::{Call, Response};
use crate::callback_sender::{Deliveries, Queue, QueuedCallback};
use crate::control::Service;
use crate::control::{done, no_route};
use crate::fault::{Fault, Faults, Script};
use crate::host::Host;
use crate::ledger::{Entry, Ledger};
use crate::{locked, set};
use store::{Refusal, Store, now, text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentOptions {
    /// The address to listen on.
    pub bind: String,
    /// The key that requests must send in the header `access_token`.
    pub api_key: String,
    /// The URL for gateway events. None: sends no events.
    pub webhook_url: Option<String>,
    /// Sent with every event in the header `asaas-access-token`.
    pub webhook_token: String,
    /// The time during which a new subscription lists no payment.
    pub first_charge_after_ms: u64,
    /// The time after which Pix and boletos are paid automatically. None: never.
    pub paid_after_ms: Option<u64>,
}

impl PaymentOptions {
    /// Options for a development server: Pix and boletos are paid automatically.
    pub fn development() -> Self {
        Self {
            paid_after_ms: Some(5000),
            ..Self::default()
        }
    }
}

impl Default for PaymentOptions {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:0".into(),
            api_key: "gateway-key".into(),
            webhook_url: None,
            webhook_token: "gateway-webhook-token".into(),
            first_charge_after_ms: 0,
            paid_after_ms: None,
        }
    }
}

/// The running simulator; it stops when dropped.
pub struct PaymentSimulator {
    host: Host,
    core: Arc<Core>,
}

impl PaymentSimulator {
    /// Returns when the port listens.
    pub fn start(options: PaymentOptions) -> io::Result<Self> {
        let bind = options.bind.clone();
        let (store, faults, ledger, queue) = Default::default();
        let core = Arc::new(Core {
            options: Mutex::new(options),
            store,
            faults,
            ledger,
            queue,
        });
        let host = Host::start(&bind, Arc::<Core>::clone(&core))?;
        let worker = Arc::clone(&core);
        thread::Builder::new()
            .name("webhooks".into())
            .spawn(move || worker.queue.work(|due| worker.pack(due)))?;
        Ok(Self { host, core })
    }

    /// `http://127.0.0.1:PORT`, where the control routes are.
    pub fn origin(&self) -> String {
        self.host.origin()
    }

    /// The base URL to configure in the product.
    pub fn base_url(&self) -> String {
        format!("{}/v3", self.origin())
    }

    pub fn script(&self, faults: Vec<Fault>) {
        self.core.faults.add(faults);
    }

    pub fn clear_faults(&self) {
        self.core.faults.clear();
    }

    /// The received requests, oldest first. Bodies are not redacted: they include card numbers.
    pub fn ledger(&self) -> Vec<Entry> {
        self.core.ledger.entries()
    }

    pub fn deliveries(&self) -> Deliveries {
        self.core.queue.deliveries()
    }

    /// Waits until no webhook is queued or in flight. False: `at_most` ran out first.
    pub fn wait_idle(&self, at_most: Duration) -> bool {
        self.core.queue.wait_idle(at_most)
    }

    /// Changes the options at run time. A changed `bind` has no effect.
    pub fn set_options(&self, change: impl FnOnce(&mut PaymentOptions)) {
        change(&mut locked(&self.core.options));
    }

    /// Applies an action to a payment after a delay and sends its events. If the payment's status does not allow the
    /// action by then, nothing happens. False: the payment does not exist.
    pub fn act(&self, payment: &str, action: Action, after: Duration) -> bool {
        self.core.act_later(payment, action, after)
    }

    /// Sends an event about a payment or subscription by hand. False: neither exists with this id.
    pub fn send_event(&self, event: &PaymentEvent) -> bool {
        self.core.send_event(event)
    }
}

/// A gateway event sent by hand: with any name, several times, or with a wrong token.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct PaymentEvent {
    /// For example `PAYMENT_RECEIVED` or `SUBSCRIPTION_INACTIVATED`.
    pub event: String,
    /// The id of a payment or subscription.
    pub id: String,
    /// How many times the same event is sent.
    #[serde(default = "once")]
    pub times: u32,
    #[serde(default)]
    pub wrong_token: bool,
}

/// A change of a payment's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The customer pays: Pix becomes received, a boleto confirmed and received, a card confirmed.
    Confirm,
    /// A confirmed payment becomes received.
    Receive,
    /// A pending payment becomes overdue.
    Overdue,
    /// A confirmed or received payment is refunded.
    Refund,
}

impl Action {
    /// Parses the last segment of the control route.
    fn parse(name: &str) -> Option<Self> {
        match name {
            "confirm" => Some(Self::Confirm),
            "receive" => Some(Self::Receive),
            "overdue" => Some(Self::Overdue),
            "refund" => Some(Self::Refund),
            _ => None,
        }
    }
}

fn once() -> u32 {
    1
}

/// A queued webhook call.
#[derive(Debug, Clone)]
struct Webhook {
    body: Value,
    wrong_token: bool,
}

/// A job of the background worker.
#[derive(Debug, Clone)]
enum Job {
    Post(Webhook),
    Act(String, Action),
}

struct Core {
    options: Mutex<PaymentOptions>,
    store: Mutex<Store>,
    faults: Script<Fault>,
    ledger: Ledger,
    queue: Queue<Job>,
}

impl Service for Core {
    fn respond(&self, call: &Call) -> Response {
        let segments = call.segments();
        match segments.as_slice() {
            ["v3", route @ ..] | ["api", "v3", route @ ..] => {
                self.faults.run(call, |call| match self.check_headers(call) {
                    Some(refusal) => refusal,
                    None => self.route(call, route),
                })
            }
            _ => not_found(),
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn faults(&self) -> &dyn Faults {
        &self.faults
    }

    fn control(&self, call: &Call, route: &[&str]) -> Result<Response, Response> {
        match (call.method.as_str(), route) {
            ("GET", ["counters"]) => Ok(Response::ok(&json!({ "webhooks": self.queue.deliveries() }))),
            ("POST", ["events"]) => done(self.send_event(&call.read()?), "no such payment or subscription"),
            ("POST", ["subscriptions", id, "charge"]) => Ok(self.charge(id, &call.json())),
            ("POST", ["payments", id, action]) => {
                let delay = call.json().get("delay_ms").and_then(Value::as_u64).unwrap_or(0);
                let Some(action) = Action::parse(action) else {
                    return Err(Response::refuse(404, "confirm, receive, overdue or refund"));
                };
                let found = self.act_later(id, action, Duration::from_millis(delay));
                done(found, "no such payment")
            }
            _ => Err(no_route()),
        }
    }

    fn clear_state(&self) {
        *locked(&self.store) = Store::default();
    }

    fn stop(&self) {
        self.queue.stop();
    }
}

impl Core {
    /// Adds a payment to a subscription, due on `dueDate`.
    fn charge(&self, id: &str, body: &Value) -> Response {
        let due = text(body, "dueDate");
        if !store::is_date(due) {
            return Response::refuse(400, "dueDate must be a date (YYYY-MM-DD)");
        }
        let mut store = locked(&self.store);
        let Some(subscription) = store.subscriptions.get(id).cloned() else {
            return Response::refuse(404, "no such subscription");
        };
        let payment = store.charge(&subscription, due);
        self.enqueue_charge_events(&payment);
        Response::ok(&payment)
    }

    /// Returns the refusal of a request with a wrong key, without a user agent, or with a body on GET.
    fn check_headers(&self, call: &Call) -> Option<Response> {
        if call.header("access_token") != Some(locked(&self.options).api_key.as_str()) {
            let refusal = store::refuse("invalid_access_token", "A chave de API fornecida é inválida");
            return Some(errors(401, &[refusal]));
        }
        let no_user_agent = call.header("user-agent").is_none_or(str::is_empty);
        if no_user_agent || (call.method == "GET" && !call.body.is_empty()) {
            return Some(Response::raw(403, ""));
        }
        None
    }

    fn send_event(&self, event: &PaymentEvent) -> bool {
        let store = locked(&self.store);
        let Some(object) = store
            .payments
            .get(&event.id)
            .or_else(|| store.subscriptions.get(&event.id))
        else {
            return false;
        };
        let webhook = Webhook {
            body: event_body(&event.event, object),
            wrong_token: event.wrong_token,
        };
        for _ in 0..event.times {
            self.queue.push(Instant::now(), Job::Post(webhook.clone()));
        }
        true
    }

    fn act_later(&self, payment: &str, action: Action, after: Duration) -> bool {
        let exists = locked(&self.store).payments.get(payment).is_some();
        if exists {
            self.queue
                .push(Instant::now() + after, Job::Act(payment.to_owned(), action));
        }
        exists
    }

    fn enqueue_event(&self, event: &str, object: &Value) {
        self.queue.push(
            Instant::now(),
            Job::Post(Webhook {
                body: event_body(event, object),
                wrong_token: false,
            }),
        );
    }

    fn enqueue_charge_events(&self, payment: &Value) {
        self.enqueue_event("PAYMENT_CREATED", payment);
        if text(payment, "status") == "CONFIRMED" {
            self.enqueue_event("PAYMENT_CONFIRMED", payment);
        }
        let auto_paid = text(payment, "billingType") != "CREDIT_CARD";
        if let Some(after) = locked(&self.options).paid_after_ms.filter(|_| auto_paid) {
            let (due, id) = (
                Instant::now() + Duration::from_millis(after),
                text(payment, "id").to_owned(),
            );
            self.queue.push(due, Job::Act(id, Action::Confirm));
        }
    }

    /// Executes the due jobs and returns the webhook calls. An action enqueues its events as further jobs.
    fn pack(&self, due: Vec<Job>) -> Vec<QueuedCallback> {
        let mut webhooks = Vec::new();
        for job in due {
            match job {
                Job::Post(webhook) => webhooks.push(webhook),
                Job::Act(payment, action) => drop(self.apply_action(&payment, action)),
            }
        }
        self.callbacks(webhooks)
    }

    fn callbacks(&self, due: Vec<Webhook>) -> Vec<QueuedCallback> {
        let options = locked(&self.options).clone();
        let Some(url) = options.webhook_url else {
            return Vec::new();
        };
        let callback = |webhook: Webhook| {
            let token = if webhook.wrong_token {
                "wrong".to_owned()
            } else {
                options.webhook_token.clone()
            };
            let headers = vec![("asaas-access-token", token)];
            QueuedCallback {
                url: url.clone(),
                headers,
                body: webhook.body.to_string().into_bytes(),
                retry: !webhook.wrong_token,
            }
        };
        due.into_iter().map(callback).collect()
    }
}

/// The webhook body of an event. As at the real gateway, a subscription's dates are `DD/MM/YYYY` here.
fn event_body(event: &str, object: &Value) -> Value {
    let at = now();
    let time = format!("{} {:02}:{:02}:{:02}", at.date(), at.hour(), at.minute(), at.second());
    let mut shown = object.clone();
    let kind = if text(object, "object") == "subscription" {
        "subscription"
    } else {
        "payment"
    };
    if kind == "subscription" {
        for field in ["dateCreated", "nextDueDate"] {
            let reversed: Vec<&str> = text(object, field).rsplit('-').collect();
            set(&mut shown, field, json!(reversed.join("/")));
        }
    }
    let id = format!("evt_{}&1", Uuid::new_v4().simple());
    json!({
        "id": id, "event": event, "dateCreated": time,
        "account": { "id": "7b1f0a52-0000-4000-8000-000000000001", "ownerId": null }, kind: shown,
    })
}

fn errors(status: u16, refusals: &[Refusal]) -> Response {
    let entry = |refusal: &Refusal| json!({ "code": refusal.code, "description": refusal.description });
    Response::json(
        status,
        &json!({ "errors": refusals.iter().map(entry).collect::<Vec<_>>() }),
    )
}

fn not_found() -> Response {
    Response::raw(404, "")
}
