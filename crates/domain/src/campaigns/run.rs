//! A run: the facts that decide on it, the decision, and the outcome of its write.

use serde_json::json;
use time::OffsetDateTime;

use super::{
    Campaign, CampaignRefusal, Command, Recipient, RequiredPlaceholder, RetryReport, RetryRequest, RunContent,
    transition,
};
use crate::billing::PlanEntitlement;
use crate::contacts::Phone;
use crate::costs::CampaignCost;
use crate::messaging::MetaStatus;
use crate::settings::LatePolicy;
use crate::shared::string_enum::string_enum;
use crate::shared::{
    Actor, Audit, AuditAction, CampaignId, ContactId, Event, NotificationDraft, NotificationKind, ProfileId,
    redacted_debug,
};
use crate::templates::Template;
use crate::whatsapp::StoredProfile;

string_enum! {
    /// What started a run.
    Trigger {
        /// `execute`: the caller waits for the end of the run.
        Execute = "execute",
        /// `send`: the caller does not wait.
        Send = "send",
        /// `scheduled_at` was reached.
        Schedule = "schedule",
        /// `retry-failed`, at once or scheduled.
        Retry = "retry",
    }
}

/// The facts that decide whether a run may start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    pub campaign: Campaign,
    /// The template, unless deleted. After the start of the run: the template with the frozen content, even if deleted.
    pub template: Option<Template>,
    /// Whether the run has started, so that mapping and template are frozen ([`RunContent`]).
    pub content_frozen: bool,
    /// The sending number: the run's own, else the number that submitted the template, else the account's default.
    pub profile_id: Option<ProfileId>,
    /// Whether the sending number is not verified. An account without any number sends simulated messages.
    pub number_unverified: bool,
    pub billing: PlanEntitlement,
    /// The policy of the campaign's schedule, else the account's.
    pub late_policy: Option<LatePolicy>,
    /// The time of the store's clock.
    pub now: OffsetDateTime,
}

/// The facts that decide whether a paused run may resume.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeFacts {
    pub run: RunFacts,
    /// What the run has spent and reserved.
    pub cost: CampaignCost,
    /// Whether the number of the run was disconnected since its start.
    pub number_lost: bool,
    /// The run's reservation of this month. None if the run is not prepared yet, or its messages count in an earlier
    /// month.
    pub quota: Option<RunQuota>,
}

/// Who receives a test send.
#[derive(Clone, PartialEq, Eq)]
pub enum TestRecipient {
    Phone(Phone),
    Contact(ContactId),
    /// WhatsApp's user id.
    User(String),
}

redacted_debug!(
    enum TestRecipient {
        Phone,
        Contact,
        User,
    }
);

/// The facts that decide whether a test send is allowed, from one read.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSendFacts {
    pub run: RunFacts,
    /// The sending number. None if no number is connected.
    pub profile: Option<StoredProfile>,
    /// The account's contact with the phone number or id, if there is one.
    pub contact: Option<TestSendContact>,
}

/// The contact that receives a test send.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSendContact {
    pub recipient: Recipient,
    pub opted_out: bool,
}

/// The reservation of a run in the month's quota, in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunQuota {
    /// Used and reserved messages of the whole account, including this run.
    pub used: i64,
    /// Unsent messages of this run. They are part of `used`.
    pub pending: i64,
}

/// A queued start: a run that a worker still has to prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedStart {
    pub trigger: Trigger,
    /// The user on whose behalf the run starts.
    pub actor: Option<Actor>,
}

/// A transition to `sending` whose preconditions a worker checks later.
#[derive(Clone, Debug, PartialEq)]
pub struct EnqueueStart {
    /// The campaign after the transition. Guard of the write: its version is the current one.
    pub campaign: Campaign,
    /// Guard of the write: the current status.
    pub expected: super::CampaignStatus,
    pub run: QueuedStart,
    pub events: Vec<Event>,
}

/// A run that may start, if audience and quota allow it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// The campaign after the transition to `sending`.
    pub campaign: Campaign,
    /// Guard of the write: the current status.
    pub expected: super::CampaignStatus,
    pub trigger: Trigger,
    /// The user on whose behalf the run starts.
    pub actor: Option<Actor>,
    /// The sending number. None if the run is simulated.
    pub profile_id: Option<ProfileId>,
    /// The plan's messages per month.
    pub monthly_limit: i64,
    /// Placeholders that must not be empty for any recipient.
    pub required_placeholders: Vec<RequiredPlaceholder>,
    pub content: RunContent,
}

