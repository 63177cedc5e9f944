//! Random steps: mostly plausible operations by permitted users on existing resources, sometimes invalid ones.

use super::campaigns::{Campaigns, Change, Command, When};
use super::exchange::{Action, Cookie, Exchange};
use super::state::{
    ADMIN, ANA, FOREIGN, FOREIGNER, GUEST, MEMBER, ModelState, ROOT, SECOND_GUEST, SHOP, USERS, VIEWER,
};
use super::subscriptions::{Event, Subscriptions};
use super::support::Support;
use super::team::Team;
use super::templates::Templates;
use crate::harness::rng::TestRng;

/// One step: the caller, the account, and the operation.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) caller: usize,
    pub(super) account: usize,
    pub(super) act: Act,
}

/// An operation of one area.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Team(Team),
    Templates(Templates),
    Support(Support),
    Subscriptions(Subscriptions),
    Campaigns(Campaigns),
}

// The areas of the API that the model covers.
pub(super) const TEAM: u64 = 0;
pub(super) const TEMPLATES: u64 = 1;
pub(super) const SUPPORT: u64 = 2;
pub(super) const SUBSCRIPTIONS: u64 = 3;
pub(super) const CAMPAIGNS: u64 = 4;
const AREAS: u64 = 5;

/// The random settings of a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// The areas from which most steps are drawn.
    pub(super) areas: [u64; 2],
    /// Whether a WhatsApp number may be connected. If not, an approved template exists from the start.
    pub(super) may_connect_number: bool,
    /// Whether the platform administrator also owns an account.
    pub(super) has_own_account: bool,
    /// Whether the administrator's cookie names their own account.
    pub(super) has_active_cookie: bool,
    has_contacts: bool,
    /// Whether the shop's team is too large for the smallest plans.
    pub(super) has_large_team: bool,
}

impl Scenario {
    pub(super) fn of(rng: &mut TestRng) -> Self {
        Self {
            areas: [rng.below(AREAS), rng.below(AREAS)],
            may_connect_number: rng.below(2) == 0,
            has_own_account: rng.below(2) == 0,
            has_active_cookie: rng.below(2) == 0,
            has_contacts: rng.below(3) > 0,
            has_large_team: rng.below(3) == 0,
        }
    }

    /// The steps at the start of the history.
    pub(super) fn initial_steps(self) -> Vec<Step> {
        let by_ana = |act| Step {
            caller: ANA,
            account: SHOP,
            act,
        };
        let template = Templates::Create { name: 0, valid: true };
        let approved = [template, Templates::ApproveBySql(0)].map(Act::Templates);
        let approved = approved.into_iter().filter(|_| !self.may_connect_number);
        let contact = self.has_contacts.then_some(Act::Campaigns(Campaigns::Contact(0)));
        approved.chain(contact).map(by_ana).collect()
    }
}

impl Step {
    /// Applies the step to the model. Returns the action, and the response that the model expects.
    pub(super) fn exchange(&self, state: &mut ModelState) -> Exchange {
        let (caller, account) = (self.caller, self.account);
        let action: Action = match &self.act {
            Act::Team(act) => act.action(caller, account),
            Act::Templates(act) => act.action(caller, account, state),
            Act::Support(act) => act.action(caller, account),
            Act::Subscriptions(act) => act.action(caller, account),
            Act::Campaigns(act) => act.action(caller, account),
        };
        let result = match &self.act {
            Act::Team(act) => state.team(caller, account, act),
            Act::Templates(act) => state.templates(caller, account, act),
            Act::Support(act) => state.support(caller, act),
            Act::Subscriptions(act) => state.subscriptions(caller, account, act),
            Act::Campaigns(act) => state.campaigns(caller, account, act),
        };
        Exchange {
            action,
            expected: result.unwrap_or_else(|error| error),
        }
    }

    pub(super) fn next(scenario: Scenario, state: &ModelState, rng: &mut TestRng) -> Self {
        let machine = match rng.below(10) {
            0..5 => scenario.areas[0],
            5..8 => scenario.areas[1],
            _ => rng.below(AREAS),
        };
        let act = match machine {
            TEAM => Act::Team(team(state, rng)),
            TEMPLATES => Act::Templates(templates(scenario, state, rng)),
            SUPPORT => Act::Support(support(state, rng)),
            SUBSCRIPTIONS => Act::Subscriptions(subscriptions(state, rng)),
            _ => Act::Campaigns(campaigns(state, rng)),
        };
        let caller = match &act {
            Act::Team(Team::Accept(invite)) if rng.below(5) > 0 => {
                state.invites.get(*invite).map_or(GUEST, |invite| invite.user)
            }
            Act::Support(Support::ListAccounts) => random_user(rng),
            Act::Support(_) if rng.below(12) > 0 => ROOT,
            _ => random_caller(state, rng),
        };
        let stranger = caller == FOREIGNER;
        let account = match rng.below(12) {
            0 => FOREIGN,
            1 => SHOP,
            _ if stranger => FOREIGN,
            _ => SHOP,
        };
        Self { caller, account, act }
    }
}

fn pick<T: Copy>(rng: &mut TestRng, choices: &[T]) -> T {
    choices[random_index(rng, choices.len())]
}

fn random_index(rng: &mut TestRng, bound: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(bound).unwrap())).unwrap()
}

fn random_user(rng: &mut TestRng) -> usize {
    random_index(rng, USERS)
}

/// A random caller, mostly one with enough rights.
fn random_caller(state: &ModelState, rng: &mut TestRng) -> usize {
    let supports = state.cookies.support.is_some_and(|(account, _)| account == SHOP);
    match rng.below(20) {
        0..8 => ANA,
        8..11 => ADMIN,
        11..13 => MEMBER,
        13 => VIEWER,
        14 => FOREIGNER,
        15 => GUEST,
        16 => SECOND_GUEST,
        17 => ROOT,
        _ if supports => ROOT,
        _ => ADMIN,
    }
}

