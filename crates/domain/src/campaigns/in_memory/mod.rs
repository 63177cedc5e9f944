//! An in-memory store of campaigns, runs and sends: the reference that the store in PostgreSQL is compared with, and
//! the store of the dispatcher's tests. It creates every send at the start of the run, and a retry resets all its sends
//! at once. It does not store templates, segments and scheduled retries.

mod holds;
mod rules;
mod sends;
mod tables;

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use time::{Date, Duration};
use uuid::Uuid;

use super::{
    Campaign, CampaignQuery, CampaignStats, CampaignStatus, CampaignStore, ClaimOutcome, ClaimPosition, DueRetry,
    EnqueueStart, HeldSends, PreviewFacts, QueuedRun, QueuedStart, RemainingCosts, ResumeFacts, RetryOutcome,
    RetryReport, RetrySchedule, RunFacts, RunInputs, RunQueue, RunReport, RunRetry, RunRetryStore, RunStart,
    RunStartStore, RunStore, RunSweepStore, SendResult, SendStore, SendsPage, StartOutcome, StartedSends,
    TestRecipient, TestSendFacts, TestSendStore, pause_notification,
};
use crate::billing::PlanEntitlement;
use crate::shared::{
    AccountId, CampaignId, Event, Page, PageQuery, SendId, StoreError, TemplateId, WorkOutcome, WriteOutcome,
};

pub use tables::*;

/// The stores of campaigns over [`RunTables`].
#[derive(Debug)]
pub struct InMemoryRuns(Mutex<RunTables>);

impl InMemoryRuns {
    pub fn new(tables: RunTables) -> Self {
        Self(Mutex::new(tables))
    }

    pub fn tables(&self) -> MutexGuard<'_, RunTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of methods that no test calls.
fn unsupported<T>() -> Result<T, StoreError> {
    Err(StoreError::Failed("the in-memory store does not support it".into()))
}

#[async_trait]
impl CampaignStore for InMemoryRuns {
    async fn unknown_references(&self, _: AccountId, _: &Campaign) -> Result<Vec<String>, StoreError> {
        Ok(vec![])
    }

    async fn insert(&self, campaign: &Campaign, events: &[Event]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        tables.add(campaign.clone());
        tables.events.extend_from_slice(events);
        Ok(())
    }

    async fn find(&self, _: AccountId, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        Ok(self.tables().campaigns.get(&id).map(|row| row.campaign.clone()))
    }

    async fn list(&self, _: AccountId, _: &CampaignQuery) -> Result<Page<Campaign>, StoreError> {
        unsupported()
    }

    async fn update(
        &self,
        campaign: &Campaign,
        expected: &Campaign,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        Ok(self.tables().update(campaign, expected, events))
    }

    async fn delete(
        &self,
        campaign: &Campaign,
        expected: CampaignStatus,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        let mut tables = self.tables();
        Ok(match tables.status(campaign.id) {
            None => WriteOutcome::Missing,
            Some(status) if status != expected => WriteOutcome::Stale(status),
            Some(_) => {
                tables.campaigns.remove(&campaign.id);
                tables.events.extend_from_slice(events);
                WriteOutcome::Done
            }
        })
    }

    async fn preview_facts(&self, _: AccountId, _: CampaignId, _: i64) -> Result<Option<PreviewFacts>, StoreError> {
        unsupported()
    }

    async fn stats(&self, _: AccountId, id: CampaignId) -> Result<Option<CampaignStats>, StoreError> {
        let tables = self.tables();
        Ok(tables.campaigns.get(&id).map(|row| {
            let waiting = tables.entry(id).and_then(|entry| entry.waiting);
            CampaignStats {
                counts: row.counts.unwrap_or_default(),
                held: waiting.map_or(0, |held| held.count),
                waiting_until: waiting.map(|held| held.until),
            }
        }))
    }

    async fn sends(&self, _: AccountId, _: CampaignId, _: PageQuery) -> Result<Option<SendsPage>, StoreError> {
        unsupported()
    }
}

#[async_trait]
impl RunStartStore for InMemoryRuns {
    async fn facts(&self, _: AccountId, id: CampaignId) -> Result<Option<RunFacts>, StoreError> {
        let tables = self.tables();
        Ok(tables.campaigns.get(&id).map(|row| RunFacts {
            campaign: row.campaign.clone(),
            template: row.template.clone(),
            content_frozen: row.counts.is_some(),
            profile_id: row.profile_id,
            number_unverified: false,
            billing: PlanEntitlement {
                plan: "free".to_owned(),
                granted: None,
                subscriptions: vec![],
            },
            late_policy: None,
            now: tables.now,
        }))
    }

    async fn resume_facts(&self, _: AccountId, _: CampaignId) -> Result<Option<ResumeFacts>, StoreError> {
        unsupported()
    }

    async fn remaining_costs(&self, _: AccountId, _: CampaignId) -> Result<Option<RemainingCosts>, StoreError> {
        unsupported()
    }

    async fn start(&self, start: &RunStart, worker: Option<Uuid>, lease: Duration) -> Result<StartOutcome, StoreError> {
        Ok(self.tables().start(start, worker, lease))
    }

    async fn enqueue_start(&self, start_request: &EnqueueStart) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        Ok(self.tables().enqueue_start(start_request))
    }

    async fn queued_start(&self, run: QueuedRun) -> Result<Option<QueuedStart>, StoreError> {
        let tables = self.tables();
        let entry = tables.entry(run.campaign_id).filter(|entry| !entry.prepared);
        Ok(entry.map(|entry| entry.start.clone()))
    }

    async fn abort_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError> {
        self.tables().abort_start(run.campaign_id, status, events);
        Ok(())
    }

