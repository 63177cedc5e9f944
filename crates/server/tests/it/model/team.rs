//! Invites and members.

use serde_json::{Value, json};

use super::exchange::{Ask, Expected, Verdict, ask, created, denied, forbidden, gone, invalid, missing, ok, slice};
use super::state::{Access, Bug, ModelState, ROOT, Role};

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum Team {
    Invite {
        person: usize,
        /// Whether the address is written in capitals.
        upper: bool,
        role: &'static str,
    },
    Invites,
    Revoke(usize),
    Accept(usize),
    /// Its time is over.
    Expire(usize),
    Members,
    SetRole {
        person: usize,
        role: &'static str,
    },
    Remove(usize),
}

/// An invite.
#[derive(Clone, Debug)]
pub(super) struct Invite {
    pub(super) account: usize,
    pub(super) person: usize,
    upper: bool,
    role: Role,
    pub(super) status: &'static str,
    over: bool,
}

fn email(person: usize, upper: bool) -> String {
    let kind = if upper { "upper" } else { "email" };
    format!("<{kind}:{person}>")
}

impl Team {
    pub(super) fn ask(&self, who: usize, account: usize) -> Ask {
        let call = match self {
            Self::Invite { person, upper, role } => ask(who, account, "POST", "/api/team/invites")
                .with(json!({ "email": email(*person, *upper), "role": role })),
            Self::Invites => ask(who, account, "GET", "/api/team/invites?limit=100"),
            Self::Revoke(invite) => ask(who, account, "DELETE", format!("/api/team/invites/<invite:{invite}>")),
            Self::Accept(invite) => ask(who, account, "POST", "/api/auth/accept-invite")
                .with(json!({ "token": format!("<token:{invite}>") })),
            Self::Expire(invite) => {
                return Ask::Sql(format!(
                    "UPDATE team_invites SET expires_at = now() WHERE id = '<invite:{invite}>'"
                ));
            }
            Self::Members => ask(who, account, "GET", "/api/team/members?limit=100"),
            Self::SetRole { person, role } => {
                ask(who, account, "PUT", format!("/api/team/members/<person:{person}>")).with(json!({ "role": role }))
            }
            Self::Remove(person) => ask(who, account, "DELETE", format!("/api/team/members/<person:{person}>")),
        };
        Ask::Call(call)
    }
}

