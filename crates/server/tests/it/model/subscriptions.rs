//! Subscriptions and the payment gateway's events.

use serde_json::{Value, json};

use super::exchange::{Action, ModelResult, call, created, invalid, not_found, ok, ok_body};
use super::state::{Access, Bug, ModelState};

#[derive(Clone, Debug)]
pub(super) enum Subscriptions {
    Subscribe {
        plan: &'static str,
        cycle: &'static str,
        billing_type: &'static str,
    },
    Get,
    Change {
        plan: &'static str,
        cycle: Option<&'static str>,
    },
    Cancel,
    History,
    Event(Event),
}

/// A gateway event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) subscription: usize,
    /// 0 is the first payment, which the subscription created.
    pub(super) payment: usize,
    pub(super) kind: &'static str,
    /// The seconds of the event's `dateCreated`.
    pub(super) second: Option<u64>,
    /// The event's id, if the gateway sends one.
    pub(super) id: Option<u64>,
}

/// A payment that the gateway reported.
#[derive(Clone, Debug, Default)]
struct Payment {
    number: usize,
    confirmed: bool,
    /// Whether it extended the paid period.
    credited: bool,
    second: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) account: usize,
    plan: &'static str,
    cycle: &'static str,
    billing_type: &'static str,
    pub(super) status: &'static str,
    value: u64,
    /// Number of paid periods.
    periods: u32,
    /// Length of all paid periods.
    months: u32,
    /// When the first paid period began, in model time.
    since: (usize, usize),
    /// Whether the account's plan already ended with it.
    lapsed: bool,
    payments: Vec<Payment>,
}

/// The price per cycle in cents. A year costs ten months.
fn price(plan: &str, cycle: &str) -> u64 {
    let monthly = match plan {
        "starter" => 9_700,
        "growth" => 29_700,
        _ => 79_700,
    };
    if cycle == "YEARLY" { monthly * 10 } else { monthly }
}

/// The team size that a plan allows.
fn team_limit(plan: &str) -> usize {
    match plan {
        "starter" => 5,
        "growth" => 15,
        _ => 50,
    }
}

/// The better of two plans.
fn better_plan(plan: &'static str, alternative: Option<&'static str>) -> &'static str {
    let rank = |plan| {
        ["free", "starter", "growth", "scale"]
            .iter()
            .position(|name| *name == plan)
    };
    alternative
        .filter(|alternative| rank(*alternative) > rank(plan))
        .unwrap_or(plan)
}

fn is_sold(plan: &str) -> bool {
    ["starter", "growth", "scale"].contains(&plan)
}

impl Subscription {
    fn is_live(&self) -> bool {
        ["active", "pending", "past_due"].contains(&self.status)
    }

    /// Active, or in a period that is still paid.
    fn is_usable(&self) -> bool {
        self.status == "active" || (["past_due", "cancelled"].contains(&self.status) && self.periods > 0)
    }

    /// The placeholder for the end of the paid period.
    fn end(&self, number: usize) -> Option<String> {
        (self.periods > 0).then(|| format!("<end:{number}:{}>", self.periods))
    }

    fn json(&self, number: usize) -> Value {
        json!({ "id": format!("<subscription:{number}>"), "plan": self.plan, "cycle": self.cycle, "status": self.status,
            "billing_type": self.billing_type, "value": self.value, "current_period_end": self.end(number),
            "cancelled_at": null })
    }
}

impl Event {
    /// The key that identifies repeated deliveries of the event.
    fn key(&self, has_subscription: bool) -> String {
        match self.id {
            Some(id) => format!("id:{id}"),
            None if !has_subscription && self.payment == 0 => format!("{}:unknown", self.kind),
            None => format!("{}:{}:{}", self.kind, self.subscription, self.payment),
        }
    }

