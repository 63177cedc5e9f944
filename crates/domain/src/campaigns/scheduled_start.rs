//! Scheduled starts: the campaigns that are due, and those that are skipped because they are found too late.

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::batch_progress::BatchProgress;
use super::start::start_request;
use super::{Campaign, CampaignStatus, Campaigns, Command, QueuedRun, RunFacts, Scheduler, Trigger, transition};
use crate::settings::{LateAction, MIN_DELAY};
use crate::shared::{Actor, Audit, AuditAction, Event, NotificationDraft, NotificationKind, StoreError, WriteOutcome};

impl RunFacts {
    /// Whether a scheduled start comes so late that the campaign is skipped.
    pub(super) fn is_too_late(&self) -> bool {
        let Some(policy) = self.late_policy.filter(|policy| policy.otherwise == LateAction::Skip) else {
            return false;
        };
        delay(&self.campaign, self.now) > Duration::seconds(policy.within.into())
    }
}

fn delay(campaign: &Campaign, now: OffsetDateTime) -> Duration {
    campaign.scheduled_at.map_or(Duration::ZERO, |due| now - due)
}

/// The audit entry and the notification of a skipped campaign.
pub(super) fn skip_events(campaign: &Campaign, actor: Option<&Actor>) -> [Event; 2] {
    let audit = Audit {
        user_id: actor.map(|actor| actor.user_id),
        action: AuditAction::Update,
        entity_type: "campaign".to_owned(),
        entity_id: Some(campaign.id.0),
        changes: Some(
            json!({ "status": CampaignStatus::Draft, "previousStatus": CampaignStatus::Scheduled, "skipped": true }),
        ),
        ip_address: None,
        support_admin: actor.and_then(|actor| actor.support_admin.clone()),
    };
    let notification = NotificationDraft {
        kind: NotificationKind::Error,
        title: format!("Campaign skipped: {}", campaign.name),
        message: "The campaign could not start in time, later than its late policy allows. It was not sent and is a \
                  draft again."
            .to_owned(),
        data: json!({ "campaign_id": campaign.id, "reason": "late" }),
    };
    [Event::Audit(audit), Event::Notification(notification)]
}

impl Campaigns {
    /// Enqueues the starts of up to `limit` due campaigns on behalf of the users who scheduled them. Returns the
    /// number. The failure of one campaign does not stop the others; it is returned if no campaign was enqueued.
    pub async fn enqueue_due_starts(&self, limit: i64) -> Result<usize, StoreError> {
        let mut progress = BatchProgress::default();
        for run in self.starts.due(limit).await? {
            progress.add(self.enqueue_due_start(run).await)?;
        }
        progress.into_result()
    }

    /// False: another caller unscheduled, rescheduled, cancelled or sent the campaign first, or it is too late.
    async fn enqueue_due_start(&self, run: QueuedRun) -> Result<bool, StoreError> {
        let Some(stored) = self.store.find(run.account_id, run.campaign_id).await? else {
            return Ok(false);
        };
        // Campaigns that were scheduled before `scheduled_by` existed start on behalf of their creator.
        let creator = stored.created_by.map(|user_id| Scheduler {
            user_id,
            support_admin: None,
        });
        let actor = stored.scheduled_by.clone().or(creator).map(|scheduler| Actor {
            user_id: scheduler.user_id,
            ip_address: None,
            support_admin: scheduler.support_admin,
        });
        if let Some(facts) = self.late_facts(&stored).await? {
            return self.skip(&stored, facts.now, actor.as_ref()).await.map(|()| false);
        }
        let audit = Audit {
            user_id: actor.as_ref().map(|actor| actor.user_id),
            action: AuditAction::Create,
            entity_type: "campaign_send".to_owned(),
            entity_id: Some(run.campaign_id.0),
            changes: Some(json!({ "scheduled": true })),
            ip_address: None,
            support_admin: actor.as_ref().and_then(|actor| actor.support_admin.clone()),
        };
        match start_request(stored, Trigger::Schedule, actor, audit, self.clock.now()) {
            Ok(start_request) => Ok(self.starts.enqueue_start(&start_request).await? == WriteOutcome::Done),
            Err(_) => Ok(false),
        }
    }

    /// The facts of a campaign that is too late. A short delay is not too late for any policy.
    async fn late_facts(&self, stored: &Campaign) -> Result<Option<RunFacts>, StoreError> {
        if stored.status != CampaignStatus::Scheduled
            || delay(stored, self.clock.now()) < Duration::seconds(MIN_DELAY.into())
        {
            return Ok(None);
        }
        let facts = self.starts.facts(stored.account_id, stored.id).await?;
        Ok(facts.filter(RunFacts::is_too_late))
    }

