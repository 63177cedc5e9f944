//! The use cases that start, schedule, pause and resume campaigns.

use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::concurrent_commands::START_ATTEMPTS;
use super::preconditions::{check_number, check_sendable, failed_resume_precondition};
use super::preview::no_rate;
use super::service::RUN_LEASE;
use super::{
    Campaign, CampaignError, CampaignRefusal, CampaignStatus, Campaigns, Command, EnqueueStart, QueuedRun, QueuedStart,
    ScheduleInput, Scheduler, StartOutcome, Trigger, prepare, transition,
};
use crate::shared::{Actor, Audit, AuditAction, CampaignId, Event, Tenant, WriteOutcome, retry_up_to};

/// The pause reason of a run that a member paused.
const PAUSED_BY_HAND: &str = "paused by a member of the account";

impl Campaigns {
    /// Starts the run of a campaign, leased to `worker` if one is given. After `Ok` the run continues even if the
    /// caller stops.
    pub async fn start(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        worker: Option<Uuid>,
    ) -> Result<QueuedRun, CampaignError> {
        let run = QueuedStart {
            trigger: Trigger::Execute,
            actor: Some(tenant.actor.clone()),
        };
        retry_up_to(START_ATTEMPTS, async || {
            let facts = self.starts.facts(tenant.account_id, id).await?;
            let facts = facts.ok_or(CampaignError::NotFound)?;
            let start = prepare(facts, Command::Start, run.clone())?;
            match self.starts.start(&start, worker, RUN_LEASE).await? {
                StartOutcome::Started { .. } => Ok(Some(QueuedRun {
                    account_id: tenant.account_id,
                    campaign_id: id,
                })),
                StartOutcome::Refused(refusal) => Err(refusal.into()),
                StartOutcome::Missing => Err(CampaignError::NotFound),
                StartOutcome::Changed => Ok(None),
            }
        })
        .await
    }

    /// Sets a campaign to `sending` at once and enqueues its start. Refuses only if the status does not allow it or the
    /// template can never be sent, or if the number is not verified; a worker checks the other preconditions.
    pub async fn enqueue_start(&self, tenant: &Tenant, id: CampaignId) -> Result<Campaign, CampaignError> {
        self.apply_command(tenant, id, Command::Start, async |stored, _| {
            self.check_template_and_number(&stored).await?;
            self.check_rates(&stored).await?;
            let audit = tenant.audit(AuditAction::Create, "campaign_send", id);
            let actor = Some(tenant.actor.clone());
            let start_request = start_request(stored, Trigger::Send, actor, audit, self.clock.now())?;
            let write = self.starts.enqueue_start(&start_request).await?;
            Ok((write, start_request.campaign))
        })
        .await
    }

    /// Schedules a campaign for a time in the future: the given one, or the time that the campaign already has.
    pub async fn schedule(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        input: ScheduleInput,
    ) -> Result<Campaign, CampaignError> {
        input.check()?;
        self.apply_command(tenant, id, Command::Schedule, async |stored, status| {
            self.check_template(&stored).await?;
            let now = self.clock.now();
            let at = input.scheduled_at.or(stored.scheduled_at).filter(|at| *at > now);
            let scheduled = Campaign {
                status,
                scheduled_at: Some(at.ok_or(CampaignRefusal::NotInFuture)?),
                scheduled_by: Some(Scheduler {
                    user_id: tenant.actor.user_id,
                    support_admin: tenant.actor.support_admin.clone(),
                }),
                late_policy: input.late_policy.flatten(),
                skipped_at: None,
                updated_at: now,
                ..stored.clone()
            };
            self.store_transition(tenant, scheduled, &stored).await
        })
        .await
    }

    /// Makes a scheduled campaign a draft again, which keeps its time. Cancels the scheduled retry of an ended
    /// campaign.
    pub async fn unschedule(&self, tenant: &Tenant, id: CampaignId) -> Result<Campaign, CampaignError> {
        if self.get(tenant, id).await?.retry_scheduled_at.is_some() {
            return self.unschedule_retry(tenant, id).await;
        }
        self.apply_command(tenant, id, Command::Unschedule, async |stored, status| {
            let draft = Campaign {
                status,
                late_policy: None,
                updated_at: self.clock.now(),
                ..stored.clone()
            };
            self.store_transition(tenant, draft, &stored).await
        })
        .await
    }

