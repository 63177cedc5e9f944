//! What is likely to be done next: mostly what makes sense, by somebody who may, to something that is there; and now and
//! then anything else.

use super::campaigns::{Campaigns, Change, Command, When};
use super::exchange::{Ask, Cookie, Exchange};
use super::state::{
    ADMIN, ANA, FOREIGN, FOREIGNER, GUEST, MEMBER, ModelState, OTHER_GUEST, PEOPLE, ROOT, SHOP, VIEWER,
};
use super::subscriptions::{Event, Subscriptions};
use super::support::Support;
use super::team::Team;
use super::templates::Templates;
use crate::harness::rng::TestRng;

/// One step: who, in the name of which account, and what.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) who: usize,
    pub(super) account: usize,
    pub(super) act: Act,
}

/// A step of one of the machines.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Team(Team),
    Templates(Templates),
    Support(Support),
    Subscriptions(Subscriptions),
    Campaigns(Campaigns),
}

/// The machines, and how many there are.
pub(super) const TEAM: u64 = 0;
pub(super) const TEMPLATES: u64 = 1;
pub(super) const SUPPORT: u64 = 2;
pub(super) const SUBSCRIPTIONS: u64 = 3;
pub(super) const CAMPAIGNS: u64 = 4;
const MACHINES: u64 = 5;

/// What a history is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// The machines that most steps are of.
    pub(super) machines: [u64; 2],
    /// Whether a number of the messaging platform may be connected; else a template was approved before.
    pub(super) connects: bool,
    /// Whether the administrator has an account of their own, and knows it.
    pub(super) has_own: bool,
    pub(super) remembers: bool,
    /// Whether there is somebody to write to.
    has_contacts: bool,
    /// Whether the shop's team is too large for the smallest plans.
    pub(super) is_crowded: bool,
}

impl Scenario {
    pub(super) fn of(rng: &mut TestRng) -> Self {
        Self {
            machines: [rng.below(MACHINES), rng.below(MACHINES)],
            connects: rng.below(2) == 0,
            has_own: rng.below(2) == 0,
            remembers: rng.below(2) == 0,
            has_contacts: rng.below(3) > 0,
            is_crowded: rng.below(3) == 0,
        }
    }

    /// What every history of it begins with.
    pub(super) fn beginning(self) -> Vec<Step> {
        let of_ana = |act| Step {
            who: ANA,
            account: SHOP,
            act,
        };
        let template = Templates::Create { name: 0, good: true };
        let approved = [template, Templates::ApproveByHand(0)].map(Act::Templates);
        let approved = approved.into_iter().filter(|_| !self.connects);
        let contact = self.has_contacts.then_some(Act::Campaigns(Campaigns::Contact(0)));
        approved.chain(contact).map(of_ana).collect()
    }
}

impl Step {
    /// What it asks, and what the model says to that; the model goes on.
    pub(super) fn exchange(&self, state: &mut ModelState) -> Exchange {
        let (who, account) = (self.who, self.account);
        let ask: Ask = match &self.act {
            Act::Team(act) => act.ask(who, account),
            Act::Templates(act) => act.ask(who, account, state),
            Act::Support(act) => act.ask(who, account),
            Act::Subscriptions(act) => act.ask(who, account),
            Act::Campaigns(act) => act.ask(who, account),
        };
        let verdict = match &self.act {
            Act::Team(act) => state.team(who, account, act),
            Act::Templates(act) => state.templates(who, account, act),
            Act::Support(act) => state.support(who, act),
            Act::Subscriptions(act) => state.subscriptions(who, account, act),
            Act::Campaigns(act) => state.campaigns(who, account, act),
        };
        Exchange {
            ask,
            expected: verdict.unwrap_or_else(|refusal| refusal),
        }
    }

