//! Subscriptions, and what the payment gateway tells of their payments.

use serde_json::{Value, json};

use super::exchange::{Ask, Verdict, ask, created, invalid, missing, ok, whole};
use super::state::{Access, Bug, ModelState};

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum Subscriptions {
    Subscribe {
        plan: &'static str,
        cycle: &'static str,
        billing_type: &'static str,
    },
    Look,
    Change {
        plan: &'static str,
        cycle: Option<&'static str>,
    },
    Cancel,
    History,
    Event(Event),
}

/// An event of the gateway.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) subscription: usize,
    /// 0 is the first one, which came with the subscription.
    pub(super) payment: usize,
    pub(super) kind: &'static str,
    /// The second that it says that it is of.
    pub(super) second: Option<u64>,
    /// Its id, where it has one.
    pub(super) id: Option<u64>,
}

/// A payment that was heard of.
#[derive(Clone, Debug, Default)]
struct Payment {
    number: usize,
    confirmed: bool,
    /// Whether a period was given for it.
    credited: bool,
    second: Option<u64>,
}

/// A subscription.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) account: usize,
    plan: &'static str,
    cycle: &'static str,
    billing_type: &'static str,
    pub(super) status: &'static str,
    value: u64,
    /// How many periods were paid, how many months they are, and when the first of them began.
    periods: u32,
    months: u32,
    since: (usize, usize),
    /// Whether its end has ended the account's plan.
    lapsed: bool,
    payments: Vec<Payment>,
}

/// What a subscription costs: cents a month; a year is ten of them.
fn price(plan: &str, cycle: &str) -> u64 {
    let monthly = match plan {
        "starter" => 9_700,
        "growth" => 29_700,
        _ => 79_700,
    };
    if cycle == "YEARLY" { monthly * 10 } else { monthly }
}

/// Members of the team that a plan allows.
fn team_limit(plan: &str) -> usize {
    match plan {
        "starter" => 5,
        "growth" => 15,
        _ => 50,
    }
}

/// The better of two plans.
fn better(plan: &'static str, other: Option<&'static str>) -> &'static str {
    let rank = |plan| {
        ["free", "starter", "growth", "scale"]
            .iter()
            .position(|one| *one == plan)
    };
    other.filter(|other| rank(*other) > rank(plan)).unwrap_or(plan)
}

fn is_sold(plan: &str) -> bool {
    ["starter", "growth", "scale"].contains(&plan)
}

impl Subscription {
    fn is_live(&self) -> bool {
        ["active", "pending", "past_due"].contains(&self.status)
    }

    /// Active, or not but paid for still.
    fn is_usable(&self) -> bool {
        self.status == "active" || (["past_due", "cancelled"].contains(&self.status) && self.periods > 0)
    }

    /// What is paid for, as far as the account sees it.
    fn end(&self, number: usize) -> Option<String> {
        (self.periods > 0).then(|| format!("<end:{number}:{}>", self.periods))
    }

    fn shown(&self, number: usize) -> Value {
        json!({ "id": format!("<subscription:{number}>"), "plan": self.plan, "cycle": self.cycle, "status": self.status,
            "billing_type": self.billing_type, "value": self.value, "current_period_end": self.end(number),
            "cancelled_at": null })
    }
}