/// The number of a resource: mostly one of the newest, sometimes one that does not exist.
fn random_resource(rng: &mut TestRng, count: usize) -> usize {
    match rng.below(14) {
        0 => count,
        1..5 => random_index(rng, count.max(1)),
        _ => count.saturating_sub(1 + random_index(rng, 3)),
    }
}

const ROLES: [&str; 9] = [
    "owner", "owner", "admin", "admin", "member", "member", "viewer", "viewer", "king",
];

fn team(state: &ModelState, rng: &mut TestRng) -> Team {
    let invites = state.invites.len();
    let guest = |rng: &mut TestRng| pick(rng, &[GUEST, GUEST, SECOND_GUEST, ROOT, FOREIGNER, MEMBER]);
    match rng.below(20) {
        0..5 => Team::Invite {
            user: guest(rng),
            upper: rng.below(3) == 0,
            role: pick(rng, &ROLES),
        },
        5..9 => Team::Accept(random_resource(rng, invites)),
        9 => Team::ListInvites,
        10 => Team::Revoke(random_resource(rng, invites)),
        11 => Team::Expire(random_resource(rng, invites)),
        12..14 => Team::ListMembers,
        14..18 => Team::SetRole {
            user: random_user(rng),
            role: pick(rng, &ROLES),
        },
        _ => Team::Remove(random_user(rng)),
    }
}

const TEMPLATE_EVENTS: [&str; 6] = ["APPROVED", "APPROVED", "REJECTED", "PAUSED", "DISABLED", "REINSTATED"];
const LISTED_STATUSES: [&str; 7] = ["", "draft", "pending", "approved", "rejected", "paused", "disabled"];

fn templates(scenario: Scenario, state: &ModelState, rng: &mut TestRng) -> Templates {
    let template = random_resource(rng, state.templates.len());
    let may_connect_number = scenario.may_connect_number && !state.accounts[SHOP].connected;
    match rng.below(20) {
        0..3 if may_connect_number => Templates::Connect,
        0..4 => Templates::Create {
            name: random_index(rng, 4),
            valid: rng.below(10) > 0,
        },
        4..7 => Templates::Edit {
            template,
            text: rng.below(1_000_000),
            valid: rng.below(10) > 0,
        },
        7..11 => Templates::Submit(template),
        11..16 => Templates::ReviewUpdate {
            template,
            event: pick(rng, &TEMPLATE_EVENTS),
        },
        16 => Templates::Delete(template),
        17..19 => Templates::Get(template),
        _ => Templates::List(pick(rng, &LISTED_STATUSES)),
    }
}

const GRANTED_PLANS: [Option<&str>; 6] = [
    Some("free"),
    Some("starter"),
    Some("growth"),
    Some("scale"),
    Some("gold"),
    None,
];

fn support(state: &ModelState, rng: &mut TestRng) -> Support {
    let account = pick(
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
        6 => Support::Stop(pick(rng, &[Cookie::Missing, Cookie::Forged])),
        7..11 => Support::ListAccounts,
        // Favors reactivation, since a suspended account rejects most operations.
        11..15 if suspended => act("reactivate", None),
        11 => act("suspend", None),
        12 => act("close", None),
        _ => act("change_plan", pick(rng, &GRANTED_PLANS)),
    }
}

const REQUESTED_PLANS: [&str; 8] = [
    "starter", "starter", "starter", "growth", "growth", "scale", "free", "gold",
];
const EVENT_KINDS: [&str; 9] = [
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
            plan: pick(rng, &REQUESTED_PLANS),
            cycle: pick(rng, &["MONTHLY", "YEARLY"]),
            billing_type: pick(rng, &["PIX", "BOLETO", "CREDIT_CARD"]),
        },
        4..7 => Subscriptions::Get,
        7..10 => Subscriptions::Change {
            plan: pick(rng, &REQUESTED_PLANS),
            cycle: pick(rng, &[None, Some("MONTHLY"), Some("YEARLY")]),
        },
        10..12 => Subscriptions::Cancel,
        12 => Subscriptions::History,
        _ => Subscriptions::Event(Event {
            subscription: random_resource(rng, state.subscriptions.len()),
            payment: random_index(rng, 3),
            kind: pick(rng, &EVENT_KINDS),
            second: (rng.below(2) == 0).then(|| rng.below(8)),
            id: (rng.below(5) > 0).then(|| rng.below(25)),
        }),
    }
}

fn campaigns(state: &ModelState, rng: &mut TestRng) -> Campaigns {
    let campaign = random_resource(rng, state.campaigns.len());
    let template = |rng: &mut TestRng| (rng.below(6) > 0).then(|| random_resource(rng, state.templates.len()));
    let when = pick(rng, &[When::Never, When::Past, When::Future, When::Future]);
    // A run of a suspended account would resume in the background after reactivation, so its start is only queued.
    let start_command = if state.accounts.iter().any(|account| account.suspended) {
        Command::Send
    } else {
        Command::Execute
    };
    let command = |rng: &mut TestRng| {
        use Command::{Cancel, Delete, Pause, Resume, RetryFailed, Send, Unschedule};
        let commands = [Pause, Resume, Cancel, Delete, RetryFailed, Unschedule];
        match rng.below(12) {
            0..2 => Send,
            2..6 => start_command,
            _ => pick(rng, &commands),
        }
    };
    match rng.below(24) {
        0 => Campaigns::Contact(random_index(rng, 3)),
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