    /// Pauses a run. A run that is already paused keeps its reason.
    pub async fn pause(&self, tenant: &Tenant, id: CampaignId) -> Result<Campaign, CampaignError> {
        self.apply_command(tenant, id, Command::PauseOrResume, async |stored, _| {
            if stored.paused_at.is_some() {
                return Ok((WriteOutcome::Done, stored));
            }
            let now = self.clock.now();
            let paused = Campaign {
                paused_at: Some(now),
                pause_reason: Some(PAUSED_BY_HAND.to_owned()),
                updated_at: now,
                ..stored.clone()
            };
            self.store_transition(tenant, paused, &stored).await
        })
        .await
    }

    /// Resumes a paused run if the preconditions of a start still hold. The run pauses again if the cause of the pause
    /// still exists.
    pub async fn resume(&self, tenant: &Tenant, id: CampaignId) -> Result<Campaign, CampaignError> {
        let resumed = self.apply_command(tenant, id, Command::PauseOrResume, async |stored, _| {
            if stored.paused_at.is_none() {
                return Ok((WriteOutcome::Done, stored));
            }
            let facts = self.starts.resume_facts(tenant.account_id, id).await?;
            if let Some(refusal) = failed_resume_precondition(&facts.ok_or(CampaignError::NotFound)?) {
                return Err(refusal.into());
            }
            self.check_remaining_rates(&stored).await?;
            let resumed = Campaign {
                paused_at: None,
                pause_reason: None,
                updated_at: self.clock.now(),
                ..stored.clone()
            };
            self.store_transition(tenant, resumed, &stored).await
        });
        Ok(self.with_current_cost(resumed.await?).await)
    }

    /// Stores a campaign with its new status, and an audit entry with the old and the new status.
    async fn store_transition(
        &self,
        tenant: &Tenant,
        campaign: Campaign,
        expected: &Campaign,
    ) -> Result<(WriteOutcome<CampaignStatus>, Campaign), CampaignError> {
        let changes = json!({ "status": campaign.status, "previousStatus": expected.status,
                              "paused": campaign.paused_at.is_some() });
        let audit = tenant.audit(AuditAction::Update, "campaign", campaign.id);
        let events = [Event::Audit(audit.with_changes(changes))];
        Ok((self.store.update(&campaign, expected, &events).await?, campaign))
    }

    /// Refuses a campaign whose template has components that Recado cannot send. Waiting would not change that.
    pub(super) async fn check_template(&self, campaign: &Campaign) -> Result<(), CampaignError> {
        if campaign.template_id.is_none() {
            return Ok(());
        }
        let facts = self.starts.facts(campaign.account_id, campaign.id).await?;
        if let Some(template) = facts.and_then(|facts| facts.template) {
            check_sendable(&template)?;
        }
        Ok(())
    }