impl Event {
    /// What it is told apart by.
    fn key(&self, is_known: bool) -> String {
        match self.id {
            Some(id) => format!("id:{id}"),
            None if !is_known && self.payment == 0 => format!("{}:unknown", self.kind),
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
    pub(super) fn ask(&self, who: usize, account: usize) -> Ask {
        let call = match self {
            Self::Subscribe {
                plan,
                cycle,
                billing_type,
            } => {
                let mut order = match *billing_type {
                    "CREDIT_CARD" => crate::billing::card_order("4000000000001234", "987"),
                    other => crate::billing::order(other),
                };
                (order["plan"], order["cycle"]) = (json!(plan), json!(cycle));
                ask(who, account, "POST", format!("{PATH}/subscribe")).with(order)
            }
            Self::Look => ask(who, account, "GET", format!("{PATH}/subscription")),
            Self::Change { plan, cycle } => {
                let mut body = json!({ "plan": plan });
                if let Some(cycle) = cycle {
                    body["cycle"] = json!(cycle);
                }
                ask(who, account, "PUT", format!("{PATH}/subscription")).with(body)
            }
            Self::Cancel => ask(who, account, "POST", format!("{PATH}/cancel")),
            Self::History => ask(who, account, "GET", format!("{PATH}/history")),
            Self::Event(event) => return Ask::Event(event.body()),
        };
        Ask::Call(call)
    }
}

impl ModelState {
    pub(super) fn subscriptions(&mut self, who: usize, account: usize, act: &Subscriptions) -> Verdict {
        match act {
            Subscriptions::Subscribe {
                plan,
                cycle,
                billing_type,
            } => self.subscribe(who, account, plan, cycle, billing_type),
            Subscriptions::Look => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let (number, known) = (self.live(account), &self.accounts[account]);
                let live = number.map(|number| self.subscriptions[number].shown(number));
                // Beside a live subscription its plan is shown, or a better one that an administrator has granted.
                let plan = number.map_or(known.plan, |number| {
                    better(self.subscriptions[number].plan, known.granted)
                });
                ok(json!({ "subscription": live, "plan": { "id": plan },
                    "usage": { "contacts": known.phones.len(), "messages": known.messages, "automations": 0,
                               "team": self.team_size(account), "whatsapp": u32::from(known.connected) } }))
            }
            Subscriptions::Change { plan, cycle } => self.change_plan(who, account, plan, *cycle),
            Subscriptions::Cancel => self.cancel_subscription(who, account),
            Subscriptions::History => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let own = self.subscriptions.iter().filter(|one| one.account == account);
                ok(json!({ "total": own.map(|one| one.payments.len()).sum::<usize>(), "page": 1, "limit": 20 }))
            }
            Subscriptions::Event(event) => {
                self.hear_of_payment(event);
                whole(json!({ "received": true }))
            }
        }
    }

    /// The subscription of an account that has not ended.
    fn live(&self, account: usize) -> Option<usize> {
        self.subscriptions
            .iter()
            .position(|one| one.account == account && one.is_live())
    }

