//! What is likely to be done next: mostly what makes sense, by somebody who may, to something that is there; and now and
//! then anything else.

use super::campaigns::{Campaigns, Change, Command, When};
use super::exchange::{Ask, Cookie, Exchange};
use super::subscriptions::{Event, Subscriptions};
use super::support::Support;
use super::team::Team;
use super::templates::Templates;
use super::world::{ADMIN, ANA, FOREIGN, FOREIGNER, GUEST, MEMBER, OTHER_GUEST, PEOPLE, ROOT, SHOP, VIEWER, World};
use crate::harness::dice::Dice;

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
pub(super) struct Setting {
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

impl Setting {
    pub(super) fn of(dice: &mut Dice) -> Self {
        Self {
            machines: [dice.below(MACHINES), dice.below(MACHINES)],
            connects: dice.below(2) == 0,
            has_own: dice.below(2) == 0,
            remembers: dice.below(2) == 0,
            has_contacts: dice.below(3) > 0,
            is_crowded: dice.below(3) == 0,
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
    pub(super) fn exchange(&self, world: &mut World) -> Exchange {
        let (who, account) = (self.who, self.account);
        let ask: Ask = match &self.act {
            Act::Team(act) => act.ask(who, account),
            Act::Templates(act) => act.ask(who, account, world),
            Act::Support(act) => act.ask(who, account),
            Act::Subscriptions(act) => act.ask(who, account),
            Act::Campaigns(act) => act.ask(who, account),
        };
        let verdict = match &self.act {
            Act::Team(act) => world.team(who, account, act),
            Act::Templates(act) => world.templates(who, account, act),
            Act::Support(act) => world.support(who, act),
            Act::Subscriptions(act) => world.subscriptions(who, account, act),
            Act::Campaigns(act) => world.campaigns(who, account, act),
        };
        Exchange {
            ask,
            expected: verdict.unwrap_or_else(|refusal| refusal),
        }
    }

    pub(super) fn next(setting: Setting, world: &World, dice: &mut Dice) -> Self {
        let machine = match dice.below(10) {
            0..5 => setting.machines[0],
            5..8 => setting.machines[1],
            _ => dice.below(MACHINES),
        };
        let act = match machine {
            TEAM => Act::Team(team(world, dice)),
            TEMPLATES => Act::Templates(templates(setting, world, dice)),
            SUPPORT => Act::Support(support(world, dice)),
            SUBSCRIPTIONS => Act::Subscriptions(subscriptions(world, dice)),
            _ => Act::Campaigns(campaigns(world, dice)),
        };
        let who = match &act {
            Act::Team(Team::Accept(invite)) if dice.below(5) > 0 => {
                world.invites.get(*invite).map_or(GUEST, |invite| invite.person)
            }
            Act::Support(Support::Look) => person(dice),
            Act::Support(_) if dice.below(12) > 0 => ROOT,
            _ => anybody(world, dice),
        };
        let stranger = who == FOREIGNER;
        let account = match dice.below(12) {
            0 => FOREIGN,
            1 => SHOP,
            _ if stranger => FOREIGN,
            _ => SHOP,
        };
        Self { who, account, act }
    }
}

fn of<T: Copy>(dice: &mut Dice, choices: &[T]) -> T {
    choices[index(dice, choices.len())]
}

fn index(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(u64::try_from(bound).unwrap())).unwrap()
}

fn person(dice: &mut Dice) -> usize {
    index(dice, PEOPLE)
}

/// Mostly somebody who may do it.
fn anybody(world: &World, dice: &mut Dice) -> usize {
    let supports = world.cookies.support.is_some_and(|(account, _)| account == SHOP);
    match dice.below(20) {
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
fn one(dice: &mut Dice, count: usize) -> usize {
    match dice.below(14) {
        0 => count,
        1..5 => index(dice, count.max(1)),
        _ => count.saturating_sub(1 + index(dice, 3)),
    }
}

const ROLES: [&str; 9] = [
    "owner", "owner", "admin", "admin", "member", "member", "viewer", "viewer", "king",
];

fn team(world: &World, dice: &mut Dice) -> Team {
    let invites = world.invites.len();
    let guest = |dice: &mut Dice| of(dice, &[GUEST, GUEST, OTHER_GUEST, ROOT, FOREIGNER, MEMBER]);
    match dice.below(20) {
        0..5 => Team::Invite {
            person: guest(dice),
            upper: dice.below(3) == 0,
            role: of(dice, &ROLES),
        },
        5..9 => Team::Accept(one(dice, invites)),
        9 => Team::Invites,
        10 => Team::Revoke(one(dice, invites)),
        11 => Team::Expire(one(dice, invites)),
        12..14 => Team::Members,
        14..18 => Team::SetRole {
            person: person(dice),
            role: of(dice, &ROLES),
        },
        _ => Team::Remove(person(dice)),
    }
}

const NEWS: [&str; 6] = ["APPROVED", "APPROVED", "REJECTED", "PAUSED", "DISABLED", "REINSTATED"];
const STATUSES: [&str; 7] = ["", "draft", "pending", "approved", "rejected", "paused", "disabled"];

fn templates(setting: Setting, world: &World, dice: &mut Dice) -> Templates {
    let template = one(dice, world.templates.len());
    let connects = setting.connects && !world.accounts[SHOP].connected;
    match dice.below(20) {
        0..3 if connects => Templates::Connect,
        0..4 => Templates::Create {
            name: index(dice, 4),
            good: dice.below(10) > 0,
        },
        4..7 => Templates::Edit {
            template,
            text: dice.below(1_000_000),
            good: dice.below(10) > 0,
        },
        7..11 => Templates::Submit(template),
        11..16 => Templates::News {
            template,
            event: of(dice, &NEWS),
        },
        16 => Templates::Delete(template),
        17..19 => Templates::Get(template),
        _ => Templates::List(of(dice, &STATUSES)),
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

fn support(world: &World, dice: &mut Dice) -> Support {
    let account = of(
        dice,
        &[
            SHOP,
            SHOP,
            SHOP,
            FOREIGN,
            world.accounts.len() - 1,
            world.accounts.len(),
        ],
    );
    let suspended = world.accounts.get(account).is_some_and(|account| account.suspended);
    let act = |action, plan| Support::Act { account, action, plan };
    match dice.below(16) {
        0..4 => Support::Start(account),
        4..6 => Support::Stop(Cookie::Own),
        6 => Support::Stop(of(dice, &[Cookie::Missing, Cookie::Forged])),
        7..11 => Support::Look,
        // Most of what could be done in a suspended account is refused.
        11..15 if suspended => act("reactivate", None),
        11 => act("suspend", None),
        12 => act("close", None),
        _ => act("change_plan", of(dice, &GRANTED)),
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

fn subscriptions(world: &World, dice: &mut Dice) -> Subscriptions {
    match dice.below(20) {
        0..4 => Subscriptions::Subscribe {
            plan: of(dice, &SOLD),
            cycle: of(dice, &["MONTHLY", "YEARLY"]),
            billing_type: of(dice, &["PIX", "BOLETO", "CREDIT_CARD"]),
        },
        4..7 => Subscriptions::Look,
        7..10 => Subscriptions::Change {
            plan: of(dice, &SOLD),
            cycle: of(dice, &[None, Some("MONTHLY"), Some("YEARLY")]),
        },
        10..12 => Subscriptions::Cancel,
        12 => Subscriptions::History,
        _ => Subscriptions::Event(Event {
            subscription: one(dice, world.subscriptions.len()),
            payment: index(dice, 3),
            kind: of(dice, &KINDS),
            second: (dice.below(2) == 0).then(|| dice.below(8)),
            id: (dice.below(5) > 0).then(|| dice.below(25)),
        }),
    }
}

fn campaigns(world: &World, dice: &mut Dice) -> Campaigns {
    let campaign = one(dice, world.campaigns.len());
    let template = |dice: &mut Dice| (dice.below(6) > 0).then(|| one(dice, world.templates.len()));
    let when = of(dice, &[When::Never, When::Past, When::Future, When::Future]);
    // A run that begins while its account is suspended goes on by itself once it is not: at a moment of its own.
    let begins = if world.accounts.iter().any(|account| account.suspended) {
        Command::Send
    } else {
        Command::Execute
    };
    let command = |dice: &mut Dice| {
        use Command::{Cancel, Delete, Pause, Resume, RetryFailed, Send, Unschedule};
        let held = [Pause, Resume, Cancel, Delete, RetryFailed, Unschedule];
        match dice.below(12) {
            0..2 => Send,
            2..6 => begins,
            _ => of(dice, &held),
        }
    };
    match dice.below(24) {
        0 => Campaigns::Contact(index(dice, 3)),
        1 if world.accounts[SHOP].phones.is_empty() => Campaigns::Contact(0),
        1..4 => Campaigns::Create {
            template: template(dice),
            when,
        },
        4..7 => Campaigns::Update {
            campaign,
            change: match dice.below(5) {
                0 => Change::Name(""),
                1 => Change::Name("Oferta nova"),
                2 => Change::Time(when),
                _ => Change::Template(template(dice)),
            },
        },
        7..10 => Campaigns::Schedule { campaign, when },
        10..20 => Campaigns::Command(campaign, command(dice)),
        20..22 => Campaigns::Get(campaign),
        22 => Campaigns::List,
        _ => Campaigns::Stats(campaign),
    }
}
