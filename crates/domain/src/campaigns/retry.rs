//! The use cases that retry the failed sends of an ended run, now or at a scheduled time.

use serde_json::json;

use super::batch_progress::BatchProgress;
use super::{
    Campaign, CampaignError, CampaignRefusal, Campaigns, Command, DueRetry, QueuedStart, RetryOutcome, RetryReport,
    RetryRequest, RetrySchedule, Scheduler, Trigger, prepare_retry,
};
use crate::shared::{
    Actor, AuditAction, CampaignId, Event, NotificationDraft, NotificationKind, StoreError, Tenant, WriteOutcome,
};

/// A campaign whose failed sends are retried.
#[derive(Clone, Debug, PartialEq)]
pub struct RetriedCampaign {
    pub campaign: Campaign,
    /// The failed sends that the retry sends again, and those that it leaves out. For a scheduled retry: the expected
    /// report at its time, from the current state.
    pub retry: RetryReport,
}

impl Campaigns {
    /// Retries failed sends of a completed or partial campaign, or schedules the retry. Replaces a scheduled retry.
    pub async fn retry_failed(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        request: RetryRequest,
    ) -> Result<RetriedCampaign, CampaignError> {
        let now = self.clock.now();
        request.check(now)?;
        if request.not_before.is_some_and(|at| at > now) {
            return self.schedule_retry(tenant, id, request).await;
        }
        let facts = self.starts.facts(tenant.account_id, id).await?;
        let run = QueuedStart {
            trigger: Trigger::Retry,
            actor: Some(tenant.actor.clone()),
        };
        let retry = prepare_retry(facts.ok_or(CampaignError::NotFound)?, run, request)?;
        match self.retries.retry(&retry).await? {
            RetryOutcome::Started { report, .. } => Ok(RetriedCampaign {
                campaign: self.with_current_cost(retry.campaign).await,
                retry: report,
            }),
            RetryOutcome::Refused(refusal) => Err(refusal.into()),
            RetryOutcome::Missing => Err(CampaignError::NotFound),
        }
    }

    async fn schedule_retry(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        request: RetryRequest,
    ) -> Result<RetriedCampaign, CampaignError> {
        self.apply_command(tenant, id, Command::ScheduleRetry, async |stored, status| {
            stored.check_not_archived()?;
            let audit = tenant.audit(AuditAction::Update, "campaign", id);
            let schedule = RetrySchedule {
                expected_version: stored.version,
                campaign: Campaign {
                    status,
                    retry_scheduled_at: request.not_before,
                    updated_at: self.clock.now(),
                    ..stored
                },
                request: request.clone(),
                scheduler: Scheduler {
                    user_id: tenant.actor.user_id,
                    support_admin: tenant.actor.support_admin.clone(),
                },
                events: vec![Event::Audit(audit.with_changes(json!({ "retry": request.changes() })))],
            };
            let (write, report) = self.retries.schedule_retry(&schedule).await?;
            let campaign = schedule.campaign;
            Ok((
                write,
                RetriedCampaign {
                    campaign,
                    retry: report,
                },
            ))
        })
        .await
    }

    /// Cancels a scheduled retry. The campaign's status does not change.
    pub(super) async fn unschedule_retry(&self, tenant: &Tenant, id: CampaignId) -> Result<Campaign, CampaignError> {
        self.apply_command(tenant, id, Command::ScheduleRetry, async |stored, status| {
            if stored.retry_scheduled_at.is_none() {
                let command = Command::Unschedule;
                return Err(CampaignRefusal::Status { status, command }.into());
            }
            let audit = tenant.audit(AuditAction::Update, "campaign", id);
            let events = [Event::Audit(audit.with_changes(json!({ "retry": null })))];
            let campaign = Campaign {
                status,
                retry_scheduled_at: None,
                updated_at: self.clock.now(),
                ..stored.clone()
            };
            Ok((self.store.update(&campaign, &stored, &events).await?, campaign))
        })
        .await
    }

    /// Starts up to `limit` due retries on behalf of the users who scheduled them. Returns the number of started and
    /// refused retries. The failure of one retry does not stop the others; it is returned if no retry was done.
    pub async fn start_due_retries(&self, limit: i64) -> Result<usize, StoreError> {
        let mut progress = BatchProgress::default();
        for due in self.retries.due_retries(limit).await? {
            progress.add(self.start_due_retry(due).await)?;
        }
        progress.into_result()
    }

