//! Platform administrators: support mode, and what they do to an account from above.

use serde_json::{Value, json};

use super::exchange::{
    Ask, Cookie, Expected, Verdict, ask, denied, fault, in_any_order, invalid, missing, ok, something,
};
use super::state::{Bug, Cookies, ModelState, ROOT, Role};

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum Support {
    Start(usize),
    Stop(Cookie),
    /// `GET /api/accounts`: who sees what, and in which mode.
    Look,
    Act {
        account: usize,
        action: &'static str,
        plan: Option<&'static str>,
    },
}

/// The plans of the catalogue.
pub(super) const PLANS: [&str; 4] = ["free", "starter", "growth", "scale"];

impl Support {
    pub(super) fn ask(&self, who: usize, account: usize) -> Ask {
        let call = match self {
            Self::Start(target) => ask(
                who,
                account,
                "POST",
                format!("/api/admin/accounts/<account:{target}>/support"),
            ),
            Self::Stop(cookie) => {
                let mut call = ask(who, account, "POST", "/api/admin/stop-support");
                call.cookie = *cookie;
                call
            }
            Self::Look => ask(who, account, "GET", "/api/accounts"),
            Self::Act {
                account: target,
                action,
                plan,
            } => {
                let path = format!("/api/admin/accounts/<account:{target}>/action");
                ask(who, account, "POST", path).with(json!({ "action": action, "plan": plan }))
            }
        };
        Ask::Call(call)
    }
}

impl ModelState {
    pub(super) fn support(&mut self, who: usize, act: &Support) -> Verdict {
        match *act {
            Support::Start(target) => self.start_support(who, target),
            Support::Stop(cookie) => self.stop_support(who, cookie),
            Support::Look => ok(self.looked(who)),
            Support::Act { account, action, plan } => self.act(who, account, action, plan),
        }
    }

    fn is_administrator(who: usize) -> Result<(), Expected> {
        if who == ROOT { Ok(()) } else { Err(denied()) }
    }

    /// Lends a membership, unless there is one; leaves the account that was supported before, and keeps the way back.
    fn start_support(&mut self, who: usize, target: usize) -> Verdict {
        Self::is_administrator(who)?;
        if target >= self.accounts.len() {
            return Err(missing());
        }
        let before = self.cookies.support;
        let original = match before {
            Some((_, original)) => original,
            None => self.home(),
        };
        if let Some((left, _)) = before.filter(|(left, _)| *left != target) {
            self.take_back(left);
        }
        if self.membership(target, ROOT).is_none() {
            self.join(target, ROOT, Role::Admin, true);
        }
        self.cookies = Cookies {
            active: Some(target),
            support: Some((target, original)),
        };
        ok(json!({ "account_id": format!("<account:{target}>"), "account_name": format!("<tag> {target}") }))
    }

    /// The account that the administrator would be in, of their own: the one of the cookie, else the oldest.
    fn home(&self) -> Option<usize> {
        let own = |account: &usize| self.of_team(*account, ROOT).is_some();
        let oldest = || self.members.iter().find(|member| member.person == ROOT);
        let named = self.cookies.active.filter(own);
        named.or_else(|| oldest().map(|member| member.account).filter(own))
    }

    fn take_back(&mut self, account: usize) {
        self.members
            .retain(|member| !(member.lent && (member.account, member.person) == (account, ROOT)));
    }

    /// What was lent goes, what is their own stays; the way back is gone, or leads to an account of theirs.
    fn stop_support(&mut self, who: usize, cookie: Cookie) -> Verdict {
        Self::is_administrator(who)?;
        let carried = self.cookies.support.filter(|_| cookie == Cookie::Own);
        let (supported, original) = carried.ok_or_else(fault)?;
        if !self.has(Bug::StopLeavesTheMembership) {
            self.take_back(supported);
        }
        let original = original.filter(|account| self.of_team(*account, ROOT).is_some());
        self.cookies = Cookies {
            active: original,
            support: None,
        };
        ok(json!({ "account_id": original.map(|account| format!("<account:{account}>")) }))
    }

    fn looked(&self, who: usize) -> Value {
        let theirs = self.members.iter().filter(|member| member.person == who);
        let shown = theirs.map(|member| {
            let account = &self.accounts[member.account];
            let id = format!("<account:{}>", member.account);
            let status = if account.suspended { "suspended" } else { "active" };
            json!({ "account_id": id, "role": member.role.word(),
                    "account": { "id": id, "plan": account.plan, "status": status } })
        });
        let id = |account: usize| format!("<account:{account}>");
        let active = self
            .cookies
            .active
            .filter(|account| who == ROOT && self.membership(*account, ROOT).is_some());
        let mode = self
            .cookies
            .support
            .filter(|_| who == ROOT)
            .map(|(supported, original)| {
                json!({ "account_id": id(supported), "account_name": format!("<tag> {supported}"),
                    "original_account_id": original.map(id), "started_at": something(), "expires_at": something() })
            });
        json!({ "accounts": in_any_order(shown.collect()), "active_account_id": active.map(id),
                "is_admin": who == ROOT, "support_mode": mode })
    }

    fn act(&mut self, who: usize, account: usize, action: &str, plan: Option<&'static str>) -> Verdict {
        Self::is_administrator(who)?;
        let plan = plan.filter(|plan| PLANS.contains(plan));
        match (action, plan) {
            ("suspend" | "reactivate", _) | ("change_plan", Some(_)) => {}
            ("change_plan", None) => return Err(invalid(&["plan"])),
            _ => return Err(invalid(&["action"])),
        }
        let acted = self.accounts.get_mut(account).ok_or_else(missing)?;
        match (action, plan) {
            ("change_plan", Some(plan)) => self.grant(account, plan),
            _ => acted.suspended = action == "suspend",
        }
        ok(json!({ "message": "*" }))
    }
}
