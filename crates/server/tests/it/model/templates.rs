//! Templates, and the messaging platform's word on them.

use serde_json::{Value, json};

use super::exchange::{
    Ask, Verdict, ask, created, gone, in_any_order, invalid, missing, ok, platform_refuses, something, whole,
};
use super::state::{Access, Bug, ModelState};

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum Templates {
    /// A number is connected.
    Connect,
    Create {
        name: usize,
        good: bool,
    },
    Edit {
        template: usize,
        /// Makes every text another one.
        text: u64,
        good: bool,
    },
    Submit(usize),
    News {
        template: usize,
        event: &'static str,
    },
    Delete(usize),
    Get(usize),
    List(&'static str),
    /// It was approved before there was a number.
    ApproveByHand(usize),
}

/// A template.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) account: usize,
    name: usize,
    pub(super) status: &'static str,
    /// Which one of the platform's it is.
    remote: Option<usize>,
    rejected: bool,
    pub(super) deleted: bool,
}

/// What the platform knows.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    account: usize,
    name: usize,
    status: &'static str,
}

const PATH: &str = "/api/templates";

impl Templates {
    pub(super) fn ask(&self, who: usize, account: usize, state: &ModelState) -> Ask {
        let one = |method: &'static str, template: &usize, rest: &str| {
            ask(who, account, method, format!("{PATH}/<template:{template}>{rest}"))
        };
        let call = match self {
            Self::Connect => {
                let account = state.context(who, account).unwrap_or(account);
                let body = json!({ "name": "Loja", "phone_number_id": format!("<number:{account}>"),
                                   "waba_id": format!("<waba:{account}>"), "access_token": "EAAG-token" });
                ask(who, account, "POST", "/api/whatsapp/profiles").with(body)
            }
            Self::Create { name, good } => {
                let account = state.context(who, account).unwrap_or(account);
                let name = if *good {
                    format!("<tag>_{account}_{name}")
                } else {
                    "Não".to_owned()
                };
                let body = json!({ "name": name, "category": "MARKETING", "language": "pt_BR",
                    "template_type": "standard", "body_text": "Oi {{1}}!", "example_values": ["Ana"] });
                ask(who, account, "POST", PATH).with(body)
            }
            Self::Edit { template, text, good } => {
                let placeholder = if *good { "{{1}}" } else { "{{2}}" };
                one("PUT", template, "").with(json!({ "body_text": format!("Olá {placeholder}, {text}") }))
            }
            Self::Submit(template) => one("POST", template, "/submit"),
            Self::News { template, event } => {
                let known = state.templates.get(*template);
                let remote = known.and_then(|template| template.remote).unwrap_or(usize::MAX);
                let account = known.map_or(account, |template| template.account);
                return Ask::News {
                    waba: format!("<waba:{account}>"),
                    template: format!("<meta:{remote}>"),
                    event,
                };
            }
            Self::Delete(template) => one("DELETE", template, ""),
            Self::Get(template) => one("GET", template, ""),
            Self::List(status) => ask(who, account, "GET", format!("{PATH}?limit=100&meta_status={status}")),
            Self::ApproveByHand(template) => {
                return Ask::Sql(format!(
                    "UPDATE message_templates SET meta_status = 'approved' WHERE id = '<template:{template}>'"
                ));
            }
        };
        Ask::Call(call)
    }
}