    /// False: another caller replaced, cancelled or started the retry.
    async fn start_due_retry(&self, due: DueRetry) -> Result<bool, StoreError> {
        let DueRetry {
            run,
            request,
            scheduler,
        } = due;
        let Some(facts) = self.starts.facts(run.account_id, run.campaign_id).await? else {
            return Ok(false);
        };
        if facts.campaign.retry_scheduled_at != request.not_before {
            return Ok(false);
        }
        let (stored, now) = (facts.campaign.clone(), facts.now);
        let on_behalf = QueuedStart {
            trigger: Trigger::Retry,
            actor: Some(Actor {
                user_id: scheduler.user_id,
                ip_address: None,
                support_admin: scheduler.support_admin,
            }),
        };
        let refusal = match prepare_retry(facts, on_behalf, request) {
            Err(refusal) => refusal,
            Ok(retry) => match self.retries.retry(&retry).await? {
                RetryOutcome::Started { .. } => return Ok(true),
                RetryOutcome::Missing
                | RetryOutcome::Refused(CampaignRefusal::Contended | CampaignRefusal::Status { .. }) => {
                    return Ok(false);
                }
                RetryOutcome::Refused(refusal) => refusal,
            },
        };
        let ended = Campaign {
            retry_scheduled_at: None,
            updated_at: now,
            ..stored.clone()
        };
        let events = [Event::Notification(refused_retry_notification(&ended, &refusal))];
        Ok(self.store.update(&ended, &stored, &events).await? == WriteOutcome::Done)
    }
}

