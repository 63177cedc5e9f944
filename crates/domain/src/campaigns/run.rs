//! The beginning of a run: what has to be true before. Pure: the store reads the facts before, and writes the decision
//! and its events in one transaction after.

use serde_json::json;
use time::OffsetDateTime;

use super::{
    Campaign, Command, Refusal, RequiredPlaceholder, RetryReport, RetryRequest, RunContent, failed_preconditions,
    may_be_sent, required_placeholders, transition,
};
use crate::billing::PlanEntitlement;
use crate::shared::{Actor, Audit, AuditAction, CampaignId, Event, NotificationDraft, NotificationKind, ProfileId};
use crate::templates::Template;
use crate::whatsapp::StoredProfile;

/// What set a run going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// `execute`: the caller waits for the end.
    Execute,
    /// `send`: the caller does not.
    Send,
    /// Its time came.
    Schedule,
    /// `retry-failed`.
    Retry,
}

impl Trigger {
    const ALL: [Self; 4] = [Self::Execute, Self::Send, Self::Schedule, Self::Retry];

    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Send => "send",
            Self::Schedule => "schedule",
            Self::Retry => "retry",
        }
    }
}

impl std::str::FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|trigger| trigger.as_str() == text)
            .ok_or_else(|| format!("unknown trigger {text}"))
    }
}

/// Everything that decides whether a run may begin.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    /// The campaign.
    pub campaign: Campaign,
    /// Its template, unless deleted. Once the run has started: with the frozen content, deleted or not.
    pub template: Option<Template>,
    /// Whether the run has started, so that mapping and template are those of the start ([`RunContent`]).
    pub content_frozen: bool,
    /// The number it leaves from: the run's own, else the one the template was submitted with, else the account's default.
    pub profile_id: Option<ProfileId>,
    /// The account's plan and subscription.
    pub billing: PlanEntitlement,
    /// The store's time.
    pub now: OffsetDateTime,
}

/// Everything that decides whether a paused run may go on.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeFacts {
    /// What decides about every run.
    pub run: RunFacts,
    /// Whether the run started with a number that was disconnected since.
    pub number_lost: bool,
    /// What the run reserved of this month; none if it is not prepared yet, or its messages count in an earlier month.
    pub quota: Option<RunQuota>,
}

/// What a run reserved of the month's messages, in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunQuota {
    /// Used and reserved by the whole account, this run included.
    pub used: i64,
    /// Not sent yet, of this run: a part of `used`.
    pub pending: i64,
}

/// A run that was announced and is still to be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedStart {
    /// What set it going.
    pub trigger: Trigger,
    /// On whose behalf.
    pub actor: Option<Actor>,
}

/// A campaign that moves to `sending` at once; a worker looks at the preconditions later.
#[derive(Clone, Debug, PartialEq)]
pub struct EnqueueStart {
    /// The campaign as it will be: sending.
    pub campaign: Campaign,
    /// The status it has to have until then. Where its time set it going, that time has to be the same still, too.
    pub expected: super::CampaignStatus,
    /// How the run begins.
    pub run: QueuedStart,
    /// What to tell.
    pub events: Vec<Event>,
}

/// A run that may begin, as far as can be told before the audience is known.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// The campaign as it will be: sending.
    pub campaign: Campaign,
    /// The status it has to have until then.
    pub expected: super::CampaignStatus,
    /// What set it going.
    pub trigger: Trigger,
    /// On whose behalf.
    pub actor: Option<Actor>,
    /// The number it leaves from; none when it is simulated.
    pub profile_id: Option<ProfileId>,
    /// Messages a month of the plan.
    pub monthly_limit: i64,
    /// Placeholders that must not be empty for any recipient.
    pub required_placeholders: Vec<RequiredPlaceholder>,
    /// What it sends from now on.
    pub content: RunContent,
}

/// A run of failed sends that may begin.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRetry {
    /// The campaign as it will be: sending.
    pub campaign: Campaign,
    /// The status it has to have until then.
    pub expected: super::CampaignStatus,
    /// How the run begins.
    pub run: QueuedStart,
    /// The number it leaves from.
    pub profile_id: Option<ProfileId>,
    /// Messages a month of the plan.
    pub monthly_limit: i64,
    /// The version of the campaign that this was decided on.
    pub expected_version: i64,
    /// Which failed sends are tried again.
    pub request: RetryRequest,
}

impl RunRetry {
    /// The audit entry of a retry that took and left this.
    pub fn audit(&self, report: &RetryReport) -> Audit {
        let actor = self.run.actor.as_ref();
        let mut retry = self.request.changes();
        if let Some(fields) = retry.as_object_mut() {
            fields.insert("tried".to_owned(), json!(report.tried));
            fields.insert("left_out".to_owned(), json!(report.left_out));
        }
        Audit {
            user_id: actor.map(|actor| actor.user_id),
            action: AuditAction::Update,
            entity_type: "campaign".to_owned(),
            entity_id: Some(self.campaign.id.0),
            changes: Some(json!({ "status": self.campaign.status, "previousStatus": self.expected, "retry": retry })),
            ip_address: actor.and_then(|actor| actor.ip_address.clone()),
            support_admin: actor.and_then(|actor| actor.support_admin.clone()),
        }
    }
}