impl ModelState {
    pub(super) fn team(&mut self, who: usize, account: usize, act: &Team) -> Verdict {
        match *act {
            Team::Invite { person, upper, role } => self.invite(who, account, (person, upper), role),
            Team::Invites => {
                let (account, _) = self.enter(who, account, Access::Manage)?;
                let numbered = self.invites.iter().enumerate().rev();
                slice(
                    numbered
                        .filter(|(_, invite)| invite.account == account)
                        .map(shown)
                        .collect(),
                )
            }
            Team::Revoke(invite) => self.revoke(who, account, invite),
            Team::Accept(invite) => self.accept(who, invite),
            Team::Expire(invite) => {
                if let Some(invite) = self.invites.get_mut(invite) {
                    invite.over = true;
                }
                ok(Value::Null)
            }
            Team::Members => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let team = self
                    .members
                    .iter()
                    .filter(|member| member.account == account && !member.lent);
                let shown =
                    |person: usize, role: Role| json!({ "user_id": format!("<person:{person}>"), "role": role.word() });
                slice(team.map(|member| shown(member.person, member.role)).collect())
            }
            Team::SetRole { person, role } => self.set_role(who, account, person, role),
            Team::Remove(person) => self.remove(who, account, person),
        }
    }

    /// A new invite to an address revokes the pending one; a member is not invited; only an owner makes an owner.
    fn invite(&mut self, who: usize, account: usize, (person, upper): (usize, bool), role: &str) -> Verdict {
        let (account, own) = self.enter(who, account, Access::Manage)?;
        let role = Role::of(role).ok_or(invalid(&["role"]))?;
        if role == Role::Owner && own != Role::Owner {
            return Err(denied());
        }
        let former =
            |invite: &&mut Invite| (invite.account, invite.person, invite.status) == (account, person, "pending");
        if !self.has(Bug::FormerInviteStays) {
            for invite in self.invites.iter_mut().filter(former) {
                invite.status = "revoked";
            }
        }
        self.invites.push(Invite {
            account,
            person,
            upper,
            role,
            status: "pending",
            over: false,
        });
        let number = self.invites.len() - 1;
        let mut made = shown((number, &self.invites[number]));
        made["token"] = json!(format!("<token:{number}>"));
        created(made)
    }

    fn revoke(&mut self, who: usize, account: usize, invite: usize) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Manage)?;
        let invite = self.invites.get_mut(invite).filter(|invite| invite.account == account);
        let invite = invite.filter(|invite| invite.status == "pending").ok_or_else(missing)?;
        invite.status = "revoked";
        gone()
    }

    /// In the published order: pending, in time, whose, and not yet a member. Whoever is there for support joins.
    fn accept(&mut self, who: usize, number: usize) -> Verdict {
        let takes_late = self.has(Bug::OverdueInviteIsTaken);
        let invite = self.invites.get_mut(number).filter(|invite| invite.status == "pending");
        let invite = invite.ok_or_else(missing)?;
        if invite.over && !takes_late {
            invite.status = "expired";
            return Err(invalid(&["token"]));
        }
        let (account, role) = (invite.account, invite.role);
        if invite.person != who {
            return Err(forbidden());
        }
        if self.of_team(account, who).is_some() {
            return Err(invalid(&["token"]));
        }
        self.invites[number].status = "accepted";
        // The cookie is set for those who had none that is good for anything.
        let active = self
            .cookies
            .active
            .filter(|active| self.membership(*active, ROOT).is_some());
        if who == ROOT && active.is_none() {
            self.cookies.active = Some(account);
        }
        self.leave(account, who);
        self.join(account, who, role, false);
        ok(json!({ "message": "*", "account_id": format!("<account:{account}>"), "role": role.word() }))
    }

    /// Only an owner makes or changes an owner, and the last one stays.
    fn set_role(&mut self, who: usize, account: usize, person: usize, role: &str) -> Verdict {
        let (account, own) = self.enter(who, account, Access::Manage)?;
        let role = Role::of(role).ok_or(invalid(&["role"]))?;
        if role == Role::Owner && own != Role::Owner {
            return Err(denied());
        }
        self.may_change(account, own, person)?;
        if role != Role::Owner {
            self.is_not_last_owner(account, person, &["role"])?;
        }
        for member in &mut self.members {
            if (member.account, member.person) == (account, person) {
                member.role = role;
            }
        }
        ok(json!({ "user_id": format!("<person:{person}>"), "role": role.word() }))
    }

    fn remove(&mut self, who: usize, account: usize, person: usize) -> Verdict {
        let (account, own) = self.enter(who, account, Access::Manage)?;
        self.may_change(account, own, person)?;
        self.is_not_last_owner(account, person, &["user_id"])?;
        self.leave(account, person);
        gone()
    }

    fn may_change(&self, account: usize, own: Role, person: usize) -> Result<(), Expected> {
        let theirs = self.of_team(account, person).ok_or_else(missing)?;
        match theirs == Role::Owner && own != Role::Owner {
            true => Err(denied()),
            false => Ok(()),
        }
    }

    fn is_not_last_owner(
        &self,
        account: usize,
        person: usize,
        fields: &'static [&'static str],
    ) -> Result<(), Expected> {
        let owners = self
            .members
            .iter()
            .filter(|member| member.account == account && member.role == Role::Owner);
        let is_owner = self.of_team(account, person) == Some(Role::Owner);
        match is_owner && owners.count() == 1 && !self.has(Bug::LastOwnerMayGo) {
            true => Err(invalid(fields)),
            false => Ok(()),
        }
    }
}

fn shown((number, invite): (usize, &Invite)) -> Value {
    json!({ "id": format!("<invite:{number}>"), "email": email(invite.person, invite.upper), "role": invite.role.word(),
            "status": invite.status })
}
