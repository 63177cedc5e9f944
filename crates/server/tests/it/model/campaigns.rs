//! Campaigns: the published state machine.

use serde_json::{Value, json};

use super::exchange::{
    Action, Expected, ModelResult, any_string, call, created, invalid, no_content, not_found, ok, ok_body, precondition,
};
use super::state::{Access, Bug, ModelState};

/// The scheduled time of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Never,
    Past,
    Future,
}

/// A change of one field of a campaign.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Name(&'static str),
    Template(Option<usize>),
    Time(When),
}

#[derive(Clone, Debug)]
pub(super) enum Campaigns {
    /// Creates a contact.
    Contact(usize),
    Create {
        template: Option<usize>,
        when: When,
    },
    Update {
        campaign: usize,
        change: Change,
    },
    Schedule {
        campaign: usize,
        when: When,
    },
    Command(usize, Command),
    Get(usize),
    List,
    Stats(usize),
}

/// A command without a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Unschedule,
    Send,
    Execute,
    Pause,
    Resume,
    RetryFailed,
    Cancel,
    Delete,
}

#[derive(Clone, Debug)]
pub(super) struct Campaign {
    account: usize,
    pub(super) template: Option<usize>,
    status: &'static str,
    pub(super) paused: bool,
    when: When,
    deleted: bool,
    simulated: bool,
    recipients: usize,
}

impl Campaign {
    pub(super) fn is_sending(&self) -> bool {
        self.status == "sending" && !self.deleted
    }

    fn check_not_started(&self) -> Result<(), Expected> {
        match self.status {
            "draft" | "scheduled" => Ok(()),
            _ => Err(precondition()),
        }
    }
}

fn scheduled_at(when: When) -> Value {
    match when {
        When::Never => Value::Null,
        When::Past => json!("2001-01-01T00:00:00.000Z"),
        When::Future => json!("2099-01-01T00:00:00.000Z"),
    }
}

const PATH: &str = "/api/campaigns";

impl Campaigns {
    pub(super) fn action(&self, caller: usize, account: usize) -> Action {
        let request_to = |method: &'static str, campaign: &usize, rest: &str| {
            call(caller, account, method, format!("{PATH}/<campaign:{campaign}>{rest}"))
        };
        let template = |template: &Option<usize>| template.map(|template| format!("<template:{template}>"));
        let request = match self {
            Self::Contact(phone) => call(caller, account, "POST", "/api/contacts")
                .with(json!({ "name": "Bia Silva", "phone": crate::harness::users::phone(*phone) })),
            Self::Create { template: number, when } => call(caller, account, "POST", PATH).with(
                json!({ "name": "Oferta", "template_id": template(number), "scheduled_at": scheduled_at(*when) }),
            ),
            Self::Update { campaign, change } => request_to("PUT", campaign, "").with(match change {
                Change::Name(name) => json!({ "name": name }),
                Change::Template(number) => json!({ "template_id": template(number) }),
                Change::Time(when) => json!({ "scheduled_at": scheduled_at(*when) }),
            }),
            Self::Schedule { campaign, when } => {
                request_to("POST", campaign, "/schedule").with(json!({ "scheduled_at": scheduled_at(*when) }))
            }
            Self::Command(campaign, command) => match command {
                Command::Unschedule => request_to("POST", campaign, "/unschedule"),
                Command::Send => request_to("POST", campaign, "/send"),
                Command::Execute => request_to("POST", campaign, "/execute"),
                Command::Pause => request_to("POST", campaign, "/pause"),
                Command::Resume => request_to("POST", campaign, "/resume"),
                Command::RetryFailed => request_to("POST", campaign, "/retry-failed"),
                Command::Cancel => request_to("POST", campaign, "/cancel"),
                Command::Delete => request_to("DELETE", campaign, ""),
            },
            Self::Get(campaign) => request_to("GET", campaign, ""),
            Self::List => call(caller, account, "GET", format!("{PATH}?limit=100")),
            Self::Stats(campaign) => request_to("GET", campaign, "/stats"),
        };
        Action::Call(request)
    }
}