    fn subscribe(
        &mut self,
        who: usize,
        account: usize,
        plan: &'static str,
        cycle: &'static str,
        billing_type: &'static str,
    ) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Manage)?;
        if !is_sold(plan) || (self.live(account).is_some() && !self.has(Bug::SecondSubscription)) {
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
            // A card is charged at once, and its period is what this pays for.
            payments: vec![Payment {
                confirmed: is_card,
                credited: is_card,
                ..Payment::default()
            }],
        });
        // What was heard and made until now tells one moment from another.
        let now = (self.heard.len(), number);
        if is_card {
            self.subscriptions[number].credit(now, if cycle == "YEARLY" { 12 } else { 1 });
        }
        self.gives(account, plan);
        let kind = if is_card {
            "credit_card"
        } else {
            &*billing_type.to_lowercase()
        };
        created(json!({ "subscription": self.subscriptions[number].shown(number),
            "gateway_subscription_id": format!("<gateway:{number}>"), "status": if is_card { "ACTIVE" } else { "PENDING" },
            "payment_data": { "type": kind, "payment_id": format!("<payment:{number}>") } }))
    }

    /// The usage must fit the new plan; messages aside.
    fn change_plan(&mut self, who: usize, account: usize, plan: &'static str, cycle: Option<&'static str>) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Manage)?;
        if !is_sold(plan) {
            return Err(invalid(&["plan"]));
        }
        let number = self.live(account).ok_or_else(missing)?;
        let (previous, now) = (self.subscriptions[number].plan, self.subscriptions[number].cycle);
        let cycle = cycle.unwrap_or(now);
        let fits = self.team_size(account) <= team_limit(plan) || self.has(Bug::DowngradeIgnoresTheTeam);
        if (previous, now) == (plan, cycle) || (previous != plan && !fits) {
            return Err(invalid(&["plan"]));
        }
        let changed = &mut self.subscriptions[number];
        (changed.plan, changed.cycle, changed.value) = (plan, cycle, price(plan, cycle));
        let shown = changed.shown(number);
        self.gives(account, plan);
        ok(json!({ "subscription": shown, "previous_plan": previous, "new_plan": plan }))
    }

    /// What is paid can be used to its end; what was never paid ends at once.
    fn cancel_subscription(&mut self, who: usize, account: usize) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Manage)?;
        let number = self.live(account).ok_or_else(missing)?;
        let cancelled = &mut self.subscriptions[number];
        (cancelled.status, cancelled.lapsed) = ("cancelled", cancelled.periods == 0);
        let end = cancelled.end(number);
        if end.is_none() {
            self.fall_back(account);
        }
        ok(json!({ "cancelled": true, "effective_until": end }))
    }

    /// The plan of what is left: nothing where one lives, else what is paid for longest, else the free one.
    fn fall_back(&mut self, account: usize) {
        if self.live(account).is_some() {
            return;
        }
        self.gives(account, self.paid_for(account).unwrap_or("free"));
    }

    /// The plan of what is paid for longest.
    fn paid_for(&self, account: usize) -> Option<&'static str> {
        let own = self.subscriptions.iter().filter(|one| one.account == account);
        let usable = own.filter(|one| one.is_usable());
        usable.max_by_key(|one| (one.months, one.since)).map(|one| one.plan)
    }

    /// What subscriptions give an account takes nothing from what was granted.
    fn gives(&mut self, account: usize, plan: &'static str) {
        let account = &mut self.accounts[account];
        account.plan = better(plan, account.granted);
    }

    /// An administrator's change of plan: what is active or late gets it, at its old price; else it is a grant, which
    /// takes nothing from what is paid for.
    pub(super) fn grant(&mut self, account: usize, plan: &'static str) {
        let own = self.subscriptions.iter_mut().filter(|one| one.account == account);
        let paying = own.filter(|one| ["active", "past_due"].contains(&one.status)).last();
        let (plan, granted) = match paying {
            Some(one) => {
                one.plan = plan;
                (plan, None)
            }
            None => (
                better(plan, self.paid_for(account)),
                Some(plan).filter(|plan| *plan != "free"),
            ),
        };
        (self.accounts[account].plan, self.accounts[account].granted) = (plan, granted);
    }

    /// Whether campaigns may be sent: the free plan, what an administrator granted, or what can be used.
    pub(super) fn has_active_plan(&self, account: usize) -> bool {
        let mut own = self
            .subscriptions
            .iter()
            .filter(|one| one.account == account)
            .peekable();
        let known = &self.accounts[account];
        known.plan == "free" || known.granted.is_some() || own.peek().is_none() || own.any(Subscription::is_usable)
    }

    fn hear_of_payment(&mut self, event: &Event) {
        let known = self.subscriptions.get(event.subscription).map(|one| one.account);
        let is_new = self.heard.insert(event.key(known.is_some()));
        let Some(account) = known.filter(|_| is_new || self.has(Bug::EventsCountTwice)) else {
            return;
        };
        let own = |(number, one): &(usize, &Subscription)| *number != event.subscription && one.account == account;
        let other_lives = self
            .subscriptions
            .iter()
            .enumerate()
            .filter(own)
            .any(|(_, one)| one.is_live());
        let now = (self.heard.len(), self.subscriptions.len());
        let one = &mut self.subscriptions[event.subscription];
        if event.kind == "SUBSCRIPTION_INACTIVATED" {
            let ends_plan = !one.lapsed;
            (one.status, one.lapsed) = ("inactive", true);
            if ends_plan {
                self.fall_back(account);
            }
            return;
        }
        if !["PAYMENT_CONFIRMED", "PAYMENT_RECEIVED", "PAYMENT_OVERDUE"].contains(&event.kind) {
            return;
        }
        if one.apply(event, now, other_lives) {
            let plan = one.plan;
            self.gives(account, plan);
        }
    }
}

impl Subscription {
    /// One period more, behind the last one.
    fn credit(&mut self, now: (usize, usize), months: u32) {
        if self.periods == 0 {
            self.since = now;
        }
        self.periods += 1;
        self.months += months;
    }

    /// News of a payment; whether the subscription lives by it.
    fn apply(&mut self, event: &Event, now: (usize, usize), other_lives: bool) -> bool {
        let known = self.payments.iter().position(|payment| payment.number == event.payment);
        let number = known.unwrap_or_else(|| {
            self.payments.push(Payment {
                number: event.payment,
                ..Payment::default()
            });
            self.payments.len() - 1
        });
        let lives = self.is_live();
        let payment = &mut self.payments[number];
        if event.second.zip(payment.second).is_some_and(|(told, last)| told < last) {
            return false;
        }
        payment.second = event.second.or(payment.second);
        // The money of what was confirmed before revives nothing.
        let settles = event.kind == "PAYMENT_RECEIVED" && payment.confirmed;
        payment.confirmed |= event.kind == "PAYMENT_CONFIRMED";
        if !lives && (settles || other_lives) {
            return false;
        }
        let pays = event.kind != "PAYMENT_OVERDUE";
        if pays && !settles && !payment.credited {
            payment.credited = true;
            // Its value is that of a month, whatever the subscription costs now.
            self.credit(now, 1);
        }
        (self.status, self.lapsed) = (if pays { "active" } else { "past_due" }, false);
        true
    }
}
