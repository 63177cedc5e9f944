//! Templates and their review by WhatsApp.

use serde_json::{Value, json};

use super::exchange::{
    Action, ModelResult, any_string, call, created, invalid, no_content, not_found, ok, ok_body, unordered,
    whatsapp_error,
};
use super::state::{Access, Bug, ModelState};

#[derive(Clone, Debug)]
pub(super) enum Templates {
    /// Connects a phone number.
    Connect,
    Create {
        name: usize,
        valid: bool,
    },
    Edit {
        template: usize,
        /// Makes each text unique.
        text: u64,
        valid: bool,
    },
    Submit(usize),
    ReviewUpdate {
        template: usize,
        event: &'static str,
    },
    Delete(usize),
    Get(usize),
    List(&'static str),
    /// Approves a template by SQL, as if it had been approved before.
    ApproveBySql(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) account: usize,
    name: usize,
    pub(super) status: &'static str,
    /// The index of the WhatsApp template, once submitted.
    remote: Option<usize>,
    rejected: bool,
    pub(super) deleted: bool,
}

/// A template as WhatsApp stores it.
#[derive(Clone, Debug)]
pub(super) struct WhatsappTemplate {
    account: usize,
    name: usize,
    status: &'static str,
}

const PATH: &str = "/api/templates";

impl Templates {
    pub(super) fn action(&self, caller: usize, account: usize, state: &ModelState) -> Action {
        let request_to = |method: &'static str, template: &usize, rest: &str| {
            call(caller, account, method, format!("{PATH}/<template:{template}>{rest}"))
        };
        let request = match self {
            Self::Connect => {
                let account = state.active_account(caller, account).unwrap_or(account);
                let body = json!({ "name": "Loja", "phone_number_id": format!("<number:{account}>"),
                                   "waba_id": format!("<waba:{account}>"), "access_token": "EAAG-token" });
                call(caller, account, "POST", "/api/whatsapp/profiles").with(body)
            }
            Self::Create { name, valid } => {
                let account = state.active_account(caller, account).unwrap_or(account);
                let name = if *valid {
                    format!("<tag>_{account}_{name}")
                } else {
                    "Não".to_owned()
                };
                let body = json!({ "name": name, "category": "MARKETING", "language": "pt_BR",
                    "template_type": "standard", "body_text": "Oi {{1}}!", "example_values": ["Ana"] });
                call(caller, account, "POST", PATH).with(body)
            }
            Self::Edit { template, text, valid } => {
                let placeholder = if *valid { "{{1}}" } else { "{{2}}" };
                request_to("PUT", template, "").with(json!({ "body_text": format!("Olá {placeholder}, {text}") }))
            }
            Self::Submit(template) => request_to("POST", template, "/submit"),
            Self::ReviewUpdate { template, event } => {
                let found = state.templates.get(*template);
                let remote = found.and_then(|template| template.remote).unwrap_or(usize::MAX);
                let account = found.map_or(account, |template| template.account);
                return Action::TemplateUpdate {
                    waba: format!("<waba:{account}>"),
                    template: format!("<meta:{remote}>"),
                    event,
                };
            }
            Self::Delete(template) => request_to("DELETE", template, ""),
            Self::Get(template) => request_to("GET", template, ""),
            Self::List(status) => call(caller, account, "GET", format!("{PATH}?limit=100&meta_status={status}")),
            Self::ApproveBySql(template) => {
                return Action::Sql(format!(
                    "UPDATE message_templates SET meta_status = 'approved' WHERE id = '<template:{template}>'"
                ));
            }
        };
        Action::Call(request)
    }
}