impl ModelState {
    pub(super) fn campaigns(&mut self, caller: usize, account: usize, act: &Campaigns) -> ModelResult {
        match *act {
            Campaigns::Contact(phone) => self.contact(caller, account, phone),
            Campaigns::Create { template, when } => self.create_campaign(caller, account, template, when),
            Campaigns::Update { campaign, change } => self.update_campaign(caller, account, campaign, change),
            Campaigns::Schedule { campaign, when } => self.schedule(caller, account, campaign, when),
            Campaigns::Command(campaign, command) => {
                let (account, _) = self.check_access(caller, account, Access::Write)?;
                self.find_campaign(account, campaign)?;
                match command {
                    Command::Execute => self.execute(account, campaign),
                    command => self.command(campaign, command),
                }
            }
            Campaigns::Get(campaign) => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                self.find_campaign(account, campaign)?;
                ok(self.campaign_json(campaign))
            }
            Campaigns::List => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let listed = self.campaigns.iter().enumerate().rev();
                let listed = listed.filter(|(_, campaign)| campaign.account == account && !campaign.deleted);
                let listed: Vec<Value> = listed.map(|(number, _)| self.campaign_json(number)).collect();
                ok_body(
                    json!({ "total": listed.len(), "page": 1, "totalPages": listed.len().div_ceil(100), "data": listed }),
                )
            }
            Campaigns::Stats(campaign) => {
                let (account, _) = self.check_access(caller, account, Access::Read)?;
                let recipients = self.find_campaign(account, campaign)?.recipients;
                ok(
                    json!({ "total": recipients, "pending": 0, "sent": recipients, "delivered": 0, "read": 0, "failed": 0 }),
                )
            }
        }
    }

    fn contact(&mut self, caller: usize, account: usize, phone: usize) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        let phones = &mut self.accounts[account].phones;
        if phones.contains(&phone) {
            return Err(invalid(&["phone"]));
        }
        phones.push(phone);
        created(json!({ "name": "Bia Silva" }))
    }

    fn find_campaign(&mut self, account: usize, campaign: usize) -> Result<&mut Campaign, Expected> {
        let campaign = self.campaigns.get_mut(campaign).ok_or_else(not_found)?;
        match campaign.account == account && !campaign.deleted {
            true => Ok(campaign),
            false => Err(not_found()),
        }
    }

    fn campaign_json(&self, number: usize) -> Value {
        let campaign = &self.campaigns[number];
        let paused = if campaign.paused { any_string() } else { Value::Null };
        let template = campaign.template.map(|template| format!("<template:{template}>"));
        json!({ "id": format!("<campaign:{number}>"), "status": campaign.status, "paused_at": paused,
            "template_id": template, "simulated": campaign.simulated, "total_recipients": campaign.recipients,
            "scheduled_at": scheduled_at(campaign.when) })
    }

    /// A template in a body must belong to the account.
    fn check_template(&mut self, account: usize, template: Option<usize>) -> Result<(), Expected> {
        match template.is_none_or(|template| self.find_template(account, template).is_some()) {
            true => Ok(()),
            false => Err(invalid(&["template_id"])),
        }
    }

    fn create_campaign(&mut self, caller: usize, account: usize, template: Option<usize>, when: When) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        self.check_template(account, template)?;
        self.campaigns.push(Campaign {
            account,
            template,
            status: "draft",
            paused: false,
            when,
            deleted: false,
            simulated: false,
            recipients: 0,
        });
        created(self.campaign_json(self.campaigns.len() - 1))
    }

    /// Only a campaign that has not started can be changed. A scheduled one must keep a time in the future.
    fn update_campaign(&mut self, caller: usize, account: usize, number: usize, change: Change) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        match change {
            Change::Name("") => return Err(invalid(&["name"])),
            Change::Template(template) => self.check_template(account, template)?,
            Change::Name(_) | Change::Time(_) => {}
        }
        let campaign = self.find_campaign(account, number)?;
        campaign.check_not_started()?;
        match change {
            Change::Name(_) => {}
            Change::Template(template) => campaign.template = template,
            Change::Time(when) if campaign.status == "scheduled" && when != When::Future => {
                return Err(invalid(&["scheduled_at"]));
            }
            Change::Time(when) => campaign.when = when,
        }
        ok(self.campaign_json(number))
    }

    /// Requires a time in the future, from the body or already stored.
    fn schedule(&mut self, caller: usize, account: usize, number: usize, when: When) -> ModelResult {
        let (account, _) = self.check_access(caller, account, Access::Write)?;
        let campaign = self.find_campaign(account, number)?;
        campaign.check_not_started()?;
        let when = if when == When::Never { campaign.when } else { when };
        if when != When::Future {
            return Err(precondition());
        }
        (campaign.status, campaign.when) = ("scheduled", when);
        ok(self.campaign_json(number))
    }

    fn command(&mut self, number: usize, command: Command) -> ModelResult {
        let may_delete_sending = self.has(Bug::SendingCampaignMayBeDeleted);
        let campaign = &mut self.campaigns[number];
        match (command, campaign.status) {
            (Command::Unschedule, "scheduled") => campaign.status = "draft",
            (Command::Send, "draft" | "scheduled") => campaign.status = "sending",
            (Command::Pause, "sending") => campaign.paused = true,
            (Command::Resume, "sending") => campaign.paused = false,
            (Command::Cancel, "sending" | "scheduled") => {
                (campaign.status, campaign.paused) = ("cancelled", false);
                return ok(json!({ "status": "cancelled" }));
            }
            (Command::Delete, "sending") if !may_delete_sending => return Err(precondition()),
            (Command::Delete, _) => {
                campaign.deleted = true;
                return no_content();
            }
            // No send ever fails here, so there is nothing to retry.
            _ => return Err(precondition()),
        }
        ok(self.campaign_json(number))
    }

    /// Completes the run within the request if the preconditions hold.
    fn execute(&mut self, account: usize, number: usize) -> ModelResult {
        let campaign = self.campaigns[number].clone();
        campaign.check_not_started()?;
        let template = campaign
            .template
            .and_then(|template| self.find_template(account, template));
        let is_approved = template.is_some_and(|template| template.status == "approved");
        let may_send = self.has_active_plan(account) || self.has(Bug::PlanIsNotChecked);
        let sender = &mut self.accounts[account];
        let recipients = sender.phones.len();
        if !is_approved || !may_send || recipients == 0 {
            return Err(precondition());
        }
        sender.messages += u64::try_from(recipients).unwrap();
        let (simulated, status) = if sender.connected {
            (false, "completed")
        } else {
            (true, "sent")
        };
        self.campaigns[number] = Campaign {
            status,
            simulated,
            recipients,
            ..campaign
        };
        ok(json!({ "total": recipients, "sent": recipients, "failed": 0, "simulated": simulated, "status": status }))
    }
}