impl ModelState {
    pub(super) fn templates(&mut self, who: usize, account: usize, act: &Templates) -> Verdict {
        match *act {
            Templates::Connect => {
                let (account, _) = self.enter(who, account, Access::Write)?;
                if std::mem::replace(&mut self.accounts[account].connected, true) {
                    return Err(invalid(&["phone_number_id"]));
                }
                created(json!({ "phone_number_id": format!("<number:{account}>") }))
            }
            Templates::Create { name, good } => self.create_template(who, account, name, good),
            Templates::Edit { template, good, .. } => self.edit_template(who, account, template, good),
            Templates::Submit(template) => self.submit_template(who, account, template),
            Templates::News { template, event } => {
                self.hear_of_template(template, event);
                whole(Value::Null)
            }
            Templates::Delete(template) => {
                let (account, _) = self.enter(who, account, Access::Write)?;
                self.find_template(account, template).ok_or_else(missing)?.deleted = true;
                gone()
            }
            Templates::Get(template) => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let found = self.find_template(account, template).cloned().ok_or_else(missing)?;
                ok(shown((template, &found)))
            }
            Templates::List(status) => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let listed = |(_, template): &(usize, &Template)| {
                    let wanted = status.is_empty() || template.status == status;
                    template.account == account && !template.deleted && wanted
                };
                let listed: Vec<Value> = self.templates.iter().enumerate().filter(listed).map(shown).collect();
                ok(json!({ "total": listed.len(), "data": in_any_order(listed) }))
            }
            Templates::ApproveByHand(template) => {
                if let Some(template) = self.templates.get_mut(template) {
                    template.status = "approved";
                }
                ok(Value::Null)
            }
        }
    }

    pub(super) fn find_template(&mut self, account: usize, template: usize) -> Option<&mut Template> {
        let template = self.templates.get_mut(template)?;
        (template.account == account && !template.deleted).then_some(template)
    }

    fn create_template(&mut self, who: usize, account: usize, name: usize, good: bool) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        let same = |template: &&Template| (template.account, template.name, template.deleted) == (account, name, false);
        if !good || self.templates.iter().any(|template| same(&template)) {
            return Err(invalid(&["name"]));
        }
        self.templates.push(Template {
            account,
            name,
            status: "draft",
            remote: None,
            rejected: false,
            deleted: false,
        });
        let number = self.templates.len() - 1;
        created(shown((number, &self.templates[number])))
    }

    /// What the platform reviews is not changed; what is changed is a draft.
    fn edit_template(&mut self, who: usize, account: usize, template: usize, good: bool) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        let keeps = self.has(Bug::EditKeepsTheVerdict);
        let found = self.find_template(account, template);
        if !good {
            // What is wrong by itself is told first; what is wrong in this template, of this template alone.
            found.ok_or_else(missing)?;
            return Err(invalid(&["body_text"]));
        }
        let found = found.ok_or_else(missing)?;
        if found.status == "pending" {
            return Err(invalid(&["meta_status"]));
        }
        if !(keeps && found.status == "approved") {
            (found.status, found.rejected) = ("draft", false);
        }
        let found = found.clone();
        ok(shown((template, &found)))
    }

    /// A draft, or what was rejected, goes to the platform: as a new template, or as an edit of the one that it has.
    fn submit_template(&mut self, who: usize, account: usize, template: usize) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        let found = self.find_template(account, template).cloned().ok_or_else(missing)?;
        if !matches!(found.status, "draft" | "rejected") {
            return Err(invalid(&["meta_status"]));
        }
        if !self.accounts[account].connected {
            return Err(invalid(&["profile_id"]));
        }
        let taken = |remote: &Remote| (remote.account, remote.name) == (account, found.name);
        let remote = match found.remote {
            Some(remote) if matches!(self.remote[remote].status, "APPROVED" | "REJECTED" | "PAUSED") => remote,
            Some(_) => return Err(platform_refuses()),
            None if self.remote.iter().any(taken) => return Err(platform_refuses()),
            None => {
                self.remote.push(Remote {
                    account,
                    name: found.name,
                    status: "PENDING",
                });
                self.remote.len() - 1
            }
        };
        self.remote[remote].status = "PENDING";
        let submitted = &mut self.templates[template];
        (submitted.status, submitted.rejected, submitted.remote) = ("pending", false, Some(remote));
        ok(json!({ "meta_template_id": format!("<meta:{remote}>"), "status": "PENDING", "category": "MARKETING" }))
    }

    /// News of what is a draft again is of something else; what is stopped stops the campaigns that are sending it.
    fn hear_of_template(&mut self, template: usize, event: &'static str) {
        let Some(heard) = self.templates.get_mut(template) else {
            return;
        };
        let Some(remote) = heard.remote else { return };
        let (status, known_as) = match event {
            "APPROVED" | "REINSTATED" => ("approved", "APPROVED"),
            "REJECTED" => ("rejected", "REJECTED"),
            "PAUSED" => ("paused", "PAUSED"),
            _ => ("disabled", "DISABLED"),
        };
        self.remote[remote].status = known_as;
        if heard.deleted {
            return;
        }
        if heard.status != "draft" {
            (heard.status, heard.rejected) = (status, status == "rejected");
        }
        if matches!(status, "paused" | "disabled") {
            let sending = self.campaigns.iter_mut().filter(|campaign| campaign.is_sending());
            for campaign in sending.filter(|campaign| campaign.template == Some(template)) {
                campaign.paused = true;
            }
        }
    }
}

fn shown((number, template): (usize, &Template)) -> Value {
    let remote = template.remote.map(|remote| format!("<meta:{remote}>"));
    let reason = if template.rejected { something() } else { Value::Null };
    json!({ "id": format!("<template:{number}>"), "meta_status": template.status, "meta_template_id": remote,
            "rejection_reason": reason })
}