    /// Makes a campaign that is too late a draft again. A concurrent change of it wins.
    async fn skip(&self, stored: &Campaign, now: OffsetDateTime, actor: Option<&Actor>) -> Result<(), StoreError> {
        let Ok(status) = transition(stored.status, Command::Unschedule) else {
            return Ok(());
        };
        let skipped = Campaign {
            status,
            skipped_at: Some(now),
            updated_at: now,
            ..stored.clone()
        };
        self.store.update(&skipped, stored, &skip_events(stored, actor)).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::prepare::tests::facts;
    use super::super::service::tests::{NOW, campaign, campaigns_over, tenant};
    use super::super::{MockCampaignStore, MockRunRetryStore, MockRunStartStore, ScheduleInput};
    use super::*;
    use crate::settings::LatePolicy;
    use crate::shared::CampaignId;

    const ID: CampaignId = CampaignId(Uuid::from_u128(1));

    fn campaigns(store: MockCampaignStore, starts: MockRunStartStore) -> Campaigns {
        campaigns_over(store, starts, MockRunRetryStore::new())
    }

    fn stored(campaign: Campaign) -> MockCampaignStore {
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(move |_, _| Ok(Some(campaign.clone())));
        store
    }

    fn due_run() -> QueuedRun {
        QueuedRun {
            account_id: tenant().account_id,
            campaign_id: ID,
        }
    }

    #[tokio::test]
    async fn due_campaign_is_enqueued_unless_it_changed() {
        let stale = WriteOutcome::Stale(CampaignStatus::Draft);
        for (status, writes, outcome, enqueued) in [
            (CampaignStatus::Scheduled, 1, WriteOutcome::Done, 1),
            (CampaignStatus::Scheduled, 1, stale, 0),
            (CampaignStatus::Cancelled, 0, stale, 0),
        ] {
            let mut starts = MockRunStartStore::new();
            starts.expect_due().returning(|_| Ok(vec![due_run()]));
            starts
                .expect_enqueue_start()
                .times(writes)
                .withf(|start_request| start_request.run.trigger == Trigger::Schedule)
                .returning(move |_| Ok(outcome));
            let due = campaigns(stored(campaign(status)), starts).enqueue_due_starts(10).await;
            assert_eq!(due.unwrap(), enqueued);
        }
    }

    #[tokio::test]
    async fn due_campaign_that_fails_does_not_stop_the_others() {
        for (good, succeeds) in [(1, true), (0, false)] {
            let mut store = MockCampaignStore::new();
            store
                .expect_find()
                .times(1)
                .return_once(|_, _| Err(StoreError::Corrupt("x".into())));
            store
                .expect_find()
                .returning(|_, _| Ok(Some(campaign(CampaignStatus::Scheduled))));
            let mut starts = MockRunStartStore::new();
            starts.expect_due().returning(move |_| Ok(vec![due_run(); 1 + good]));
            starts
                .expect_enqueue_start()
                .times(good)
                .returning(|_| Ok(WriteOutcome::Done));
            let due = campaigns(store, starts).enqueue_due_starts(10).await;
            assert_eq!(due.is_ok(), succeeds, "{due:?}");
        }
    }

    fn policy(within: u32, otherwise: LateAction) -> Option<LatePolicy> {
        Some(LatePolicy { within, otherwise })
    }

    fn facts_of(campaign: Campaign, late_policy: Option<LatePolicy>) -> RunFacts {
        RunFacts {
            campaign,
            late_policy,
            ..facts()
        }
    }

    fn due(delay: Duration) -> Campaign {
        Campaign {
            scheduled_at: Some(NOW - delay),
            ..campaign(CampaignStatus::Scheduled)
        }
    }

    #[test]
    fn only_a_start_after_the_tolerated_delay_is_too_late() {
        let hour = policy(3600, LateAction::Skip);
        for (delay, policy, expected) in [
            (Duration::HOUR, hour, false),
            (Duration::HOUR + Duration::MILLISECOND, hour, true),
            (Duration::hours(2), policy(3600, LateAction::Send), false),
            (Duration::hours(2), None, false),
        ] {
            assert_eq!(
                facts_of(due(delay), policy).is_too_late(),
                expected,
                "{delay} {policy:?}"
            );
        }
        let without_time = facts_of(campaign(CampaignStatus::Scheduled), hour);
        assert!(!without_time.is_too_late());
    }

    #[tokio::test]
    async fn late_campaign_becomes_a_draft_and_is_not_enqueued() {
        for (policy, is_skipped) in [(policy(3600, LateAction::Skip), true), (None, false)] {
            let late = due(Duration::hours(2));
            let mut store = stored(late.clone());
            store
                .expect_update()
                .withf(|skipped, expected, events| {
                    let [Event::Audit(audit), Event::Notification(notification)] = events else {
                        return false;
                    };
                    (skipped.status, skipped.skipped_at) == (CampaignStatus::Draft, Some(NOW))
                        && expected.status == CampaignStatus::Scheduled
                        && (audit.action, audit.entity_type.as_str()) == (AuditAction::Update, "campaign")
                        && notification.kind == NotificationKind::Error
                })
                .times(usize::from(is_skipped))
                .returning(|_, _, _| Ok(WriteOutcome::Done));
            let mut starts = MockRunStartStore::new();
            starts.expect_due().returning(|_| Ok(vec![due_run()]));
            let facts = facts_of(late, policy);
            starts.expect_facts().returning(move |_, _| Ok(Some(facts.clone())));
            starts
                .expect_enqueue_start()
                .times(usize::from(!is_skipped))
                .returning(|_| Ok(WriteOutcome::Done));
            let enqueued = campaigns(store, starts).enqueue_due_starts(10).await;
            assert_eq!(enqueued.unwrap(), usize::from(!is_skipped));
        }
    }

    #[test]
    fn schedule_checks_its_late_policy() {
        for (within, is_valid) in [(59, false), (60, true), (86_400, true), (86_401, false)] {
            let input = ScheduleInput {
                scheduled_at: None,
                late_policy: Some(policy(within, LateAction::Skip)),
            };
            assert_eq!(input.check().is_ok(), is_valid, "{within}");
        }
    }
}
