//! Invites and members.

use serde_json::{Value, json};

use super::exchange::{
    Action, Expected, ModelResult, call, created, cursor_page, denied, forbidden, invalid, no_content, not_found, ok,
};
use super::state::{Access, Bug, ModelState, ROOT, Role};

#[derive(Clone, Debug)]
pub(super) enum Team {
    Invite {
        user: usize,
        /// Whether the address is in upper case.
        upper: bool,
        role: &'static str,
    },
    ListInvites,
    Revoke(usize),
    Accept(usize),
    /// The invite expires.
    Expire(usize),
    ListMembers,
    SetRole {
        user: usize,
        role: &'static str,
    },
    Remove(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Invite {
    pub(super) account: usize,
    pub(super) user: usize,
    upper: bool,
    role: Role,
    pub(super) status: &'static str,
    expired: bool,
}

fn email(user: usize, upper: bool) -> String {
    let kind = if upper { "upper" } else { "email" };
    format!("<{kind}:{user}>")
}

impl Team {
    pub(super) fn action(&self, caller: usize, account: usize) -> Action {
        let request = match self {
            Self::Invite { user, upper, role } => call(caller, account, "POST", "/api/team/invites")
                .with(json!({ "email": email(*user, *upper), "role": role })),
            Self::ListInvites => call(caller, account, "GET", "/api/team/invites?limit=100"),
            Self::Revoke(invite) => call(
                caller,
                account,
                "DELETE",
                format!("/api/team/invites/<invite:{invite}>"),
            ),
            Self::Accept(invite) => call(caller, account, "POST", "/api/auth/accept-invite")
                .with(json!({ "token": format!("<token:{invite}>") })),
            Self::Expire(invite) => {
                return Action::Sql(format!(
                    "UPDATE team_invites SET expires_at = now() WHERE id = '<invite:{invite}>'"
                ));
            }
            Self::ListMembers => call(caller, account, "GET", "/api/team/members?limit=100"),
            Self::SetRole { user, role } => {
                call(caller, account, "PUT", format!("/api/team/members/<user:{user}>")).with(json!({ "role": role }))
            }
            Self::Remove(user) => call(caller, account, "DELETE", format!("/api/team/members/<user:{user}>")),
        };
        Action::Call(request)
    }
}

impl ModelState {
    pub(super) fn team(&mut self, caller: usize, account: usize, act: &Team) -> ModelResult {
        match *act {
            Team::Invite { user, upper, role } => self.invite(caller, account, (user, upper), role),
            Team::ListInvites => {
                let (account, _) = self.check_access(caller, account, Access::Manage)?;
                let numbered = self.invites.iter().enumerate().rev();
                cursor_page(
                    numbered
                        .filter(|(_, invite)| invite.account == account)
                        .map(invite_json)
                        .collect(),
                )
            }
            Team::Revoke(invite) => self.revoke(caller, account, invite),
            Team::Accept(invite) => self.accept(caller, invite),
            Team::Expire(invite) => {
                if let Some(invite) = self.invites.get_mut(invite) {
                    invite.expired = true;
                }
                ok(Value::Null)
            }
            Team::ListMembers => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let team = self
                    .members
                    .iter()
                    .filter(|member| member.account == account && !member.is_support);
                let member_json =
                    |user: usize, role: Role| json!({ "user_id": format!("<user:{user}>"), "role": role.as_str() });
                cursor_page(team.map(|member| member_json(member.user, member.role)).collect())
            }
            Team::SetRole { user, role } => self.set_role(caller, account, user, role),
            Team::Remove(user) => self.remove(caller, account, user),
        }
    }

    /// A new invite to an address revokes the pending one. Only an owner may invite an owner.
    fn invite(&mut self, caller: usize, account: usize, (user, upper): (usize, bool), role: &str) -> ModelResult {
        let (account, own) = self.check_access(caller, account, Access::Manage)?;
        let role = Role::parse(role).ok_or(invalid(&["role"]))?;
        if role == Role::Owner && own != Role::Owner {
            return Err(denied());
        }
        let former = |invite: &&mut Invite| (invite.account, invite.user, invite.status) == (account, user, "pending");
        if !self.has(Bug::FormerInviteStaysPending) {
            for invite in self.invites.iter_mut().filter(former) {
                invite.status = "revoked";
            }
        }
        self.invites.push(Invite {
            account,
            user,
            upper,
            role,
            status: "pending",
            expired: false,
        });
        let number = self.invites.len() - 1;
        let mut invite = invite_json((number, &self.invites[number]));
        invite["token"] = json!(format!("<token:{number}>"));
        created(invite)
    }

    fn revoke(&mut self, caller: usize, account: usize, invite: usize) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Manage)?;
        let invite = self.invites.get_mut(invite).filter(|invite| invite.account == account);
        let invite = invite
            .filter(|invite| invite.status == "pending")
            .ok_or_else(not_found)?;
        invite.status = "revoked";
        no_content()
    }

    /// Checks in the published order: the invite is pending, not expired, the caller's, and the caller is not a member.
    /// A support membership is replaced.
    fn accept(&mut self, caller: usize, number: usize) -> ModelResult {
        let accepts_expired = self.has(Bug::ExpiredInviteIsAccepted);
        let invite = self.invites.get_mut(number).filter(|invite| invite.status == "pending");
        let invite = invite.ok_or_else(not_found)?;
        if invite.expired && !accepts_expired {
            invite.status = "expired";
            return Err(invalid(&["token"]));
        }
        let (account, role) = (invite.account, invite.role);
        if invite.user != caller {
            return Err(forbidden());
        }
        if self.team_role(account, caller).is_some() {
            return Err(invalid(&["token"]));
        }
        self.invites[number].status = "accepted";
        // Accepting sets the cookie if it names no account of the administrator.
        let active = self
            .cookies
            .active
            .filter(|active| self.membership(*active, ROOT).is_some());
        if caller == ROOT && active.is_none() {
            self.cookies.active = Some(account);
        }
        self.remove_member(account, caller);
        self.add_member(account, caller, role, false);
        ok(json!({ "message": "*", "account_id": format!("<account:{account}>"), "role": role.as_str() }))
    }

    /// Only an owner may make or change an owner. The last owner keeps the role.
    fn set_role(&mut self, caller: usize, account: usize, user: usize, role: &str) -> ModelResult {
        let (account, own) = self.check_access(caller, account, Access::Manage)?;
        let role = Role::parse(role).ok_or(invalid(&["role"]))?;
        if role == Role::Owner && own != Role::Owner {
            return Err(denied());
        }
        self.check_may_change(account, own, user)?;
        if role != Role::Owner {
            self.check_not_last_owner(account, user, &["role"])?;
        }
        for member in &mut self.members {
            if (member.account, member.user) == (account, user) {
                member.role = role;
            }
        }
        ok(json!({ "user_id": format!("<user:{user}>"), "role": role.as_str() }))
    }

    fn remove(&mut self, caller: usize, account: usize, user: usize) -> ModelResult {
        let (account, own) = self.check_access(caller, account, Access::Manage)?;
        self.check_may_change(account, own, user)?;
        self.check_not_last_owner(account, user, &["user_id"])?;
        self.remove_member(account, user);
        no_content()
    }

    fn check_may_change(&self, account: usize, own: Role, user: usize) -> Result<(), Expected> {
        let role = self.team_role(account, user).ok_or_else(not_found)?;
        match role == Role::Owner && own != Role::Owner {
            true => Err(denied()),
            false => Ok(()),
        }
    }

    fn check_not_last_owner(
        &self,
        account: usize,
        user: usize,
        fields: &'static [&'static str],
    ) -> Result<(), Expected> {
        let owners = self
            .members
            .iter()
            .filter(|member| member.account == account && member.role == Role::Owner);
        let is_owner = self.team_role(account, user) == Some(Role::Owner);
        match is_owner && owners.count() == 1 && !self.has(Bug::LastOwnerMayLeave) {
            true => Err(invalid(fields)),
            false => Ok(()),
        }
    }
}

fn invite_json((number, invite): (usize, &Invite)) -> Value {
    json!({ "id": format!("<invite:{number}>"), "email": email(invite.user, invite.upper), "role": invite.role.as_str(),
            "status": invite.status })
}