/// A run of failed sends that may start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRetry {
    /// The campaign after the transition to `sending`.
    pub campaign: Campaign,
    /// Guard of the write: the current status.
    pub expected: super::CampaignStatus,
    pub run: QueuedStart,
    /// The sending number.
    pub profile_id: Option<ProfileId>,
    /// The plan's messages per month.
    pub monthly_limit: i64,
    /// Guard of the write: the current version of the campaign.
    pub expected_version: i64,
    pub request: RetryRequest,
}

impl RunRetry {
    /// The audit entry of a retry with this report.
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

/// The result of [`RunRetryStore::retry`](super::RunRetryStore::retry).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    Started {
        /// The sends of the run: retried ones, and those that were never tried.
        recipients: i64,
        report: RetryReport,
    },
    /// The campaign was changed since, no send can be retried, or the quota is exceeded.
    Refused(CampaignRefusal),
    /// The campaign does not exist any more.
    Missing,
}

/// The result of [`RunStartStore::start`](super::RunStartStore::start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    Started {
        /// The number of sends.
        recipients: i64,
    },
    /// The current status does not allow the start, or audience or quota do not.
    Refused(CampaignRefusal),
    /// The campaign was changed since its facts were read: the caller decides again.
    Changed,
    /// The campaign does not exist any more.
    Missing,
}

impl StartOutcome {
    /// The outcome if the status is not the `expected` one: `Changed` if the new status allows the command too. A
    /// queued start is only prepared while the campaign is sending, so it is refused instead.
    pub fn status_changed(expected: super::CampaignStatus, status: super::CampaignStatus, command: Command) -> Self {
        match transition(status, command) {
            Ok(_) if expected != super::CampaignStatus::Sending => Self::Changed,
            _ => Self::Refused(CampaignRefusal::Status { status, command }),
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

    /// Checks that the stored template may be sent and has the content on which this start was decided. The error is
    /// the outcome of the start.
    pub fn check_template(&self, stored: Option<&Template>) -> Result<(), StartOutcome> {
        let Some(template) = stored.filter(|template| may_be_sent(template, false)) else {
            return Err(StartOutcome::Refused(CampaignRefusal::TemplateNotApproved));
        };
        match template.content() == self.content.template && template.unsupported.is_empty() {
            true => Ok(()),
            false => Err(StartOutcome::Changed),
        }
    }
}

/// Whether WhatsApp allows the template to be sent. A run that has started sends its frozen content: an edit of the
/// template does not stop it, but a withdrawn approval does.
pub fn may_be_sent(template: &Template, content_frozen: bool) -> bool {
    match content_frozen {
        true => !template.meta_status.withdraws_approval(),
        false => template.meta_status == MetaStatus::Approved,
    }
}

/// The inputs of a worker that executes a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInputs {
    /// The campaign with its frozen mapping.
    pub campaign: Campaign,
    /// The template with its frozen content, deleted or not.
    pub template: Template,
    /// The sending number. None if the run is simulated or the number was disconnected.
    pub profile: Option<StoredProfile>,
}

/// The notification of a run that was paused because of a problem.
pub fn pause_notification(campaign: CampaignId, name: &str, reason: &str) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Warning,
        title: format!("Campaign paused: {name}"),
        message: format!("Sending stopped: {reason}."),
        data: json!({ "campaign_id": campaign, "reason": reason }),
    }
}

pub(super) fn cancel_notification(campaign: &Campaign) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Info,
        title: format!("Campaign cancelled: {}", campaign.name),
        message: "No further messages will be sent.".to_owned(),
        data: json!({ "campaign_id": campaign.id, "previous_status": campaign.status }),
    }
}

/// The notification of a queued start that failed its preconditions.
pub(super) fn abort_notification(campaign: &Campaign, refusal: &CampaignRefusal) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Error,
        title: format!("Campaign not sent: {}", campaign.name),
        message: format!("The campaign was not sent and is a draft again. Reason: {refusal}."),
        data: json!({ "campaign_id": campaign.id, "reason": refusal.to_string() }),
    }
}