/// How a retry ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    /// The run goes on.
    Started {
        /// How many sends it has: those that are tried again, and those that were never tried.
        recipients: i64,
        /// What it took of the failed sends, and what it left out.
        report: RetryReport,
    },
    /// The campaign was changed since, nothing can be tried again, or the quota does not suffice.
    Refused(Refusal),
    /// There is no such campaign any more.
    Missing,
}

/// How a start ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The run goes on; with so many recipients.
    Started {
        /// How many sends it has.
        recipients: i64,
    },
    /// The status was another one by then that does not allow it, or the audience or the quota refused.
    Refused(Refusal),
    /// The campaign was changed since its facts were read: what was decided was decided on something else.
    Changed,
    /// There is no such campaign any more.
    Missing,
}

impl StartOutcome {
    /// The outcome if the status is not the `expected` one: `Changed` if the new status allows the command too. A
    /// queued start is only prepared while the campaign is sending, so it is refused instead.
    pub fn status_changed(expected: super::CampaignStatus, status: super::CampaignStatus, command: Command) -> Self {
        match transition(status, command) {
            Ok(_) if expected != super::CampaignStatus::Sending => Self::Changed,
            _ => Self::Refused(Refusal::Status { status, command }),
        }
    }
}

impl RunStart {
    /// Optimistic locking: whether the stored campaign has the content on which this start was decided.
    pub fn matches_campaign(&self, stored: &Campaign) -> bool {
        let decided = &self.campaign;
        let started = Campaign {
            status: decided.status,
            simulated: decided.simulated,
            executed_at: decided.executed_at,
            completed_at: decided.completed_at,
            updated_at: decided.updated_at,
            version: decided.version,
            ..stored.clone()
        };
        started == *decided
    }

    /// Whether the run may start with its template as stored; else how the start ends. A template with other content is
    /// not the one that this start was decided on.
    pub fn check_template(&self, stored: Option<&Template>) -> Result<(), StartOutcome> {
        let Some(template) = stored.filter(|template| may_be_sent(template, false)) else {
            return Err(StartOutcome::Refused(Refusal::TemplateNotApproved));
        };
        match template.content() == self.content.template && template.unsupported.is_empty() {
            true => Ok(()),
            false => Err(StartOutcome::Changed),
        }
    }
}

/// What a worker needs to carry a run out.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInputs {
    /// The campaign, with the mapping of the start.
    pub campaign: Campaign,
    /// Its template with the content of the start, deleted or not.
    pub template: Template,
    /// The number it leaves from; none when it is simulated, or was disconnected since.
    pub profile: Option<StoredProfile>,
}

/// Decides whether a run may begin: the campaign is a draft or scheduled (`Start`) or was announced (`Prepare`), its
/// template is approved and can be sent, no placeholder is empty for everybody, and the plan is active. The store goes on to refuse an
/// empty audience, a placeholder of [`RunStart::required_placeholders`] that is empty for somebody in it, and
/// a run beyond the month's limit.
pub fn prepare(facts: RunFacts, command: Command, run: QueuedStart) -> Result<RunStart, Refusal> {
    if let Some(first) = failed_preconditions(&facts, command).into_iter().next() {
        return Err(first);
    }
    let (status, now, required_placeholders) = (
        transition(facts.campaign.status, command)?,
        facts.now,
        required_placeholders(&facts),
    );
    let monthly_limit = facts.billing.messages_per_month(now).ok_or(Refusal::NoActivePlan)?;
    let template = facts.template.as_ref().ok_or(Refusal::NoTemplate)?;
    Ok(RunStart {
        content: RunContent::of(&facts.campaign, template),
        expected: facts.campaign.status,
        campaign: Campaign {
            status,
            simulated: facts.profile_id.is_none(),
            executed_at: Some(now),
            completed_at: None,
            updated_at: now,
            ..facts.campaign
        },
        trigger: run.trigger,
        actor: run.actor,
        profile_id: facts.profile_id,
        monthly_limit,
        required_placeholders,
    })
}

/// Decides whether the failed sends of a run may be tried again.
pub fn prepare_retry(facts: RunFacts, run: QueuedStart, request: RetryRequest) -> Result<RunRetry, Refusal> {
    if let Some(first) = failed_preconditions(&facts, Command::Retry).into_iter().next() {
        return Err(first);
    }
    let monthly_limit = facts
        .billing
        .messages_per_month(facts.now)
        .ok_or(Refusal::NoActivePlan)?;
    Ok(RunRetry {
        expected: facts.campaign.status,
        expected_version: facts.campaign.version,
        run,
        request,
        profile_id: facts.profile_id,
        monthly_limit,
        campaign: Campaign {
            status: transition(facts.campaign.status, Command::Retry)?,
            completed_at: None,
            retry_scheduled_at: None,
            updated_at: facts.now,
            ..facts.campaign
        },
    })
}

/// What people are told of a run that waits for somebody.
pub fn pause_notification(campaign: CampaignId, name: &str, reason: &str) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Warning,
        title: format!("Campaign paused: {name}"),
        message: format!("Sending stopped: {reason}."),
        data: json!({ "campaign_id": campaign, "reason": reason }),
    }
}

/// What is told when a queued start is given up.
pub(super) fn abort_notification(campaign: &Campaign, refusal: &Refusal) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Error,
        title: format!("Campaign not sent: {}", campaign.name),
        message: format!("The campaign was not sent and is a draft again. Reason: {refusal}."),
        data: json!({ "campaign_id": campaign.id, "reason": refusal.to_string() }),
    }
}

#[cfg(test)]
pub(crate) mod tests;
