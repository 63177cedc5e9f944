//! What the model knows: people, accounts, who belongs where, and what the machines have made. Written from the published
//! interface and the decisions; nothing in it asks the product.

use std::collections::HashSet;

use super::campaigns::Campaign;
use super::exchange::{Expected, denied};
use super::steps::Scenario;
use super::subscriptions::Subscription;
use super::team::Invite;
use super::templates::{Remote, Template};

/// The people of a history.
pub(super) const ANA: usize = 0;
pub(super) const ADMIN: usize = 1;
pub(super) const MEMBER: usize = 2;
pub(super) const VIEWER: usize = 3;
pub(super) const FOREIGNER: usize = 4;
pub(super) const GUEST: usize = 5;
pub(super) const OTHER_GUEST: usize = 6;
/// The platform's administrator, who keeps cookies.
pub(super) const ROOT: usize = 7;
pub(super) const PEOPLE: usize = 8;

/// The account that most of it is about, the foreigner's, and the administrator's own, where there is one.
pub(super) const SHOP: usize = 0;
pub(super) const FOREIGN: usize = 1;
pub(super) const OWN: usize = 2;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Owner,
    Admin,
    Member,
    Viewer,
}

impl Role {
    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "owner" => Some(Self::Owner),
            "admin" => Some(Self::Admin),
            "member" => Some(Self::Member),
            "viewer" => Some(Self::Viewer),
            _ => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }
}

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Manage,
}

/// Who belongs where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) account: usize,
    pub(super) person: usize,
    pub(super) role: Role,
    /// Lent for support.
    pub(super) lent: bool,
}

/// An account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) suspended: bool,
    pub(super) plan: &'static str,
    /// The plan that an administrator granted.
    pub(super) granted: Option<&'static str>,
    /// Whether it has a number of the messaging platform.
    pub(super) connected: bool,
    /// Which of the few phones its contacts have.
    pub(super) phones: Vec<usize>,
    /// Messages of this month.
    pub(super) messages: u64,
}

/// What the administrator's cookies say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cookies {
    pub(super) active: Option<usize>,
    /// The supported account, and where to return to.
    pub(super) support: Option<(usize, Option<usize>)>,
}

/// One mistake that the model makes, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    LastOwnerMayGo,
    FormerInviteStays,
    OverdueInviteIsTaken,
    ViewerWrites,
    EditKeepsTheVerdict,
    StopLeavesTheMembership,
    SupportStopsAtSuspension,
    SecondSubscription,
    EventsCountTwice,
    DowngradeIgnoresTheTeam,
    SendingMayBeDeleted,
    PlanIsNotLookedAt,
}

/// Everything.
#[derive(Clone, Debug)]
pub(super) struct ModelState {
    pub(super) bug: Option<Bug>,
    pub(super) accounts: Vec<Account>,
    /// In the order of joining.
    pub(super) members: Vec<Membership>,
    pub(super) cookies: Cookies,
    pub(super) invites: Vec<Invite>,
    pub(super) templates: Vec<Template>,
    /// What the messaging platform keeps.
    pub(super) remote: Vec<Remote>,
    pub(super) subscriptions: Vec<Subscription>,
    /// The keys of the gateway's events that were heard.
    pub(super) heard: HashSet<String>,
    pub(super) campaigns: Vec<Campaign>,
}

impl ModelState {
    /// The shop with its team, the foreigner's account, and one of the administrator's own, or none; an administrator
    /// may have forgotten which account they were in.
    pub(super) fn new(bug: Option<Bug>, scenario: Scenario) -> Self {
        let account = Account {
            suspended: false,
            plan: "free",
            granted: None,
            connected: false,
            phones: vec![],
            messages: 0,
        };
        let roles = [
            (SHOP, ANA, Role::Owner, true),
            (FOREIGN, FOREIGNER, Role::Owner, true),
            (OWN, ROOT, Role::Owner, scenario.has_own),
            (SHOP, ADMIN, Role::Admin, true),
            (SHOP, MEMBER, Role::Member, true),
            (SHOP, VIEWER, Role::Viewer, true),
            (SHOP, GUEST, Role::Member, scenario.is_crowded),
            (SHOP, OTHER_GUEST, Role::Viewer, scenario.is_crowded),
        ];
        let members = roles.into_iter().filter(|(_, _, _, is_there)| *is_there);
        let members = members.map(|(account, person, role, _)| Membership {
            account,
            person,
            role,
            lent: false,
        });
        Self {
            bug,
            accounts: vec![account; if scenario.has_own { 3 } else { 2 }],
            members: members.collect(),
            cookies: Cookies {
                active: (scenario.has_own && scenario.remembers).then_some(OWN),
                support: None,
            },
            invites: vec![],
            templates: vec![],
            remote: vec![],
            subscriptions: vec![],
            heard: HashSet::new(),
            campaigns: vec![],
        }
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn membership(&self, account: usize, person: usize) -> Option<Membership> {
        let mut members = self.members.iter();
        members
            .find(|member| (member.account, member.person) == (account, person))
            .copied()
    }

    /// The role of somebody who is of the team, which nobody is for support.
    pub(super) fn of_team(&self, account: usize, person: usize) -> Option<Role> {
        let member = self.membership(account, person)?;
        (!member.lent).then_some(member.role)
    }

    pub(super) fn leave(&mut self, account: usize, person: usize) {
        self.members
            .retain(|member| (member.account, member.person) != (account, person));
    }

    pub(super) fn join(&mut self, account: usize, person: usize, role: Role, lent: bool) {
        self.members.push(Membership {
            account,
            person,
            role,
            lent,
        });
    }

    pub(super) fn team_size(&self, account: usize) -> usize {
        let of_team = |member: &&Membership| member.account == account && !member.lent;
        self.members.iter().filter(of_team).count()
    }

    /// The account that a request is about: whoever keeps cookies is in the one that they name, else in the oldest of
    /// theirs; everybody else names it.
    pub(super) fn context(&self, who: usize, account: usize) -> Option<usize> {
        if who != ROOT {
            return Some(account);
        }
        let oldest = || self.members.iter().find(|member| member.person == ROOT);
        self.cookies.active.or_else(|| oldest().map(|member| member.account))
    }

    /// The account and the role of whoever asks, where the route lets them in.
    pub(super) fn enter(&self, who: usize, account: usize, access: Access) -> Result<(usize, Role), Expected> {
        let account = self.context(who, account).ok_or_else(denied)?;
        let member = self.membership(account, who).ok_or_else(denied)?;
        let known = self.accounts.get(account).ok_or_else(denied)?;
        let in_support = self.cookies.support.is_some_and(|(supported, _)| supported == account);
        let supports = who == ROOT && (member.lent || in_support) && !self.has(Bug::SupportStopsAtSuspension);
        if known.suspended && !supports {
            return Err(denied());
        }
        let allowed = match access {
            Access::Read => true,
            Access::Write => member.role != Role::Viewer || self.has(Bug::ViewerWrites),
            Access::Manage => matches!(member.role, Role::Owner | Role::Admin),
        };
        if allowed {
            Ok((account, member.role))
        } else {
            Err(denied())
        }
    }
}
