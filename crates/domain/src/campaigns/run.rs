//! The beginning and the end of a run: what has to be true before, and what is concluded after. Both are pure: the store
//! reads the facts before, and writes the decision and its events in one transaction after.

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::status::RunResult;
use super::{Blank, Campaign, Command, Refusal, RunReport, SendCounts, transition};
use crate::billing::Standing;
use crate::shared::{Actor, Audit, AuditAction, CampaignId, Event, Notification, NotificationKind, ProfileId, Tenant};
use crate::templates::{MetaStatus, Template};
use crate::whatsapp::StoredProfile;

/// What set a run going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// `execute`: the caller waits for the end.
    Execute,
    /// `send`: the caller does not.
    Send,
}

impl Trigger {
    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Send => "send",
        }
    }
}

impl std::str::FromStr for Trigger {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        [Self::Execute, Self::Send]
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
    /// Its template, unless deleted.
    pub template: Option<Template>,
    /// The number it leaves from: the one the template was submitted with, else the account's default.
    pub profile_id: Option<ProfileId>,
    /// The account's plan and subscription.
    pub billing: Standing,
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
    pub actor: Actor,
    /// The number it leaves from; none when it is simulated.
    pub profile_id: Option<ProfileId>,
    /// Messages a month of the plan.
    pub monthly_limit: i64,
    /// Placeholders that must not be empty for any recipient.
    pub blanks: Vec<Blank>,
    /// What to tell when it began.
    pub events: Vec<Event>,
}

/// How a start ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The run goes on; with so many recipients.
    Started {
        /// How many sends it has.
        recipients: i64,
    },
    /// The status was another one by then, or the audience or the quota refused.
    Refused(Refusal),
    /// The campaign was changed since its facts were read: what was decided was decided on something else.
    Changed,
    /// There is no such campaign any more.
    Missing,
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
            ..stored.clone()
        };
        started == *wanted
    }
}

/// What a worker needs to carry a run out.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMaterial {
    /// The campaign.
    pub campaign: Campaign,
    /// Its template, deleted or not.
    pub template: Template,
    /// The number it leaves from; none when it is simulated, or was disconnected since.
    pub profile: Option<StoredProfile>,
}

/// How fast messages may leave a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So long between two messages.
    Delay(Duration),
    /// So many a second (1 to 1000).
    PerSecond(u32),
}

impl Pace {
    /// The time between two messages.
    pub fn interval(self) -> Duration {
        match self {
            Self::Delay(delay) => delay,
            Self::PerSecond(rate) => Duration::SECOND / f64::from(rate.max(1)),
        }
    }

    /// How many sends are started, and are in flight, together: what leaves within 50 ms, at least one. A batch that is
    /// smaller bounds it, too.
    pub fn in_flight(self) -> usize {
        let interval = self.interval().whole_microseconds().max(1);
        usize::try_from(50_000 / interval).unwrap_or(1).clamp(1, 50)
    }
}

/// Decides whether a run may begin: the campaign is a draft or scheduled, its template is approved, no placeholder is
/// empty for everybody, and the plan is active. The store goes on to refuse an empty audience, a placeholder of
/// [`RunStart::blanks`] that is empty for somebody in it, and a run beyond the month's limit.
pub fn prepare(facts: RunFacts, trigger: Trigger, tenant: &Tenant, now: OffsetDateTime) -> Result<RunStart, Refusal> {
    let RunFacts {
        campaign,
        template,
        profile_id,
        billing,
    } = facts;
    let status = transition(campaign.status, Command::Start)?;
    let template = template.ok_or(Refusal::NoTemplate)?;
    if template.meta_status != MetaStatus::Approved {
        return Err(Refusal::TemplateNotApproved);
    }
    let blanks = campaign
        .variables
        .clone()
        .unwrap_or_default()
        .blanks(&template.variables);
    if let Some(blank) = blanks.iter().find(|blank| blank.fields.is_empty()) {
        return Err(Refusal::EmptyPlaceholder {
            placeholder: blank.placeholder.clone(),
        });
    }
    let monthly_limit = billing.messages_per_month(now).ok_or(Refusal::NoActivePlan)?;
    let events = match trigger {
        Trigger::Execute => vec![],
        Trigger::Send => vec![Event::Audit(tenant.audit(
            AuditAction::Create,
            "campaign_send",
            campaign.id,
        ))],
    };
    Ok(RunStart {
        expected: campaign.status,
        campaign: Campaign {
            status,
            simulated: profile_id.is_none(),
            executed_at: Some(now),
            completed_at: None,
            updated_at: now,
            ..campaign
        },
        trigger,
        actor: tenant.actor.clone(),
        profile_id,
        monthly_limit,
        blanks,
        events,
    })
}