    fn body(&self) -> Value {
        let Self {
            subscription,
            payment,
            kind,
            ..
        } = self;
        let id = match payment {
            0 => format!("<payment:{subscription}>"),
            _ => format!("pay_<tag>_{subscription}_{payment}"),
        };
        let mut body = json!({ "event": kind, "payment": { "id": id, "subscription": format!("<gateway:{subscription}>"),
            "billingType": "PIX", "value": 97.0, "invoiceUrl": "https://gateway.example/i", "bankSlipUrl": null,
            "dueDate": "2026-12-01", "status": kind.trim_start_matches("PAYMENT_") } });
        if let Some(id) = self.id {
            body["id"] = json!(format!("evt_<tag>_{id}"));
        }
        if let Some(second) = self.second {
            body["dateCreated"] = json!(format!("2026-06-12 16:45:{second:02}"));
        }
        body
    }
}

const PATH: &str = "/api/billing";

impl Subscriptions {
    pub(super) fn action(&self, caller: usize, account: usize) -> Action {
        let request = match self {
            Self::Subscribe {
                plan,
                cycle,
                billing_type,
            } => {
                let mut order = match *billing_type {
                    "CREDIT_CARD" => crate::billing::card_order("4000000000001234", "987"),
                    billing_type => crate::billing::order(billing_type),
                };
                (order["plan"], order["cycle"]) = (json!(plan), json!(cycle));
                call(caller, account, "POST", format!("{PATH}/subscribe")).with(order)
            }
            Self::Get => call(caller, account, "GET", format!("{PATH}/subscription")),
            Self::Change { plan, cycle } => {
                let mut body = json!({ "plan": plan });
                if let Some(cycle) = cycle {
                    body["cycle"] = json!(cycle);
                }
                call(caller, account, "PUT", format!("{PATH}/subscription")).with(body)
            }
            Self::Cancel => call(caller, account, "POST", format!("{PATH}/cancel")),
            Self::History => call(caller, account, "GET", format!("{PATH}/history")),
            Self::Event(event) => return Action::GatewayEvent(event.body()),
        };
        Action::Call(request)
    }
}

