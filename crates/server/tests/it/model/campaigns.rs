//! Campaigns: the published table of what leads where.

use serde_json::{Value, json};

use super::exchange::{
    Ask, Expected, Verdict, ask, created, gone, invalid, missing, ok, precondition, something, whole,
};
use super::state::{Access, Bug, ModelState};

/// When a campaign is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Never,
    Past,
    Future,
}

/// What of a campaign is changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Name(&'static str),
    Template(Option<usize>),
    Time(When),
}

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum Campaigns {
    /// Somebody to write to.
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
    /// A command without a body.
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

/// A campaign.
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

    fn has_not_begun(&self) -> Result<(), Expected> {
        match self.status {
            "draft" | "scheduled" => Ok(()),
            _ => Err(precondition()),
        }
    }
}

fn moment(when: When) -> Value {
    match when {
        When::Never => Value::Null,
        When::Past => json!("2001-01-01T00:00:00.000Z"),
        When::Future => json!("2099-01-01T00:00:00.000Z"),
    }
}

const PATH: &str = "/api/campaigns";

impl Campaigns {
    pub(super) fn ask(&self, who: usize, account: usize) -> Ask {
        let one = |method: &'static str, campaign: &usize, rest: &str| {
            ask(who, account, method, format!("{PATH}/<campaign:{campaign}>{rest}"))
        };
        let template = |template: &Option<usize>| template.map(|template| format!("<template:{template}>"));
        let call = match self {
            Self::Contact(phone) => ask(who, account, "POST", "/api/contacts")
                .with(json!({ "name": "Bia Silva", "phone": crate::harness::users::phone(*phone) })),
            Self::Create { template: of, when } => ask(who, account, "POST", PATH)
                .with(json!({ "name": "Oferta", "template_id": template(of), "scheduled_at": moment(*when) })),
            Self::Update { campaign, change } => one("PUT", campaign, "").with(match change {
                Change::Name(name) => json!({ "name": name }),
                Change::Template(of) => json!({ "template_id": template(of) }),
                Change::Time(when) => json!({ "scheduled_at": moment(*when) }),
            }),
            Self::Schedule { campaign, when } => {
                one("POST", campaign, "/schedule").with(json!({ "scheduled_at": moment(*when) }))
            }
            Self::Command(campaign, command) => match command {
                Command::Unschedule => one("POST", campaign, "/unschedule"),
                Command::Send => one("POST", campaign, "/send"),
                Command::Execute => one("POST", campaign, "/execute"),
                Command::Pause => one("POST", campaign, "/pause"),
                Command::Resume => one("POST", campaign, "/resume"),
                Command::RetryFailed => one("POST", campaign, "/retry-failed"),
                Command::Cancel => one("POST", campaign, "/cancel"),
                Command::Delete => one("DELETE", campaign, ""),
            },
            Self::Get(campaign) => one("GET", campaign, ""),
            Self::List => ask(who, account, "GET", format!("{PATH}?limit=100")),
            Self::Stats(campaign) => one("GET", campaign, "/stats"),
        };
        Ask::Call(call)
    }
}

