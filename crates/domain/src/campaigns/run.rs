//! The beginning of a run: what has to be true before. Pure: the store reads the facts before, and writes the decision
//! and its events in one transaction after.

use serde_json::json;
use time::OffsetDateTime;

use super::{
    Blank, Campaign, Command, Refusal, RetryReport, RetryRequest, RunContent, blanks, may_be_sent, objections,
    transition,
};
use crate::billing::Standing;
use crate::shared::{Actor, Audit, AuditAction, CampaignId, Event, Notification, NotificationKind, ProfileId};
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

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|trigger| trigger.as_str() == word)
            .ok_or_else(|| format!("unknown trigger {word}"))
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
    pub billing: Standing,
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
pub struct Announced {
    /// What set it going.
    pub trigger: Trigger,
    /// On whose behalf.
    pub actor: Option<Actor>,
}

/// A campaign that moves to `sending` at once; a worker looks at the preconditions later.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// The campaign as it will be: sending.
    pub campaign: Campaign,
    /// The status it has to have until then. Where its time set it going, that time has to be the same still, too.
    pub expected: super::CampaignStatus,
    /// How the run begins.
    pub run: Announced,
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
    pub blanks: Vec<Blank>,
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
    pub run: Announced,
    /// The number it leaves from.
    pub profile_id: Option<ProfileId>,
    /// Messages a month of the plan.
    pub monthly_limit: i64,
    /// When the campaign that this was decided on was changed last.
    pub decided_on: OffsetDateTime,
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
    /// The outcome where the status is another one than a start was decided on: to be decided on anew, where it allows
    /// the command too. What was announced is prepared while the campaign is sending, or not at all.
    pub fn overtaken(expected: super::CampaignStatus, status: super::CampaignStatus, command: Command) -> Self {
        match transition(status, command) {
            Ok(_) if expected != super::CampaignStatus::Sending => Self::Changed,
            _ => Self::Refused(Refusal::Status { status, command }),
        }
    }
}

impl RunStart {
    /// Whether a campaign, as stored, is the one that this start was decided on.
    pub fn is_of(&self, stored: &Campaign) -> bool {
        let wanted = &self.campaign;
        let started = Campaign {
            status: wanted.status,
            simulated: wanted.simulated,
            executed_at: wanted.executed_at,
            completed_at: wanted.completed_at,
            updated_at: wanted.updated_at,
            version: wanted.version,
            ..stored.clone()
        };
        started == *wanted
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
pub struct RunMaterial {
    /// The campaign, with the mapping of the start.
    pub campaign: Campaign,
    /// Its template with the content of the start, deleted or not.
    pub template: Template,
    /// The number it leaves from; none when it is simulated, or was disconnected since.
    pub profile: Option<StoredProfile>,
}

/// Decides whether a run may begin: the campaign is a draft or scheduled (`Start`) or was announced (`Prepare`), its
/// template is approved and can be sent, no placeholder is empty for everybody, and the plan is active. The store goes on to refuse an
/// empty audience, a placeholder of [`RunStart::blanks`] that is empty for somebody in it, and a run beyond the month's
/// limit.
pub fn prepare(facts: RunFacts, command: Command, run: Announced) -> Result<RunStart, Refusal> {
    if let Some(first) = objections(&facts, command).into_iter().next() {
        return Err(first);
    }
    let (status, now, blanks) = (transition(facts.campaign.status, command)?, facts.now, blanks(&facts));
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
        blanks,
    })
}