    async fn skip_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError> {
        self.abort_start(run, status, events).await
    }

    async fn due(&self, _: i64) -> Result<Vec<QueuedRun>, StoreError> {
        unsupported()
    }
}

#[async_trait]
impl RunRetryStore for InMemoryRuns {
    /// Ignores the request: retries each send that may be retried now. Reports no sends that are left out.
    async fn retry(&self, retry: &RunRetry) -> Result<RetryOutcome, StoreError> {
        Ok(self.tables().retry(retry))
    }

    async fn schedule_retry(
        &self,
        _: &RetrySchedule,
    ) -> Result<(WriteOutcome<CampaignStatus>, RetryReport), StoreError> {
        unsupported()
    }

    async fn due_retries(&self, _: i64) -> Result<Vec<DueRetry>, StoreError> {
        unsupported()
    }
}

#[async_trait]
impl RunQueue for InMemoryRuns {
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<QueuedRun>, StoreError> {
        Ok(self.tables().take(worker, lease))
    }

    async fn has_waiting(&self) -> Result<bool, StoreError> {
        Ok(self.tables().waiting().is_some())
    }

    async fn release(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        self.tables().release(run.campaign_id, worker, None);
        Ok(())
    }

    async fn postponements(&self, run: QueuedRun) -> Result<u32, StoreError> {
        let tables = self.tables();
        let postponed = tables.entry(run.campaign_id).and_then(|entry| entry.postponed);
        Ok(postponed.map_or(0, |(count, _)| count))
    }

    async fn postpone(&self, run: QueuedRun, worker: Uuid, delay: Duration) -> Result<(), StoreError> {
        self.tables().release(run.campaign_id, worker, Some(delay));
        Ok(())
    }

    async fn wait(&self, run: QueuedRun, worker: Uuid, held: HeldSends) -> Result<(), StoreError> {
        self.tables().wait(run.campaign_id, worker, held);
        Ok(())
    }

    async fn abandon(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if tables.holder(run.campaign_id) == Some(worker) {
            tables.abandon(run.campaign_id);
        }
        Ok(())
    }
}

#[async_trait]
impl RunStore for InMemoryRuns {
    async fn inputs(&self, run: QueuedRun) -> Result<Option<RunInputs>, StoreError> {
        let tables = self.tables();
        let (row, account) = (tables.campaigns.get(&run.campaign_id), tables.account(run.campaign_id));
        Ok(row.zip(account).and_then(|(row, account)| {
            let profile_id = row.profile_id.filter(|_| !row.campaign.simulated);
            Some(RunInputs {
                campaign: row.campaign.clone(),
                template: row.template.clone()?,
                profile: profile_id.and_then(|id| account.profiles.get(&id)).cloned(),
            })
        }))
    }

    async fn pause(&self, run: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if tables.pause(run.campaign_id, reason) {
            tables.events.extend_from_slice(events);
        }
        Ok(())
    }

    async fn pause_template(&self, account: AccountId, template: TemplateId, reason: &str) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let campaigns: Vec<Campaign> = tables.campaigns.values().map(|row| row.campaign.clone()).collect();
        for campaign in campaigns {
            let is_run = (campaign.account_id, campaign.template_id) == (account, Some(template));
            if is_run && !campaign.simulated && tables.pause(campaign.id, reason) {
                let notification = pause_notification(campaign.id, &campaign.name, reason);
                tables.events.push(Event::Notification(notification));
            }
        }
        Ok(())
    }

    async fn finish(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        Ok(self.tables().finish(run.campaign_id))
    }

    async fn report(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        let tables = self.tables();
        let (row, account) = (tables.campaigns.get(&run.campaign_id), tables.account(run.campaign_id));
        Ok(row.zip(account).map(|(row, account)| {
            let mut report = RunReport::of(&row.campaign, &row.counts.unwrap_or_default());
            report.paused |= account.suspended && row.campaign.status == CampaignStatus::Sending;
            if let Some(held) = row.queue_entry.as_ref().and_then(|entry| entry.waiting) {
                (report.waiting, report.waiting_until) = (held.count, Some(held.until));
            }
            report
        }))
    }
}

#[async_trait]
impl SendStore for InMemoryRuns {
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let after = position.map(|position| position.after);
        Ok(self.tables().claim(run.campaign_id, worker, after, size, lease))
    }

    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError> {
        Ok(self.tables().record_and_start(run.campaign_id, worker, results, next))
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        self.tables().record(run.campaign_id, results);
        Ok(())
    }
}

#[async_trait]
impl RunSweepStore for InMemoryRuns {
    async fn sweep_queue(&self, _: i64) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn fold_counters(&self, _: i64) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn materialize_sends(&self) -> Result<WorkOutcome, StoreError> {
        Ok(WorkOutcome::Done)
    }

    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError> {
        Ok(self.tables().fail_unknown(ttl, limit))
    }
}

#[async_trait]
impl TestSendStore for InMemoryRuns {
    async fn facts(&self, _: AccountId, _: CampaignId, _: &TestRecipient) -> Result<Option<TestSendFacts>, StoreError> {
        unsupported()
    }

    async fn reserve_message(&self, account: AccountId, limit: i64, _: &[Event]) -> Result<Option<Date>, StoreError> {
        let mut tables = self.tables();
        let reserved = tables.reserve_test_send(account, limit);
        Ok(reserved.then_some(tables.now.date()))
    }

    async fn release_message(&self, account: AccountId, _: Date) -> Result<(), StoreError> {
        if let Some(account) = self.tables().accounts.get_mut(&account) {
            account.test_sends = (account.test_sends - 1).max(0);
        }
        Ok(())
    }
}