    pub(super) fn next(scenario: Scenario, state: &ModelState, rng: &mut TestRng) -> Self {
        let machine = match rng.below(10) {
            0..5 => scenario.machines[0],
            5..8 => scenario.machines[1],
            _ => rng.below(MACHINES),
        };
        let act = match machine {
            TEAM => Act::Team(team(state, rng)),
            TEMPLATES => Act::Templates(templates(scenario, state, rng)),
            SUPPORT => Act::Support(support(state, rng)),
            SUBSCRIPTIONS => Act::Subscriptions(subscriptions(state, rng)),
            _ => Act::Campaigns(campaigns(state, rng)),
        };
        let who = match &act {
            Act::Team(Team::Accept(invite)) if rng.below(5) > 0 => {
                state.invites.get(*invite).map_or(GUEST, |invite| invite.person)
            }
            Act::Support(Support::Look) => person(rng),
            Act::Support(_) if rng.below(12) > 0 => ROOT,
            _ => anybody(state, rng),
        };
        let stranger = who == FOREIGNER;
        let account = match rng.below(12) {
            0 => FOREIGN,
            1 => SHOP,
            _ if stranger => FOREIGN,
            _ => SHOP,
        };
        Self { who, account, act }
    }
}

fn of<T: Copy>(rng: &mut TestRng, choices: &[T]) -> T {
    choices[index(rng, choices.len())]
}

fn index(rng: &mut TestRng, bound: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(bound).unwrap())).unwrap()
}

fn person(rng: &mut TestRng) -> usize {
    index(rng, PEOPLE)
}

/// Mostly somebody who may do it.
fn anybody(state: &ModelState, rng: &mut TestRng) -> usize {
    let supports = state.cookies.support.is_some_and(|(account, _)| account == SHOP);
    match rng.below(20) {
        0..8 => ANA,
        8..11 => ADMIN,
        11..13 => MEMBER,
        13 => VIEWER,
        14 => FOREIGNER,
        15 => GUEST,
        16 => OTHER_GUEST,
        17 => ROOT,
        _ if supports => ROOT,
        _ => ADMIN,
    }
}

/// One of so many things: mostly one of the newest, now and then one that is not there.
fn one(rng: &mut TestRng, count: usize) -> usize {
    match rng.below(14) {
        0 => count,
        1..5 => index(rng, count.max(1)),
        _ => count.saturating_sub(1 + index(rng, 3)),
    }
}

const ROLES: [&str; 9] = [
    "owner", "owner", "admin", "admin", "member", "member", "viewer", "viewer", "king",
];

fn team(state: &ModelState, rng: &mut TestRng) -> Team {
    let invites = state.invites.len();
    let guest = |rng: &mut TestRng| of(rng, &[GUEST, GUEST, OTHER_GUEST, ROOT, FOREIGNER, MEMBER]);
    match rng.below(20) {
        0..5 => Team::Invite {
            person: guest(rng),
            upper: rng.below(3) == 0,
            role: of(rng, &ROLES),
        },
        5..9 => Team::Accept(one(rng, invites)),
        9 => Team::Invites,
        10 => Team::Revoke(one(rng, invites)),
        11 => Team::Expire(one(rng, invites)),
        12..14 => Team::Members,
        14..18 => Team::SetRole {
            person: person(rng),
            role: of(rng, &ROLES),
        },
        _ => Team::Remove(person(rng)),
    }
}

const NEWS: [&str; 6] = ["APPROVED", "APPROVED", "REJECTED", "PAUSED", "DISABLED", "REINSTATED"];
const STATUSES: [&str; 7] = ["", "draft", "pending", "approved", "rejected", "paused", "disabled"];

fn templates(scenario: Scenario, state: &ModelState, rng: &mut TestRng) -> Templates {
    let template = one(rng, state.templates.len());
    let connects = scenario.connects && !state.accounts[SHOP].connected;
    match rng.below(20) {
        0..3 if connects => Templates::Connect,
        0..4 => Templates::Create {
            name: index(rng, 4),
            good: rng.below(10) > 0,
        },
        4..7 => Templates::Edit {
            template,
            text: rng.below(1_000_000),
            good: rng.below(10) > 0,
        },
        7..11 => Templates::Submit(template),
        11..16 => Templates::News {
            template,
            event: of(rng, &NEWS),
        },
        16 => Templates::Delete(template),
        17..19 => Templates::Get(template),
        _ => Templates::List(of(rng, &STATUSES)),
    }
}

const GRANTED: [Option<&str>; 6] = [
    Some("free"),
    Some("starter"),
    Some("growth"),
    Some("scale"),
    Some("gold"),
    None,
];