/// Decides whether the failed sends of a run may be tried again.
pub fn prepare_retry(facts: RunFacts, run: Announced, request: RetryRequest) -> Result<RunRetry, Refusal> {
    if let Some(first) = objections(&facts, Command::Retry).into_iter().next() {
        return Err(first);
    }
    let monthly_limit = facts
        .billing
        .messages_per_month(facts.now)
        .ok_or(Refusal::NoActivePlan)?;
    Ok(RunRetry {
        expected: facts.campaign.status,
        decided_on: facts.campaign.updated_at,
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
pub fn pause_notification(campaign: CampaignId, name: &str, reason: &str) -> Notification {
    Notification {
        kind: NotificationKind::Warning,
        title: format!("Campaign paused: {name}"),
        message: format!("Sending stopped: {reason}."),
        data: json!({ "campaign_id": campaign, "reason": reason }),
    }
}

/// What is told when an announced run is given up.
pub(super) fn abort_notification(campaign: &Campaign, refusal: &Refusal) -> Notification {
    Notification {
        kind: NotificationKind::Error,
        title: format!("Campaign not sent: {}", campaign.name),
        message: format!("It is a draft again: {refusal}."),
        data: json!({ "campaign_id": campaign.id, "reason": refusal.to_string() }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use time::macros::datetime;

    use super::super::CampaignStatus;
    use super::*;
    use crate::billing;
    use crate::campaigns::service::tests::{NOW, campaign, tenant};
    use crate::templates::MetaStatus;
    use crate::templates::tests::approved_template;

    pub(crate) fn facts() -> RunFacts {
        let template = approved_template("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
        let campaign = Campaign {
            template_id: Some(template.id),
            ..campaign(CampaignStatus::Draft)
        };
        let billing = Standing {
            plan: "free".into(),
            granted: None,
            subscriptions: vec![],
        };
        RunFacts {
            campaign,
            template: Some(template),
            content_frozen: false,
            profile_id: None,
            billing,
            now: NOW,
        }
    }

    fn by_execute() -> Announced {
        Announced {
            trigger: Trigger::Execute,
            actor: Some(tenant().actor),
        }
    }

    fn prepared(facts: RunFacts) -> Result<RunStart, Refusal> {
        prepare(facts, Command::Start, by_execute())
    }

    #[test]
    fn a_run_without_a_number_is_simulated() {
        let start = prepared(facts()).unwrap();
        assert_eq!(
            (start.campaign.status, start.campaign.simulated),
            (CampaignStatus::Sending, true)
        );
        assert_eq!((start.expected, start.monthly_limit), (CampaignStatus::Draft, 250));
        assert_eq!(start.campaign.executed_at, Some(NOW));
        let connected = prepared(RunFacts {
            profile_id: Some(uuid::Uuid::nil().into()),
            ..facts()
        })
        .unwrap();
        assert!(!connected.campaign.simulated);
    }

    #[test]
    fn a_start_is_of_the_campaign_it_was_decided_on() {
        let start = prepared(facts()).unwrap();
        let stored = facts().campaign;
        assert!(start.is_of(&stored));
        assert!(!start.is_of(&Campaign {
            name: "Outro".into(),
            ..stored.clone()
        }));
        assert!(!start.is_of(&Campaign {
            rfm_segments: vec!["champions".into()],
            ..stored
        }));
    }

    #[test]
    fn a_start_sends_the_template_it_was_decided_on_or_nothing() {
        let start = prepared(facts()).unwrap();
        let template = facts().template.unwrap();
        assert_eq!(start.content, RunContent::of(&facts().campaign, &template));
        assert_eq!(start.check_template(Some(&template)), Ok(()));
        let edited = approved_template("Oi {{1}}, veja {{2}}.", &["Ana", "PROMO10"]);
        assert_eq!(start.check_template(Some(&edited)), Err(StartOutcome::Changed));
        let unsupported = Template {
            unsupported: vec!["unsupported_button:flow".into()],
            ..template.clone()
        };
        assert_eq!(start.check_template(Some(&unsupported)), Err(StartOutcome::Changed));
        let refused = Err(StartOutcome::Refused(Refusal::TemplateNotApproved));
        assert_eq!(start.check_template(None), refused);
        let draft = Template {
            meta_status: MetaStatus::Draft,
            ..template
        };
        assert_eq!(start.check_template(Some(&draft)), refused);
    }

    #[test]
    fn each_precondition_refuses() {
        let sending = RunFacts {
            campaign: campaign(CampaignStatus::Sending),
            ..facts()
        };
        assert!(matches!(prepared(sending), Err(Refusal::Status { .. })));
        assert_eq!(
            prepared(RunFacts {
                template: None,
                ..facts()
            }),
            Err(Refusal::NoTemplate)
        );
        let pending = facts().template.map(|t| Template {
            meta_status: MetaStatus::Pending,
            ..t
        });
        assert_eq!(
            prepared(RunFacts {
                template: pending,
                ..facts()
            }),
            Err(Refusal::TemplateNotApproved)
        );
        let lapsed = billing::SubscriptionState {
            plan: "growth".into(),
            status: billing::SubscriptionStatus::PastDue,
            current_period_end: Some(datetime!(2026-02-28 0:00 UTC)),
        };
        let billing = Standing {
            plan: "growth".into(),
            granted: None,
            subscriptions: vec![lapsed],
        };
        assert_eq!(prepared(RunFacts { billing, ..facts() }), Err(Refusal::NoActivePlan));
        let mut blank = facts();
        blank.campaign.variables = Some(super::super::Variables([("2".to_owned(), " ".to_owned())].into()));
        assert_eq!(
            prepared(blank),
            Err(Refusal::EmptyPlaceholder {
                placeholder: "2".into()
            })
        );
    }

    #[test]
    fn an_announced_run_is_prepared_while_it_is_sending() {
        let sending = || {
            let mut facts = facts();
            facts.campaign.status = CampaignStatus::Sending;
            facts
        };
        let start = prepare(sending(), Command::Prepare, by_execute()).unwrap();
        assert_eq!(
            (start.expected, start.campaign.status),
            (CampaignStatus::Sending, CampaignStatus::Sending)
        );
        let draft = prepare(facts(), Command::Prepare, by_execute());
        assert!(matches!(draft, Err(Refusal::Status { .. })));
        let blank = RunFacts {
            template: None,
            ..sending()
        };
        assert_eq!(prepare(blank, Command::Prepare, by_execute()), Err(Refusal::NoTemplate));
    }

    #[test]
    fn failed_sends_are_tried_again_under_the_same_rules() {
        let of = |status| {
            let mut facts = facts();
            facts.campaign.status = status;
            facts.campaign.completed_at = Some(NOW);
            facts
        };
        let retried = |facts| {
            let run = Announced {
                trigger: Trigger::Retry,
                actor: Some(tenant().actor),
            };
            prepare_retry(facts, run, RetryRequest::default())
        };
        let retry = retried(of(CampaignStatus::Partial)).unwrap();
        assert_eq!(
            (retry.expected, retry.campaign.status),
            (CampaignStatus::Partial, CampaignStatus::Sending)
        );
        assert_eq!((retry.campaign.completed_at, retry.run.trigger), (None, Trigger::Retry));
        assert_eq!(retry.decided_on, of(CampaignStatus::Partial).campaign.updated_at);
        let report = RetryReport {
            tried: 2,
            left_out: vec![],
        };
        let audit = retry.audit(&report);
        assert_eq!(
            (audit.action, audit.user_id),
            (AuditAction::Update, Some(tenant().actor.user_id))
        );
        let wanted = json!({ "status": "sending", "previousStatus": "partial",
            "retry": { "codes": null, "not_before": null, "force": false, "tried": 2, "left_out": [] } });
        assert_eq!(audit.changes, Some(wanted));
        for status in [CampaignStatus::Sent, CampaignStatus::Draft, CampaignStatus::Cancelled] {
            assert!(retried(of(status)).is_err());
        }
        let unapproved = RunFacts {
            template: None,
            ..of(CampaignStatus::Completed)
        };
        assert_eq!(retried(unapproved), Err(Refusal::NoTemplate));
    }
}