fn refused_retry_notification(campaign: &Campaign, refusal: &CampaignRefusal) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Warning,
        title: format!("Failed sends not retried: {}", campaign.name),
        message: format!("The scheduled retry did not start: {refusal}."),
        data: json!({ "campaign_id": campaign.id, "reason": refusal.reason() }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use time::{Duration, OffsetDateTime};

    use super::super::prepare::tests::facts;
    use super::super::retry_request::MAX_DELAY;
    use super::super::service::tests::{NOW, campaign, campaigns_over, tenant};
    use super::super::{CampaignStatus, MockCampaignStore, MockRunRetryStore, MockRunStartStore, QueuedRun, RunFacts};
    use super::*;

    fn ended() -> Campaign {
        Campaign {
            template_id: facts().campaign.template_id,
            completed_at: Some(NOW),
            ..campaign(CampaignStatus::Partial)
        }
    }

    fn facts_of(campaign: Campaign) -> RunFacts {
        RunFacts { campaign, ..facts() }
    }

    fn request_at(not_before: OffsetDateTime) -> RetryRequest {
        RetryRequest {
            codes: Some(vec![131_026]),
            not_before: Some(not_before),
            force: true,
        }
    }

    fn started() -> RetryOutcome {
        let report = RetryReport {
            tried: 2,
            left_out: vec![],
        };
        RetryOutcome::Started { recipients: 2, report }
    }

    #[tokio::test]
    async fn retry_request_is_checked_before_the_campaign_is_read() {
        let with_codes = |count| RetryRequest {
            codes: Some(vec![1; count]),
            ..RetryRequest::default()
        };
        let late = request_at(NOW + MAX_DELAY + Duration::SECOND);
        for (request, field) in [
            (with_codes(0), "codes"),
            (with_codes(51), "codes"),
            (late, "not_before"),
        ] {
            let campaigns = campaigns_over(
                MockCampaignStore::new(),
                MockRunStartStore::new(),
                MockRunRetryStore::new(),
            );
            let refused = campaigns.retry_failed(&tenant(), ended().id, request).await;
            assert!(
                matches!(&refused, Err(CampaignError::Invalid(errors)) if errors.0.contains_key(field)),
                "{refused:?}"
            );
        }
        for request in [with_codes(1), with_codes(50), request_at(NOW + MAX_DELAY)] {
            request.check(NOW).unwrap();
        }
    }

    #[tokio::test]
    async fn retry_succeeds_if_the_store_finds_failed_sends() {
        let nothing = CampaignRefusal::NothingToRetry { left_out: vec![] };
        for (outcome, succeeds) in [
            (started(), true),
            (RetryOutcome::Refused(nothing), false),
            (RetryOutcome::Refused(CampaignRefusal::Contended), false),
            (RetryOutcome::Missing, false),
        ] {
            let (mut starts, mut retries) = (MockRunStartStore::new(), MockRunRetryStore::new());
            starts.expect_facts().returning(|_, _| Ok(Some(facts_of(ended()))));
            retries
                .expect_retry()
                .times(1)
                .withf(|retry| retry.request == request_at(NOW) && retry.expected_version == retry.campaign.version)
                .returning(move |_| Ok(outcome.clone()));
            let mut store = MockCampaignStore::new();
            store.expect_find().returning(|_, _| Ok(Some(ended())));
            let retried = campaigns_over(store, starts, retries)
                .retry_failed(&tenant(), ended().id, request_at(NOW))
                .await;
            assert_eq!(retried.is_ok(), succeeds);
        }
    }

    #[tokio::test]
    async fn retry_in_the_future_is_scheduled_and_audited() {
        let time = NOW + Duration::DAY;
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(|_, _| Ok(Some(ended())));
        let (starts, mut retries) = (MockRunStartStore::new(), MockRunRetryStore::new());
        retries
            .expect_schedule_retry()
            .times(1)
            .withf(move |schedule| {
                let audited =
                    json!({ "retry": { "codes": [131_026], "not_before": "2026-03-02T12:00:00.000Z", "force": true } });
                schedule.request == request_at(time)
                    && schedule.scheduler.user_id == tenant().actor.user_id
                    && matches!(&schedule.events[..], [Event::Audit(audit)] if audit.changes == Some(audited))
            })
            .returning(|_| Ok((WriteOutcome::Done, RetryReport::default())));
        let scheduled = campaigns_over(store, starts, retries)
            .retry_failed(&tenant(), ended().id, request_at(time))
            .await
            .unwrap();
        assert_eq!(
            (scheduled.campaign.status, scheduled.campaign.retry_scheduled_at),
            (CampaignStatus::Partial, Some(time))
        );
        let mut sending = MockCampaignStore::new();
        sending
            .expect_find()
            .returning(|_, _| Ok(Some(campaign(CampaignStatus::Sending))));
        let refused = campaigns_over(sending, MockRunStartStore::new(), MockRunRetryStore::new())
            .retry_failed(&tenant(), ended().id, request_at(time))
            .await;
        assert!(matches!(
            refused,
            Err(CampaignError::Refused(CampaignRefusal::Status { .. }))
        ));
    }

    #[tokio::test]
    async fn unschedule_cancels_a_scheduled_retry_only() {
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(|_, _| {
            Ok(Some(Campaign {
                retry_scheduled_at: Some(NOW),
                ..ended()
            }))
        });
        store
            .expect_update()
            .times(1)
            .returning(|_, _, _| Ok(WriteOutcome::Done));
        let unscheduled = campaigns_over(store, MockRunStartStore::new(), MockRunRetryStore::new())
            .unschedule(&tenant(), ended().id)
            .await
            .unwrap();
        assert_eq!(
            (unscheduled.status, unscheduled.retry_scheduled_at),
            (CampaignStatus::Partial, None)
        );
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(|_, _| Ok(Some(ended())));
        let refused = campaigns_over(store, MockRunStartStore::new(), MockRunRetryStore::new())
            .unschedule(&tenant(), ended().id)
            .await;
        assert!(matches!(
            refused,
            Err(CampaignError::Refused(CampaignRefusal::Status { .. }))
        ));
    }

    fn due() -> DueRetry {
        DueRetry {
            run: QueuedRun {
                account_id: tenant().account_id,
                campaign_id: ended().id,
            },
            request: request_at(NOW),
            scheduler: Scheduler {
                user_id: tenant().actor.user_id,
                support_admin: None,
            },
        }
    }

    #[tokio::test]
    async fn due_retry_starts_or_is_refused_with_a_warning() {
        let nothing = CampaignRefusal::NothingToRetry { left_out: vec![] };
        for (outcome, done, warnings) in [
            (started(), 1, 0),
            (RetryOutcome::Refused(nothing), 1, 1),
            (RetryOutcome::Refused(CampaignRefusal::NoActivePlan), 1, 1),
            (RetryOutcome::Refused(CampaignRefusal::Contended), 0, 0),
            (RetryOutcome::Missing, 0, 0),
        ] {
            let (mut starts, mut retries) = (MockRunStartStore::new(), MockRunRetryStore::new());
            retries.expect_due_retries().returning(|_| Ok(vec![due()]));
            starts.expect_facts().returning(|_, _| {
                Ok(Some(facts_of(Campaign {
                    retry_scheduled_at: Some(NOW),
                    ..ended()
                })))
            });
            let retry_outcome = outcome.clone();
            retries
                .expect_retry()
                .withf(|retry| retry.campaign.retry_scheduled_at.is_none() && retry.run.actor.is_some())
                .returning(move |_| Ok(retry_outcome.clone()));
            let events = Arc::new(Mutex::new(Vec::new()));
            let log = events.clone();
            let mut store = MockCampaignStore::new();
            store.expect_update().returning(move |campaign, _, committed| {
                assert_eq!(campaign.retry_scheduled_at, None);
                log.lock().unwrap().extend(committed.to_vec());
                Ok(WriteOutcome::Done)
            });
            let started = campaigns_over(store, starts, retries)
                .start_due_retries(10)
                .await
                .unwrap();
            let events = events.lock().unwrap();
            assert_eq!((started, events.len()), (done, warnings), "{outcome:?}");
            let warning =
                |event: &Event| matches!(event, Event::Notification(n) if n.kind == NotificationKind::Warning);
            assert!(events.iter().all(warning));
        }
    }

    #[tokio::test]
    async fn due_retry_that_was_replaced_does_nothing() {
        for retry_scheduled_at in [None, Some(NOW + Duration::HOUR)] {
            let (mut starts, mut retries) = (MockRunStartStore::new(), MockRunRetryStore::new());
            retries.expect_due_retries().returning(|_| Ok(vec![due()]));
            starts.expect_facts().returning(move |_, _| {
                Ok(Some(facts_of(Campaign {
                    retry_scheduled_at,
                    ..ended()
                })))
            });
            let started = campaigns_over(MockCampaignStore::new(), starts, retries)
                .start_due_retries(10)
                .await;
            assert_eq!(started.unwrap(), 0);
        }
    }
}