/// Concludes a run whose every send was tried. None: the campaign is not sending any more, or waits, and stays as it is.
pub fn finish(
    campaign: &Campaign,
    counts: &SendCounts,
    trigger: Trigger,
    actor: Option<&Actor>,
    now: OffsetDateTime,
) -> Option<(Campaign, Vec<Event>)> {
    if campaign.paused_at.is_some() {
        return None;
    }
    let result = match (campaign.simulated, counts.accepted() == counts.total) {
        (true, _) => RunResult::Simulated,
        (false, true) => RunResult::AllAccepted,
        (false, false) => RunResult::SomeFailed,
    };
    let status = transition(campaign.status, Command::Finish(result)).ok()?;
    let finished = Campaign {
        status,
        completed_at: Some(now),
        updated_at: now,
        ..campaign.clone()
    };
    let report = RunReport::of(&finished, counts);
    let mut events = vec![Event::Notification(end_notification(&finished, &report))];
    if trigger == Trigger::Execute {
        events.push(Event::Audit(Audit {
            user_id: actor.map(|actor| actor.user_id),
            action: AuditAction::Update,
            entity_type: "campaign".to_owned(),
            entity_id: Some(campaign.id.0),
            changes: Some(json!(report)),
            ip_address: actor.and_then(|actor| actor.ip_address.clone()),
        }));
    }
    Some((finished, events))
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

fn end_notification(campaign: &Campaign, report: &RunReport) -> Notification {
    let kind = if report.failed == 0 {
        NotificationKind::Success
    } else {
        NotificationKind::Warning
    };
    let message = match report.failed {
        0 => format!("{} messages were sent.", report.sent),
        failed => format!("{} messages were sent, {failed} were not.", report.sent),
    };
    Notification {
        kind,
        title: format!("Campaign finished: {}", campaign.name),
        message,
        data: json!({ "campaign_id": campaign.id, "status": campaign.status, "total": report.total,
                      "sent": report.sent, "failed": report.failed, "simulated": report.simulated }),
    }
}

impl RunReport {
    /// How a run stands, from the campaign and its counters. Sends not known to be accepted count as failed.
    pub fn of(campaign: &Campaign, counts: &SendCounts) -> Self {
        Self {
            total: counts.total,
            sent: counts.accepted(),
            failed: counts.total - counts.accepted(),
            simulated: campaign.simulated,
            status: campaign.status,
            paused: campaign.paused_at.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::CampaignStatus;
    use super::*;
    use crate::billing;
    use crate::campaigns::service::tests::{NOW, campaign, tenant};
    use crate::templates::tests::approved_template;

    fn facts() -> RunFacts {
        let template = approved_template("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
        let campaign = Campaign {
            template_id: Some(template.id),
            ..campaign(CampaignStatus::Draft)
        };
        let billing = Standing {
            plan: "free".into(),
            subscription: None,
        };
        RunFacts {
            campaign,
            template: Some(template),
            profile_id: None,
            billing,
        }
    }

    fn prepared(facts: RunFacts) -> Result<RunStart, Refusal> {
        prepare(facts, Trigger::Execute, &tenant(), NOW)
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
        let lapsed = billing::Subscription {
            status: billing::SubscriptionStatus::PastDue,
            current_period_end: Some(datetime!(2026-02-28 0:00 UTC)),
        };
        let billing = Standing {
            plan: "growth".into(),
            subscription: Some(lapsed),
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
    fn send_is_audited_at_once_and_execute_at_the_end() {
        assert_eq!(prepared(facts()).unwrap().events, []);
        let start = prepare(facts(), Trigger::Send, &tenant(), NOW).unwrap();
        assert!(matches!(&start.events[..], [Event::Audit(a)] if a.entity_type == "campaign_send"));
        let counts = SendCounts {
            total: 2,
            sent: 1,
            read: 1,
            ..SendCounts::default()
        };
        let sending = campaign(CampaignStatus::Sending);
        let events = |trigger| {
            finish(&sending, &counts, trigger, Some(&tenant().actor), NOW)
                .unwrap()
                .1
        };
        assert_eq!(events(Trigger::Send).len(), 1);
        let events = events(Trigger::Execute);
        let Some(Event::Audit(audit)) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(
            (audit.action, audit.user_id),
            (AuditAction::Update, Some(tenant().actor.user_id))
        );
        assert_eq!(audit.changes.as_ref().unwrap()["sent"], 2);
    }

    #[test]
    fn the_result_follows_from_the_counters() {
        let sending = campaign(CampaignStatus::Sending);
        let end = |campaign: &Campaign, accepted, total| {
            let counts = SendCounts {
                total,
                sent: accepted,
                pending: total - accepted,
                ..SendCounts::default()
            };
            finish(campaign, &counts, Trigger::Send, None, NOW).map(|(campaign, _)| campaign.status)
        };
        assert_eq!(end(&sending, 3, 3), Some(CampaignStatus::Completed));
        assert_eq!(end(&sending, 2, 3), Some(CampaignStatus::Partial));
        assert_eq!(end(&sending, 0, 3), Some(CampaignStatus::Partial));
        assert_eq!(
            end(
                &Campaign {
                    simulated: true,
                    ..sending.clone()
                },
                3,
                3
            ),
            Some(CampaignStatus::Sent)
        );
        assert_eq!(
            end(
                &Campaign {
                    paused_at: Some(NOW),
                    ..sending
                },
                3,
                3
            ),
            None
        );
        assert_eq!(end(&campaign(CampaignStatus::Cancelled), 3, 3), None);
    }

    #[test]
    fn in_flight_follows_the_pace() {
        let delay = |ms| Pace::Delay(Duration::milliseconds(ms)).in_flight();
        assert_eq!((delay(200), delay(10), delay(0)), (1, 5, 50));
        let rate = |rate| Pace::PerSecond(rate).in_flight();
        assert_eq!((rate(1), rate(80), rate(1000)), (1, 4, 50));
    }
}
