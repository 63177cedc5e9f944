//! The model's state: users, accounts, memberships and the resources of each area. It is written from the published
//! interface and the decisions, and never reads from the server.

use std::collections::HashSet;

use super::campaigns::Campaign;
use super::exchange::{Expected, denied};
use super::steps::Scenario;
use super::subscriptions::Subscription;
use super::team::Invite;
use super::templates::{Template, WhatsappTemplate};

// The users of a history.
pub(super) const ANA: usize = 0;
pub(super) const ADMIN: usize = 1;
pub(super) const MEMBER: usize = 2;
pub(super) const VIEWER: usize = 3;
pub(super) const FOREIGNER: usize = 4;
pub(super) const GUEST: usize = 5;
pub(super) const SECOND_GUEST: usize = 6;
/// The platform administrator, who uses cookies.
pub(super) const ROOT: usize = 7;
pub(super) const USERS: usize = 8;

// The account of most steps, the foreigner's account, and the administrator's own account if it exists.
pub(super) const SHOP: usize = 0;
pub(super) const FOREIGN: usize = 1;
pub(super) const OWN: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Owner,
    Admin,
    Member,
    Viewer,
}

impl Role {
    pub(super) fn parse(value: &str) -> Option<Self> {
        match value {
            "owner" => Some(Self::Owner),
            "admin" => Some(Self::Admin),
            "member" => Some(Self::Member),
            "viewer" => Some(Self::Viewer),
            _ => None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }
}

/// The rights that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Manage,
}

/// A user's role in an account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) account: usize,
    pub(super) user: usize,
    pub(super) role: Role,
    /// Whether support mode created it.
    pub(super) is_support: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) suspended: bool,
    pub(super) plan: &'static str,
    /// The plan that an administrator granted.
    pub(super) granted: Option<&'static str>,
    /// Whether a WhatsApp number is connected.
    pub(super) connected: bool,
    /// The test phones of its contacts.
    pub(super) phones: Vec<usize>,
    /// Messages sent this month.
    pub(super) messages: u64,
}

/// The administrator's cookies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cookies {
    pub(super) active: Option<usize>,
    /// The supported account, and the account to which the administrator returns.
    pub(super) support: Option<(usize, Option<usize>)>,
}

/// A bug that is planted in the model to check that the test finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    LastOwnerMayLeave,
    FormerInviteStaysPending,
    ExpiredInviteIsAccepted,
    ViewerMayWrite,
    EditKeepsReviewStatus,
    StopKeepsSupportMembership,
    SupportEndsAtSuspension,
    SecondSubscriptionIsAllowed,
    RepeatedEventsCount,
    DowngradeIgnoresTeamSize,
    SendingCampaignMayBeDeleted,
    PlanIsNotChecked,
}

#[derive(Clone, Debug)]
pub(super) struct ModelState {
    pub(super) bug: Option<Bug>,
    pub(super) accounts: Vec<Account>,
    /// In the order of joining.
    pub(super) members: Vec<Membership>,
    pub(super) cookies: Cookies,
    pub(super) invites: Vec<Invite>,
    pub(super) templates: Vec<Template>,
    /// The templates that WhatsApp stores.
    pub(super) remote: Vec<WhatsappTemplate>,
    pub(super) subscriptions: Vec<Subscription>,
    /// The keys of the gateway events that were applied.
    pub(super) applied_events: HashSet<String>,
    pub(super) campaigns: Vec<Campaign>,
}

impl ModelState {
    /// The initial state: the shop with its team, the foreigner's account, and perhaps an account of the administrator,
    /// which the administrator's cookie may name.
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
            (OWN, ROOT, Role::Owner, scenario.has_own_account),
            (SHOP, ADMIN, Role::Admin, true),
            (SHOP, MEMBER, Role::Member, true),
            (SHOP, VIEWER, Role::Viewer, true),
            (SHOP, GUEST, Role::Member, scenario.has_large_team),
            (SHOP, SECOND_GUEST, Role::Viewer, scenario.has_large_team),
        ];
        let members = roles.into_iter().filter(|(_, _, _, exists)| *exists);
        let members = members.map(|(account, user, role, _)| Membership {
            account,
            user,
            role,
            is_support: false,
        });
        Self {
            bug,
            accounts: vec![account; if scenario.has_own_account { 3 } else { 2 }],
            members: members.collect(),
            cookies: Cookies {
                active: (scenario.has_own_account && scenario.has_active_cookie).then_some(OWN),
                support: None,
            },
            invites: vec![],
            templates: vec![],
            remote: vec![],
            subscriptions: vec![],
            applied_events: HashSet::new(),
            campaigns: vec![],
        }
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn membership(&self, account: usize, user: usize) -> Option<Membership> {
        let mut members = self.members.iter();
        members
            .find(|member| (member.account, member.user) == (account, user))
            .copied()
    }

    /// The role of a team member. A support membership does not count.
    pub(super) fn team_role(&self, account: usize, user: usize) -> Option<Role> {
        let member = self.membership(account, user)?;
        (!member.is_support).then_some(member.role)
    }

    pub(super) fn remove_member(&mut self, account: usize, user: usize) {
        self.members
            .retain(|member| (member.account, member.user) != (account, user));
    }

    pub(super) fn add_member(&mut self, account: usize, user: usize, role: Role, is_support: bool) {
        self.members.push(Membership {
            account,
            user,
            role,
            is_support,
        });
    }

    pub(super) fn count_team(&self, account: usize) -> usize {
        let is_in_team = |member: &&Membership| member.account == account && !member.is_support;
        self.members.iter().filter(is_in_team).count()
    }

    /// The account of a request. For the administrator it is the one of the cookie, else their oldest. Other users name
    /// it in the request.
    pub(super) fn active_account(&self, caller: usize, account: usize) -> Option<usize> {
        if caller != ROOT {
            return Some(account);
        }
        let oldest = || self.members.iter().find(|member| member.user == ROOT);
        self.cookies.active.or_else(|| oldest().map(|member| member.account))
    }

    /// The access check: returns the caller's account and role, or the error.
    pub(super) fn check_access(
        &self,
        caller: usize,
        account: usize,
        access: Access,
    ) -> Result<(usize, Role), Expected> {
        let account = self.active_account(caller, account).ok_or_else(denied)?;
        let member = self.membership(account, caller).ok_or_else(denied)?;
        let state = self.accounts.get(account).ok_or_else(denied)?;
        let is_supported = self.cookies.support.is_some_and(|(supported, _)| supported == account);
        let is_in_support =
            caller == ROOT && (member.is_support || is_supported) && !self.has(Bug::SupportEndsAtSuspension);
        if state.suspended && !is_in_support {
            return Err(denied());
        }
        let allowed = match access {
            Access::Read => true,
            Access::Write => member.role != Role::Viewer || self.has(Bug::ViewerMayWrite),
            Access::Manage => matches!(member.role, Role::Owner | Role::Admin),
        };
        if allowed {
            Ok((account, member.role))
        } else {
            Err(denied())
        }
    }
}