impl ModelState {
    pub(super) fn subscriptions(&mut self, caller: usize, account: usize, act: &Subscriptions) -> ModelResult {
        match act {
            Subscriptions::Subscribe {
                plan,
                cycle,
                billing_type,
            } => self.subscribe(caller, account, plan, cycle, billing_type),
            Subscriptions::Get => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let (number, state) = (self.live(account), &self.accounts[account]);
                let live = number.map(|number| self.subscriptions[number].json(number));
                // With a live subscription, the plan is the subscription's or a better granted one.
                let plan = number.map_or(state.plan, |number| {
                    better_plan(self.subscriptions[number].plan, state.granted)
                });
                ok(json!({ "subscription": live, "plan": { "id": plan },
                    "usage": { "contacts": state.phones.len(), "messages": state.messages, "automations": 0,
                               "team": self.count_team(account), "whatsapp": u32::from(state.connected) } }))
            }
            Subscriptions::Change { plan, cycle } => self.change_plan(caller, account, plan, *cycle),
            Subscriptions::Cancel => self.cancel_subscription(caller, account),
            Subscriptions::History => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let own = self
                    .subscriptions
                    .iter()
                    .filter(|subscription| subscription.account == account);
                ok(json!({ "total": own.map(|paid| paid.payments.len()).sum::<usize>(), "page": 1, "limit": 20 }))
            }
            Subscriptions::Event(event) => {
                self.apply_gateway_event(event);
                ok_body(json!({ "received": true }))
            }
        }
    }

    /// The account's live subscription.
    fn live(&self, account: usize) -> Option<usize> {
        self.subscriptions
            .iter()
            .position(|subscription| subscription.account == account && subscription.is_live())
    }

    fn subscribe(
        &mut self,
        caller: usize,
        account: usize,
        plan: &'static str,
        cycle: &'static str,
        billing_type: &'static str,
    ) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Manage)?;
        if !is_sold(plan) || (self.live(account).is_some() && !self.has(Bug::SecondSubscriptionIsAllowed)) {
            return Err(invalid(&["plan"]));
        }
        let is_card = billing_type == "CREDIT_CARD";
        let number = self.subscriptions.len();
        self.subscriptions.push(Subscription {
            account,
            plan,
            cycle,
            billing_type,
            status: if is_card { "active" } else { "pending" },
            value: price(plan, cycle),
            periods: 0,
            months: 0,
            since: (0, 0),
            lapsed: false,
            // A card is charged at once, and the payment covers the whole first period.
            payments: vec![Payment {
                confirmed: is_card,
                credited: is_card,
                ..Payment::default()
            }],
        });
        // Model time: the number of applied events and of subscriptions.
        let now = (self.applied_events.len(), number);
        if is_card {
            self.subscriptions[number].credit(now, if cycle == "YEARLY" { 12 } else { 1 });
        }
        self.set_plan(account, plan);
        let kind = if is_card {
            "credit_card"
        } else {
            &*billing_type.to_lowercase()
        };
        created(json!({ "subscription": self.subscriptions[number].json(number),
            "gateway_subscription_id": format!("<gateway:{number}>"), "status": if is_card { "ACTIVE" } else { "PENDING" },
            "payment_data": { "type": kind, "payment_id": format!("<payment:{number}>") } }))
    }

    /// The usage, except messages, must fit the new plan.
    fn change_plan(
        &mut self,
        caller: usize,
        account: usize,
        plan: &'static str,
        cycle: Option<&'static str>,
    ) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Manage)?;
        if !is_sold(plan) {
            return Err(invalid(&["plan"]));
        }
        let number = self.live(account).ok_or_else(not_found)?;
        let (previous, now) = (self.subscriptions[number].plan, self.subscriptions[number].cycle);
        let cycle = cycle.unwrap_or(now);
        let fits = self.count_team(account) <= team_limit(plan) || self.has(Bug::DowngradeIgnoresTeamSize);
        if (previous, now) == (plan, cycle) || (previous != plan && !fits) {
            return Err(invalid(&["plan"]));
        }
        let changed = &mut self.subscriptions[number];
        (changed.plan, changed.cycle, changed.value) = (plan, cycle, price(plan, cycle));
        let subscription = changed.json(number);
        self.set_plan(account, plan);
        ok(json!({ "subscription": subscription, "previous_plan": previous, "new_plan": plan }))
    }

    /// A paid subscription stays usable to the end of its period. An unpaid one ends at once.
    fn cancel_subscription(&mut self, caller: usize, account: usize) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Manage)?;
        let number = self.live(account).ok_or_else(not_found)?;
        let cancelled = &mut self.subscriptions[number];
        (cancelled.status, cancelled.lapsed) = ("cancelled", cancelled.periods == 0);
        let end = cancelled.end(number);
        if end.is_none() {
            self.fall_back(account);
        }
        ok(json!({ "cancelled": true, "effective_until": end }))
    }

    /// Sets the plan after the end of a subscription, unless another one is live: the plan that is paid for longest,
    /// else the free plan.
    fn fall_back(&mut self, account: usize) {
        if self.live(account).is_some() {
            return;
        }
        self.set_plan(account, self.paid_for(account).unwrap_or("free"));
    }

    /// The plan of the usable subscription that is paid for longest.
    fn paid_for(&self, account: usize) -> Option<&'static str> {
        let own = self
            .subscriptions
            .iter()
            .filter(|subscription| subscription.account == account);
        let usable = own.filter(|subscription| subscription.is_usable());
        usable
            .max_by_key(|subscription| (subscription.months, subscription.since))
            .map(|subscription| subscription.plan)
    }

    /// Sets the plan of a subscription. A better granted plan stays in effect.
    fn set_plan(&mut self, account: usize, plan: &'static str) {
        let account = &mut self.accounts[account];
        account.plan = better_plan(plan, account.granted);
    }

    /// An administrator's change of plan. An active or overdue subscription gets the plan at its old price. Without one
    /// the plan is granted, and a better paid plan stays in effect.
    pub(super) fn grant(&mut self, account: usize, plan: &'static str) {
        let own = self
            .subscriptions
            .iter_mut()
            .filter(|subscription| subscription.account == account);
        let paying = own
            .filter(|subscription| ["active", "past_due"].contains(&subscription.status))
            .last();
        let (plan, granted) = match paying {
            Some(subscription) => {
                subscription.plan = plan;
                (plan, None)
            }
            None => (
                better_plan(plan, self.paid_for(account)),
                Some(plan).filter(|plan| *plan != "free"),
            ),
        };
        (self.accounts[account].plan, self.accounts[account].granted) = (plan, granted);
    }

    /// Whether campaigns may be sent: the free plan, a granted plan, no subscription, or a usable one.
    pub(super) fn has_active_plan(&self, account: usize) -> bool {
        let mut own = self
            .subscriptions
            .iter()
            .filter(|subscription| subscription.account == account)
            .peekable();
        let state = &self.accounts[account];
        state.plan == "free" || state.granted.is_some() || own.peek().is_none() || own.any(Subscription::is_usable)
    }

    fn apply_gateway_event(&mut self, event: &Event) {
        let owner = self
            .subscriptions
            .get(event.subscription)
            .map(|subscription| subscription.account);
        let is_new = self.applied_events.insert(event.key(owner.is_some()));
        let Some(account) = owner.filter(|_| is_new || self.has(Bug::RepeatedEventsCount)) else {
            return;
        };
        let is_other = |(number, subscription): &(usize, &Subscription)| {
            *number != event.subscription && subscription.account == account
        };
        let other_is_live = self
            .subscriptions
            .iter()
            .enumerate()
            .filter(is_other)
            .any(|(_, subscription)| subscription.is_live());
        let now = (self.applied_events.len(), self.subscriptions.len());
        let subscription = &mut self.subscriptions[event.subscription];
        if event.kind == "SUBSCRIPTION_INACTIVATED" {
            let ends_plan = !subscription.lapsed;
            (subscription.status, subscription.lapsed) = ("inactive", true);
            if ends_plan {
                self.fall_back(account);
            }
            return;
        }
        if !["PAYMENT_CONFIRMED", "PAYMENT_RECEIVED", "PAYMENT_OVERDUE"].contains(&event.kind) {
            return;
        }
        if subscription.apply(event, now, other_is_live) {
            let plan = subscription.plan;
            self.set_plan(account, plan);
        }
    }
}