fn support(state: &ModelState, rng: &mut TestRng) -> Support {
    let account = of(
        rng,
        &[
            SHOP,
            SHOP,
            SHOP,
            FOREIGN,
            state.accounts.len() - 1,
            state.accounts.len(),
        ],
    );
    let suspended = state.accounts.get(account).is_some_and(|account| account.suspended);
    let act = |action, plan| Support::Act { account, action, plan };
    match rng.below(16) {
        0..4 => Support::Start(account),
        4..6 => Support::Stop(Cookie::Own),
        6 => Support::Stop(of(rng, &[Cookie::Missing, Cookie::Forged])),
        7..11 => Support::Look,
        // Most of what could be done in a suspended account is refused.
        11..15 if suspended => act("reactivate", None),
        11 => act("suspend", None),
        12 => act("close", None),
        _ => act("change_plan", of(rng, &GRANTED)),
    }
}

const SOLD: [&str; 8] = [
    "starter", "starter", "starter", "growth", "growth", "scale", "free", "gold",
];
const KINDS: [&str; 9] = [
    "PAYMENT_CONFIRMED",
    "PAYMENT_CONFIRMED",
    "PAYMENT_RECEIVED",
    "PAYMENT_RECEIVED",
    "PAYMENT_OVERDUE",
    "PAYMENT_OVERDUE",
    "SUBSCRIPTION_INACTIVATED",
    "PAYMENT_REFUNDED",
    "SUBSCRIPTION_DELETED",
];

fn subscriptions(state: &ModelState, rng: &mut TestRng) -> Subscriptions {
    match rng.below(20) {
        0..4 => Subscriptions::Subscribe {
            plan: of(rng, &SOLD),
            cycle: of(rng, &["MONTHLY", "YEARLY"]),
            billing_type: of(rng, &["PIX", "BOLETO", "CREDIT_CARD"]),
        },
        4..7 => Subscriptions::Look,
        7..10 => Subscriptions::Change {
            plan: of(rng, &SOLD),
            cycle: of(rng, &[None, Some("MONTHLY"), Some("YEARLY")]),
        },
        10..12 => Subscriptions::Cancel,
        12 => Subscriptions::History,
        _ => Subscriptions::Event(Event {
            subscription: one(rng, state.subscriptions.len()),
            payment: index(rng, 3),
            kind: of(rng, &KINDS),
            second: (rng.below(2) == 0).then(|| rng.below(8)),
            id: (rng.below(5) > 0).then(|| rng.below(25)),
        }),
    }
}

fn campaigns(state: &ModelState, rng: &mut TestRng) -> Campaigns {
    let campaign = one(rng, state.campaigns.len());
    let template = |rng: &mut TestRng| (rng.below(6) > 0).then(|| one(rng, state.templates.len()));
    let when = of(rng, &[When::Never, When::Past, When::Future, When::Future]);
    // A run that begins while its account is suspended goes on by itself once it is not: at a moment of its own.
    let begins = if state.accounts.iter().any(|account| account.suspended) {
        Command::Send
    } else {
        Command::Execute
    };
    let command = |rng: &mut TestRng| {
        use Command::{Cancel, Delete, Pause, Resume, RetryFailed, Send, Unschedule};
        let held = [Pause, Resume, Cancel, Delete, RetryFailed, Unschedule];
        match rng.below(12) {
            0..2 => Send,
            2..6 => begins,
            _ => of(rng, &held),
        }
    };
    match rng.below(24) {
        0 => Campaigns::Contact(index(rng, 3)),
        1 if state.accounts[SHOP].phones.is_empty() => Campaigns::Contact(0),
        1..4 => Campaigns::Create {
            template: template(rng),
            when,
        },
        4..7 => Campaigns::Update {
            campaign,
            change: match rng.below(5) {
                0 => Change::Name(""),
                1 => Change::Name("Oferta nova"),
                2 => Change::Time(when),
                _ => Change::Template(template(rng)),
            },
        },
        7..10 => Campaigns::Schedule { campaign, when },
        10..20 => Campaigns::Command(campaign, command(rng)),
        20..22 => Campaigns::Get(campaign),
        22 => Campaigns::List,
        _ => Campaigns::Stats(campaign),
    }
}