    /// Refuses a campaign with a budget if a recipient has no rate in its currency.
    async fn check_rates(&self, campaign: &Campaign) -> Result<(), CampaignError> {
        if campaign.budget.is_none() {
            return Ok(());
        }
        let facts = self.store.preview_facts(campaign.account_id, campaign.id, 0).await?;
        facts
            .as_ref()
            .and_then(no_rate)
            .map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Refuses a campaign that cannot be sent now: its template can never be sent, or its number is not verified.
    pub(super) async fn check_template_and_number(&self, campaign: &Campaign) -> Result<(), CampaignError> {
        if campaign.template_id.is_none() {
            return Ok(());
        }
        let facts = self.starts.facts(campaign.account_id, campaign.id).await?;
        let Some(facts) = facts else { return Ok(()) };
        if let Some(template) = &facts.template {
            check_sendable(template)?;
        }
        Ok(check_number(&facts)?)
    }
}

pub(super) fn start_request(
    stored: Campaign,
    trigger: Trigger,
    actor: Option<Actor>,
    audit: Audit,
    now: OffsetDateTime,
) -> Result<EnqueueStart, CampaignRefusal> {
    Ok(EnqueueStart {
        expected: stored.status,
        campaign: Campaign {
            status: transition(stored.status, Command::Start)?,
            skipped_at: None,
            updated_at: now,
            ..stored
        },
        run: QueuedStart { trigger, actor },
        events: vec![Event::Audit(audit)],
    })
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::super::service::tests::{NOW, campaign, campaigns_over, tenant};
    use super::super::{MockCampaignStore, MockRunRetryStore, MockRunStartStore, ResumeFacts, RunFacts};
    use super::*;
    use crate::billing::PlanEntitlement;
    use crate::settings::{LateAction, LatePolicy};
    use crate::templates::tests::approved_template;

    const ID: CampaignId = CampaignId(Uuid::from_u128(1));

    fn campaigns(store: MockCampaignStore, starts: MockRunStartStore) -> Campaigns {
        campaigns_over(store, starts, MockRunRetryStore::new())
    }

    fn stored(campaign: Campaign) -> MockCampaignStore {
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(move |_, _| Ok(Some(campaign.clone())));
        store
    }

    fn facts(status: CampaignStatus) -> RunFacts {
        let template = approved_template("Oi {{1}}!", &["Ana"]);
        RunFacts {
            campaign: Campaign {
                template_id: Some(template.id),
                ..campaign(status)
            },
            template: Some(template),
            content_frozen: false,
            profile_id: None,
            number_unverified: false,
            billing: PlanEntitlement {
                plan: "free".into(),
                granted: None,
                subscriptions: vec![],
            },
            late_policy: None,
            now: NOW,
        }
    }

    #[tokio::test]
    async fn start_repeats_while_the_campaign_changes() {
        for (changes, succeeds) in [(2, true), (3, false)] {
            let mut starts = MockRunStartStore::new();
            starts
                .expect_facts()
                .returning(|_, _| Ok(Some(facts(CampaignStatus::Draft))));
            starts
                .expect_start()
                .times(changes)
                .returning(|_, _, _| Ok(StartOutcome::Changed));
            starts
                .expect_start()
                .returning(|_, _, _| Ok(StartOutcome::Started { recipients: 1 }));
            let started = campaigns(MockCampaignStore::new(), starts)
                .start(&tenant(), ID, None)
                .await;
            assert_eq!(started.is_ok(), succeeds);
        }
    }

    #[tokio::test]
    async fn enqueue_start_sets_sending_at_once_and_audits_it() {
        let mut starts = MockRunStartStore::new();
        starts
            .expect_enqueue_start()
            .withf(|start_request| {
                let Some(Event::Audit(audit)) = start_request.events.first() else {
                    return false;
                };
                start_request.campaign.status == CampaignStatus::Sending
                    && start_request.expected == CampaignStatus::Draft
                    && (audit.action, audit.entity_type.as_str()) == (AuditAction::Create, "campaign_send")
            })
            .returning(|_| Ok(WriteOutcome::Done));
        let sent = campaigns(stored(campaign(CampaignStatus::Draft)), starts)
            .enqueue_start(&tenant(), ID)
            .await;
        assert_eq!(sent.unwrap().status, CampaignStatus::Sending);
        let again = campaigns(stored(campaign(CampaignStatus::Sending)), MockRunStartStore::new());
        let refused = again.enqueue_start(&tenant(), ID).await;
        assert!(matches!(
            refused,
            Err(CampaignError::Refused(CampaignRefusal::Status { .. }))
        ));
    }

    #[tokio::test]
    async fn late_policy_is_that_of_one_schedule() {
        let policy = Some(LatePolicy {
            within: 60,
            otherwise: LateAction::Skip,
        });
        let campaigns_with = |status| {
            let mut store = stored(Campaign {
                scheduled_at: Some(NOW + Duration::hours(1)),
                late_policy: policy,
                ..campaign(status)
            });
            store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
            campaigns(store, MockRunStartStore::new())
        };
        for (given, expected) in [(None, None), (Some(None), None), (Some(policy), policy)] {
            let input = ScheduleInput {
                scheduled_at: None,
                late_policy: given,
            };
            let scheduled = campaigns_with(CampaignStatus::Draft)
                .schedule(&tenant(), ID, input)
                .await;
            assert_eq!(scheduled.unwrap().late_policy, expected);
        }
        let draft = campaigns_with(CampaignStatus::Scheduled)
            .unschedule(&tenant(), ID)
            .await;
        assert_eq!(draft.unwrap().late_policy, None);
    }

    #[tokio::test]
    async fn schedule_requires_a_time_in_the_future() {
        let later = NOW + Duration::hours(1);
        let schedule = async |status, stored_time, new_time| {
            let mut store = stored(Campaign {
                scheduled_at: stored_time,
                ..campaign(status)
            });
            store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
            campaigns(store, MockRunStartStore::new())
                .schedule(&tenant(), ID, ScheduleInput::at(new_time))
                .await
        };
        use CampaignStatus::{Draft, Scheduled, Sending};
        for (status, stored_time, new_time) in [
            (Draft, None, Some(later)),
            (Draft, Some(later), None),
            (Scheduled, Some(NOW), Some(later)),
        ] {
            let scheduled = schedule(status, stored_time, new_time).await.unwrap();
            assert_eq!((scheduled.status, scheduled.scheduled_at), (Scheduled, Some(later)));
        }
        for (stored_time, new_time) in [(None, None), (Some(NOW), None), (Some(later), Some(NOW))] {
            let refused = schedule(Draft, stored_time, new_time).await;
            assert!(matches!(
                refused,
                Err(CampaignError::Refused(CampaignRefusal::NotInFuture))
            ));
        }
        assert!(schedule(Sending, None, Some(later)).await.is_err());
    }

    #[tokio::test]
    async fn resume_returns_the_cost_of_after_the_command() {
        let cost = |reserved: i64| crate::costs::CampaignCost {
            reserved: Some(reserved.into()),
            ..crate::costs::CampaignCost::default()
        };
        let mut store = MockCampaignStore::new();
        let mut reads = 0;
        store.expect_find().returning(move |_, _| {
            reads += 1;
            Ok(Some(Campaign {
                paused_at: Some(NOW),
                cost: cost(reads),
                ..campaign(CampaignStatus::Sending)
            }))
        });
        store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
        let mut starts = MockRunStartStore::new();
        starts.expect_resume_facts().returning(|_, _| Ok(Some(resume_facts())));
        let resumed = campaigns(store, starts).resume(&tenant(), ID).await.unwrap();
        assert_eq!((resumed.paused_at, resumed.cost), (None, cost(2)));
    }

    fn resume_facts() -> ResumeFacts {
        ResumeFacts {
            cost: crate::costs::CampaignCost::default(),
            run: facts(CampaignStatus::Sending),
            number_lost: false,
            quota: None,
        }
    }

    #[tokio::test]
    async fn pause_and_resume_can_be_repeated() {
        let paused_campaign = || Campaign {
            paused_at: Some(NOW),
            pause_reason: Some("token expired".into()),
            ..campaign(CampaignStatus::Sending)
        };
        let with = |campaign: Campaign, writes| {
            let mut store = stored(campaign);
            store
                .expect_update()
                .times(writes)
                .returning(|_, _, _| Ok(WriteOutcome::Done));
            let mut starts = MockRunStartStore::new();
            starts.expect_resume_facts().returning(|_, _| Ok(Some(resume_facts())));
            campaigns(store, starts)
        };
        let paused = with(campaign(CampaignStatus::Sending), 1)
            .pause(&tenant(), ID)
            .await
            .unwrap();
        assert_eq!((paused.status, paused.paused_at), (CampaignStatus::Sending, Some(NOW)));
        assert!(paused.pause_reason.is_some());
        let again = with(paused_campaign(), 0).pause(&tenant(), ID).await.unwrap();
        assert_eq!(again.pause_reason.as_deref(), Some("token expired"));
        let resumed = with(paused_campaign(), 1).resume(&tenant(), ID).await.unwrap();
        assert_eq!((resumed.paused_at, resumed.pause_reason), (None, None));
        with(campaign(CampaignStatus::Sending), 0)
            .resume(&tenant(), ID)
            .await
            .unwrap();
        assert!(
            with(campaign(CampaignStatus::Draft), 0)
                .pause(&tenant(), ID)
                .await
                .is_err()
        );
        assert!(
            with(campaign(CampaignStatus::Draft), 0)
                .resume(&tenant(), ID)
                .await
                .is_err()
        );
    }
}
