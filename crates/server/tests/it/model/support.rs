//! Platform administrators: support mode, and changes of any account.

use serde_json::{Value, json};

use super::exchange::{
    Action, Cookie, Expected, ModelResult, any_string, call, denied, internal_error, invalid, not_found, ok, unordered,
};
use super::state::{Bug, Cookies, ModelState, ROOT, Role};

#[derive(Clone, Debug)]
pub(super) enum Support {
    Start(usize),
    Stop(Cookie),
    /// `GET /api/accounts`: the caller's accounts and support mode.
    ListAccounts,
    Act {
        account: usize,
        action: &'static str,
        plan: Option<&'static str>,
    },
}

pub(super) const PLANS: [&str; 4] = ["free", "starter", "growth", "scale"];

impl Support {
    pub(super) fn action(&self, caller: usize, account: usize) -> Action {
        let request = match self {
            Self::Start(target) => call(
                caller,
                account,
                "POST",
                format!("/api/admin/accounts/<account:{target}>/support"),
            ),
            Self::Stop(cookie) => {
                let mut request = call(caller, account, "POST", "/api/admin/stop-support");
                request.cookie = *cookie;
                request
            }
            Self::ListAccounts => call(caller, account, "GET", "/api/accounts"),
            Self::Act {
                account: target,
                action,
                plan,
            } => {
                let path = format!("/api/admin/accounts/<account:{target}>/action");
                call(caller, account, "POST", path).with(json!({ "action": action, "plan": plan }))
            }
        };
        Action::Call(request)
    }
}

impl ModelState {
    pub(super) fn support(&mut self, caller: usize, act: &Support) -> ModelResult {
        match *act {
            Support::Start(target) => self.start_support(caller, target),
            Support::Stop(cookie) => self.stop_support(caller, cookie),
            Support::ListAccounts => ok(self.accounts_json(caller)),
            Support::Act { account, action, plan } => self.change_account(caller, account, action, plan),
        }
    }

    fn check_administrator(caller: usize) -> Result<(), Expected> {
        if caller == ROOT { Ok(()) } else { Err(denied()) }
    }

    /// Adds a support membership unless the administrator is a member. Leaves the account that was supported before,
    /// and keeps the account to return to.
    fn start_support(&mut self, caller: usize, target: usize) -> ModelResult {
        Self::check_administrator(caller)?;
        if target >= self.accounts.len() {
            return Err(not_found());
        }
        let before = self.cookies.support;
        let original = match before {
            Some((_, original)) => original,
            None => self.own_account(),
        };
        if let Some((left, _)) = before.filter(|(left, _)| *left != target) {
            self.remove_support_membership(left);
        }
        if self.membership(target, ROOT).is_none() {
            self.add_member(target, ROOT, Role::Admin, true);
        }
        self.cookies = Cookies {
            active: Some(target),
            support: Some((target, original)),
        };
        ok(json!({ "account_id": format!("<account:{target}>"), "account_name": format!("<tag> {target}") }))
    }

    /// The administrator's own active account: the one of the cookie, else the oldest.
    fn own_account(&self) -> Option<usize> {
        let own = |account: &usize| self.team_role(*account, ROOT).is_some();
        let oldest = || self.members.iter().find(|member| member.user == ROOT);
        let named = self.cookies.active.filter(own);
        named.or_else(|| oldest().map(|member| member.account).filter(own))
    }

    fn remove_support_membership(&mut self, account: usize) {
        self.members
            .retain(|member| !(member.is_support && (member.account, member.user) == (account, ROOT)));
    }

    /// Removes a support membership but not a team membership. Returns to the original account if the administrator is
    /// still a member.
    fn stop_support(&mut self, caller: usize, cookie: Cookie) -> ModelResult {
        Self::check_administrator(caller)?;
        let mode = self.cookies.support.filter(|_| cookie == Cookie::Own);
        let (supported, original) = mode.ok_or_else(internal_error)?;
        if !self.has(Bug::StopKeepsSupportMembership) {
            self.remove_support_membership(supported);
        }
        let original = original.filter(|account| self.team_role(*account, ROOT).is_some());
        self.cookies = Cookies {
            active: original,
            support: None,
        };
        ok(json!({ "account_id": original.map(|account| format!("<account:{account}>")) }))
    }

    fn accounts_json(&self, caller: usize) -> Value {
        let memberships = self.members.iter().filter(|member| member.user == caller);
        let accounts = memberships.map(|member| {
            let account = &self.accounts[member.account];
            let id = format!("<account:{}>", member.account);
            let status = if account.suspended { "suspended" } else { "active" };
            json!({ "account_id": id, "role": member.role.as_str(),
                    "account": { "id": id, "plan": account.plan, "status": status } })
        });
        let id = |account: usize| format!("<account:{account}>");
        let active = self
            .cookies
            .active
            .filter(|account| caller == ROOT && self.membership(*account, ROOT).is_some());
        let mode = self
            .cookies
            .support
            .filter(|_| caller == ROOT)
            .map(|(supported, original)| {
                json!({ "account_id": id(supported), "account_name": format!("<tag> {supported}"),
                    "original_account_id": original.map(id), "started_at": any_string(), "expires_at": any_string() })
            });
        json!({ "accounts": unordered(accounts.collect()), "active_account_id": active.map(id),
                "is_admin": caller == ROOT, "support_mode": mode })
    }

    fn change_account(
        &mut self,
        caller: usize,
        account: usize,
        action: &str,
        plan: Option<&'static str>,
    ) -> ModelResult {
        Self::check_administrator(caller)?;
        let plan = plan.filter(|plan| PLANS.contains(plan));
        match (action, plan) {
            ("suspend" | "reactivate", _) | ("change_plan", Some(_)) => {}
            ("change_plan", None) => return Err(invalid(&["plan"])),
            _ => return Err(invalid(&["action"])),
        }
        let changed = self.accounts.get_mut(account).ok_or_else(not_found)?;
        match (action, plan) {
            ("change_plan", Some(plan)) => self.grant(account, plan),
            _ => changed.suspended = action == "suspend",
        }
        ok(json!({ "message": "*" }))
    }
}