impl ModelState {
    pub(super) fn campaigns(&mut self, who: usize, account: usize, act: &Campaigns) -> Verdict {
        match *act {
            Campaigns::Contact(phone) => self.contact(who, account, phone),
            Campaigns::Create { template, when } => self.create_campaign(who, account, template, when),
            Campaigns::Update { campaign, change } => self.update_campaign(who, account, campaign, change),
            Campaigns::Schedule { campaign, when } => self.schedule(who, account, campaign, when),
            Campaigns::Command(campaign, command) => {
                let (account, _) = self.enter(who, account, Access::Write)?;
                self.find_campaign(account, campaign)?;
                match command {
                    Command::Execute => self.execute(account, campaign),
                    other => self.command(campaign, other),
                }
            }
            Campaigns::Get(campaign) => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                self.find_campaign(account, campaign)?;
                ok(self.shown_campaign(campaign))
            }
            Campaigns::List => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let listed = self.campaigns.iter().enumerate().rev();
                let listed = listed.filter(|(_, campaign)| campaign.account == account && !campaign.deleted);
                let listed: Vec<Value> = listed.map(|(number, _)| self.shown_campaign(number)).collect();
                whole(
                    json!({ "total": listed.len(), "page": 1, "totalPages": listed.len().div_ceil(100), "data": listed }),
                )
            }
            Campaigns::Stats(campaign) => {
                let (account, _) = self.enter(who, account, Access::Read)?;
                let recipients = self.find_campaign(account, campaign)?.recipients;
                ok(
                    json!({ "total": recipients, "pending": 0, "sent": recipients, "delivered": 0, "read": 0, "failed": 0 }),
                )
            }
        }
    }

    fn contact(&mut self, who: usize, account: usize, phone: usize) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        let phones = &mut self.accounts[account].phones;
        if phones.contains(&phone) {
            return Err(invalid(&["phone"]));
        }
        phones.push(phone);
        created(json!({ "name": "Bia Silva" }))
    }

    fn find_campaign(&mut self, account: usize, campaign: usize) -> Result<&mut Campaign, Expected> {
        let campaign = self.campaigns.get_mut(campaign).ok_or_else(missing)?;
        match campaign.account == account && !campaign.deleted {
            true => Ok(campaign),
            false => Err(missing()),
        }
    }

    fn shown_campaign(&self, number: usize) -> Value {
        let campaign = &self.campaigns[number];
        let paused = if campaign.paused { something() } else { Value::Null };
        let template = campaign.template.map(|template| format!("<template:{template}>"));
        json!({ "id": format!("<campaign:{number}>"), "status": campaign.status, "paused_at": paused,
            "template_id": template, "simulated": campaign.simulated, "total_recipients": campaign.recipients,
            "scheduled_at": moment(campaign.when) })
    }

    /// What a body names has to be the account's own.
    fn knows_template(&mut self, account: usize, template: Option<usize>) -> Result<(), Expected> {
        match template.is_none_or(|template| self.find_template(account, template).is_some()) {
            true => Ok(()),
            false => Err(invalid(&["template_id"])),
        }
    }

    fn create_campaign(&mut self, who: usize, account: usize, template: Option<usize>, when: When) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        self.knows_template(account, template)?;
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
        created(self.shown_campaign(self.campaigns.len() - 1))
    }

    /// Before it has begun; what is scheduled keeps a time in the future.
    fn update_campaign(&mut self, who: usize, account: usize, number: usize, change: Change) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        match change {
            Change::Name("") => return Err(invalid(&["name"])),
            Change::Template(template) => self.knows_template(account, template)?,
            Change::Name(_) | Change::Time(_) => {}
        }
        let campaign = self.find_campaign(account, number)?;
        campaign.has_not_begun()?;
        match change {
            Change::Name(_) => {}
            Change::Template(template) => campaign.template = template,
            Change::Time(when) if campaign.status == "scheduled" && when != When::Future => {
                return Err(invalid(&["scheduled_at"]));
            }
            Change::Time(when) => campaign.when = when,
        }
        ok(self.shown_campaign(number))
    }

    /// A time in the future is needed, from the body or already stored.
    fn schedule(&mut self, who: usize, account: usize, number: usize, when: When) -> Verdict {
        let (account, _) = self.enter(who, account, Access::Write)?;
        let campaign = self.find_campaign(account, number)?;
        campaign.has_not_begun()?;
        let when = if when == When::Never { campaign.when } else { when };
        if when != When::Future {
            return Err(precondition());
        }
        (campaign.status, campaign.when) = ("scheduled", when);
        ok(self.shown_campaign(number))
    }

    fn command(&mut self, number: usize, command: Command) -> Verdict {
        let may_delete_sending = self.has(Bug::SendingMayBeDeleted);
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
                return gone();
            }
            // Nothing ever fails here, so that there is nothing to try again.
            _ => return Err(precondition()),
        }
        ok(self.shown_campaign(number))
    }

    /// Runs to its end within the request, if everything that it needs is there.
    fn execute(&mut self, account: usize, number: usize) -> Verdict {
        let campaign = self.campaigns[number].clone();
        campaign.has_not_begun()?;
        let template = campaign
            .template
            .and_then(|template| self.find_template(account, template));
        let is_approved = template.is_some_and(|template| template.status == "approved");
        let may_send = self.has_active_plan(account) || self.has(Bug::PlanIsNotLookedAt);
        let known = &mut self.accounts[account];
        let recipients = known.phones.len();
        if !is_approved || !may_send || recipients == 0 {
            return Err(precondition());
        }
        known.messages += u64::try_from(recipients).unwrap();
        let (simulated, status) = if known.connected {
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