impl Subscription {
    /// Extends the paid time by one period.
    fn credit(&mut self, now: (usize, usize), months: u32) {
        if self.periods == 0 {
            self.since = now;
        }
        self.periods += 1;
        self.months += months;
    }

    /// Applies a payment event. Returns whether it made or kept the subscription live.
    fn apply(&mut self, event: &Event, now: (usize, usize), other_is_live: bool) -> bool {
        let index = self.payments.iter().position(|payment| payment.number == event.payment);
        let index = index.unwrap_or_else(|| {
            self.payments.push(Payment {
                number: event.payment,
                ..Payment::default()
            });
            self.payments.len() - 1
        });
        let is_live = self.is_live();
        let payment = &mut self.payments[index];
        if event
            .second
            .zip(payment.second)
            .is_some_and(|(second, last)| second < last)
        {
            return false;
        }
        payment.second = event.second.or(payment.second);
        // The receipt of a payment that was already confirmed revives nothing.
        let was_confirmed = event.kind == "PAYMENT_RECEIVED" && payment.confirmed;
        payment.confirmed |= event.kind == "PAYMENT_CONFIRMED";
        if !is_live && (was_confirmed || other_is_live) {
            return false;
        }
        let pays = event.kind != "PAYMENT_OVERDUE";
        if pays && !was_confirmed && !payment.credited {
            payment.credited = true;
            // The events of the test carry the price of a month, so each pays for one month.
            self.credit(now, 1);
        }
        (self.status, self.lapsed) = (if pays { "active" } else { "past_due" }, false);
        true
    }
}