impl ModelState {
    pub(super) fn templates(&mut self, caller: usize, account: usize, act: &Templates) -> ModelResult {
        match *act {
            Templates::Connect => {
                let (account, _) = self.check_access(caller, account, Access::Write)?;
                if std::mem::replace(&mut self.accounts[account].connected, true) {
                    return Err(invalid(&["phone_number_id"]));
                }
                created(json!({ "phone_number_id": format!("<number:{account}>") }))
            }
            Templates::Create { name, valid } => self.create_template(caller, account, name, valid),
            Templates::Edit { template, valid, .. } => self.edit_template(caller, account, template, valid),
            Templates::Submit(template) => self.submit_template(caller, account, template),
            Templates::ReviewUpdate { template, event } => {
                self.apply_template_update(template, event);
                ok_body(Value::Null)
            }
            Templates::Delete(template) => {
                let (account, _) = self.check_access(caller, account, Access::Write)?;
                self.find_template(account, template).ok_or_else(not_found)?.deleted = true;
                no_content()
            }
            Templates::Get(template) => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let found = self.find_template(account, template).cloned().ok_or_else(not_found)?;
                ok(template_json((template, &found)))
            }
            Templates::List(status) => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let listed = |(_, template): &(usize, &Template)| {
                    let has_status = status.is_empty() || template.status == status;
                    template.account == account && !template.deleted && has_status
                };
                let listed: Vec<Value> = self
                    .templates
                    .iter()
                    .enumerate()
                    .filter(listed)
                    .map(template_json)
                    .collect();
                ok(json!({ "total": listed.len(), "data": unordered(listed) }))
            }
            Templates::ApproveBySql(template) => {
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

    fn create_template(&mut self, caller: usize, account: usize, name: usize, valid: bool) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        let has_name =
            |template: &&Template| (template.account, template.name, template.deleted) == (account, name, false);
        if !valid || self.templates.iter().any(|template| has_name(&template)) {
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
        created(template_json((number, &self.templates[number])))
    }

    /// A template under review cannot be edited. An edited template becomes a draft.
    fn edit_template(&mut self, caller: usize, account: usize, template: usize, valid: bool) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        let keeps_status = self.has(Bug::EditKeepsReviewStatus);
        let found = self.find_template(account, template);
        if !valid {
            // An unknown template is reported before an invalid text.
            found.ok_or_else(not_found)?;
            return Err(invalid(&["body_text"]));
        }
        let found = found.ok_or_else(not_found)?;
        if found.status == "pending" {
            return Err(invalid(&["meta_status"]));
        }
        if !(keeps_status && found.status == "approved") {
            (found.status, found.rejected) = ("draft", false);
        }
        let found = found.clone();
        ok(template_json((template, &found)))
    }

    /// Submits a draft or rejected template to WhatsApp, as a new template or as an edit of the existing one.
    fn submit_template(&mut self, caller: usize, account: usize, template: usize) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        let found = self.find_template(account, template).cloned().ok_or_else(not_found)?;
        if !matches!(found.status, "draft" | "rejected") {
            return Err(invalid(&["meta_status"]));
        }
        if !self.accounts[account].connected {
            return Err(invalid(&["profile_id"]));
        }
        let has_same_name = |remote: &WhatsappTemplate| (remote.account, remote.name) == (account, found.name);
        let remote = match found.remote {
            Some(remote) if matches!(self.remote[remote].status, "APPROVED" | "REJECTED" | "PAUSED") => remote,
            Some(_) => return Err(whatsapp_error()),
            None if self.remote.iter().any(has_same_name) => return Err(whatsapp_error()),
            None => {
                self.remote.push(WhatsappTemplate {
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

    /// A review update does not change a draft. A paused or disabled template pauses the campaigns that send it.
    fn apply_template_update(&mut self, template: usize, event: &'static str) {
        let Some(updated) = self.templates.get_mut(template) else {
            return;
        };
        let Some(remote) = updated.remote else { return };
        let (status, remote_status) = match event {
            "APPROVED" | "REINSTATED" => ("approved", "APPROVED"),
            "REJECTED" => ("rejected", "REJECTED"),
            "PAUSED" => ("paused", "PAUSED"),
            _ => ("disabled", "DISABLED"),
        };
        self.remote[remote].status = remote_status;
        if updated.deleted {
            return;
        }
        if updated.status != "draft" {
            (updated.status, updated.rejected) = (status, status == "rejected");
        }
        if matches!(status, "paused" | "disabled") {
            let sending = self.campaigns.iter_mut().filter(|campaign| campaign.is_sending());
            for campaign in sending.filter(|campaign| campaign.template == Some(template)) {
                campaign.paused = true;
            }
        }
    }
}

fn template_json((number, template): (usize, &Template)) -> Value {
    let remote = template.remote.map(|remote| format!("<meta:{remote}>"));
    let reason = if template.rejected { any_string() } else { Value::Null };
    json!({ "id": format!("<template:{number}>"), "meta_status": template.status, "meta_template_id": remote,
            "rejection_reason": reason })
}
