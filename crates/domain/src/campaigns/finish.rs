//! The end of a run: the final status and the events, from the run's counters. Pure, like `run.rs`.

use serde_json::json;
use time::OffsetDateTime;

use super::events::finished_event;
use super::status::RunResult;
use super::{Campaign, CampaignStatus, Command, HeldSends, RunEnd, RunReport, SendCounts, Trigger, transition};
use crate::shared::{Actor, Audit, AuditAction, Event, NotificationDraft, NotificationKind};

/// Ends a run whose sends were all tried. None: the campaign is paused or no longer sending, and does not change.
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
        waiting_until: None,
        held: 0,
        updated_at: now,
        ..campaign.clone()
    };
    let report = RunReport::of(&finished, counts);
    let mut events = vec![
        Event::Notification(end_notification(&finished, &report)),
        finished_event(&finished, &report),
    ];
    if trigger == Trigger::Execute {
        events.push(Event::Audit(Audit {
            user_id: actor.map(|actor| actor.user_id),
            action: AuditAction::Update,
            entity_type: "campaign".to_owned(),
            entity_id: Some(campaign.id.0),
            changes: Some(json!(report)),
            ip_address: actor.and_then(|actor| actor.ip_address.clone()),
            support_admin: actor.and_then(|actor| actor.support_admin.clone()),
        }));
    }
    Some((finished, events))
}

fn end_notification(campaign: &Campaign, report: &RunReport) -> NotificationDraft {
    let kind = if report.failed == 0 {
        NotificationKind::Success
    } else {
        NotificationKind::Warning
    };
    let message = match report.failed {
        0 => format!("{} messages were sent.", report.sent),
        failed => format!("{} messages were sent, {failed} were not.", report.sent),
    };
    NotificationDraft {
        kind,
        title: format!("Campaign finished: {}", campaign.name),
        message,
        data: json!({ "campaign_id": campaign.id, "status": campaign.status, "total": report.total,
                      "sent": report.sent, "failed": report.failed, "simulated": report.simulated }),
    }
}

impl RunReport {
    /// The report of a run, from the campaign and its counters. After the end, every send that WhatsApp is not known to
    /// have accepted counts as failed. During the run, and after a cancel, only failed sends do.
    pub fn of(campaign: &Campaign, counts: &SendCounts) -> Self {
        let is_over = matches!(
            campaign.status,
            CampaignStatus::Completed | CampaignStatus::Partial | CampaignStatus::Sent
        );
        Self {
            total: counts.total,
            sent: counts.accepted(),
            failed: if is_over {
                counts.total - counts.accepted()
            } else {
                counts.failed
            },
            simulated: campaign.simulated,
            status: campaign.status,
            waiting: campaign.held,
            waiting_until: campaign.waiting_until,
            paused: campaign.paused_at.is_some(),
        }
    }
}

impl RunEnd {
    /// The end of a worker's execution of a run that waits for held sends. Another worker may go on with the run before it
    /// is read: it waited nevertheless, and is not paused.
    pub(super) fn of_waiting(self, held: HeldSends) -> Self {
        match self {
            Self::Over(report) if report.status == CampaignStatus::Sending && !report.paused => Self::Over(RunReport {
                waiting: held.count,
                waiting_until: Some(held.until),
                ..report
            }),
            end => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaigns::service::tests::{NOW, campaign, tenant};

    #[test]
    fn finish_audits_only_an_executed_run() {
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
        let send_events = events(Trigger::Send);
        assert!(
            matches!(send_events.as_slice(), [Event::Notification(_), Event::Webhook(_)]),
            "{send_events:?}"
        );
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
    fn finish_derives_the_status_from_the_counters() {
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
}
