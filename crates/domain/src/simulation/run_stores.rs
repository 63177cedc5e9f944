//! The stores of campaigns.

use async_trait::async_trait;
use time::Duration;
use uuid::Uuid;

use super::bugs::SimulationBug;
use super::ledger::StartFacts;
use super::stores::{Stores, Written};
use crate::campaigns::{
    Campaign, CampaignQuery, CampaignStats, CampaignStatus, CampaignStore, ClaimOutcome, ClaimPosition, DueRetry,
    EnqueueStart, HeldSends, PreviewFacts, QueuedRun, QueuedStart, RemainingCosts, ResumeFacts, RetryOutcome,
    RetryReport, RetrySchedule, RunFacts, RunInputs, RunQueue, RunQuota, RunReport, RunRetry, RunRetryStore, RunStart,
    RunStartStore, RunStore, RunSweepStore, SendResult, SendStore, SendsPage, StartOutcome, StartedSends,
};
use crate::shared::{AccountId, CampaignId, Event, Page, PageQuery, SendId, StoreError, TemplateId, WriteOutcome};

#[async_trait]
impl CampaignStore for Stores {
    async fn unknown_references(&self, _: AccountId, _: &Campaign) -> Result<Vec<String>, StoreError> {
        unreachable!("a simulation creates no campaign")
    }

    async fn insert(&self, _: &Campaign, _: &[Event]) -> Result<(), StoreError> {
        unreachable!("a simulation creates no campaign")
    }

    async fn find(&self, account: AccountId, id: CampaignId) -> Result<Option<Campaign>, StoreError> {
        self.call("find campaign", self.runs.find(account, id)).await
    }

    async fn list(&self, _: AccountId, _: &CampaignQuery) -> Result<Page<Campaign>, StoreError> {
        unreachable!("a simulation lists no campaigns")
    }

    async fn update(
        &self,
        campaign: &Campaign,
        expected: &Campaign,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        self.write("update campaign", Written::Runs(campaign.account_id), async {
            let unsent = self.unsent(campaign.id);
            let entry = self.runs.tables().campaigns[&campaign.id].queue_entry.clone();
            let outcome = self.runs.update(campaign, expected, events).await?;
            let ends_run = campaign.status == CampaignStatus::Cancelled && expected.status == CampaignStatus::Sending;
            if ends_run && outcome == WriteOutcome::Done {
                let mut tables = self.runs.tables();
                if self.has_bug(SimulationBug::QuotaNotReleasedAtCancel) {
                    tables.accounts.get_mut(&campaign.account_id).unwrap().reserved += unsent;
                }
                if self.has_bug(SimulationBug::QueueEntryNotDeletedAtCancel) {
                    tables.campaigns.get_mut(&campaign.id).unwrap().queue_entry = entry;
                }
            }
            Ok(outcome)
        })
        .await
    }

    async fn delete(
        &self,
        _: &Campaign,
        _: CampaignStatus,
        _: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        unreachable!("a simulation deletes no campaign")
    }

    async fn preview_facts(&self, _: AccountId, _: CampaignId, _: i64) -> Result<Option<PreviewFacts>, StoreError> {
        unreachable!("a simulation previews no campaign")
    }

    async fn stats(&self, _: AccountId, _: CampaignId) -> Result<Option<CampaignStats>, StoreError> {
        unreachable!("a simulation reads no statistics")
    }

    async fn sends(&self, _: AccountId, _: CampaignId, _: PageQuery) -> Result<Option<SendsPage>, StoreError> {
        unreachable!("a simulation lists no sends")
    }
}

impl Stores {
    /// The number of sends that wait.
    fn unsent(&self, id: CampaignId) -> i64 {
        let tables = self.runs.tables();
        i64::try_from(tables.sends_of(id).filter(|(_, send)| send.waits()).count()).unwrap()
    }

    async fn run_facts(&self, account: AccountId, id: CampaignId) -> Result<Option<RunFacts>, StoreError> {
        let facts = RunStartStore::facts(&self.runs, account, id).await?;
        Ok(facts.map(|facts| RunFacts {
            billing: self.entitlement(account),
            ..facts
        }))
    }
}

#[async_trait]
impl RunStartStore for Stores {
    async fn facts(&self, account: AccountId, id: CampaignId) -> Result<Option<RunFacts>, StoreError> {
        self.call("run facts", self.run_facts(account, id)).await
    }

    async fn resume_facts(&self, account: AccountId, id: CampaignId) -> Result<Option<ResumeFacts>, StoreError> {
        self.call("resume facts", async {
            let run = self.run_facts(account, id).await?;
            let pending = self.unsent(id);
            let tables = self.runs.tables();
            let used = tables.accounts[&account].used();
            Ok(run.map(|run| ResumeFacts {
                cost: crate::costs::CampaignCost::default(),
                quota: run.content_frozen.then_some(RunQuota { used, pending }),
                run,
                number_lost: false,
            }))
        })
        .await
    }

    async fn remaining_costs(&self, _: AccountId, _: CampaignId) -> Result<Option<RemainingCosts>, StoreError> {
        unreachable!("a simulated campaign has no budget")
    }

    async fn start(&self, start: &RunStart, worker: Option<Uuid>, lease: Duration) -> Result<StartOutcome, StoreError> {
        let id = start.campaign.id;
        self.write("start run", Written::Runs(start.campaign.account_id), async {
            if self.has_bug(SimulationBug::StartIgnoresStatus) {
                let mut tables = self.runs.tables();
                let row = tables.campaigns.get_mut(&id).unwrap();
                let is_running = row.campaign.status == CampaignStatus::Sending && row.queue_entry.is_some();
                if is_running && start.expected == CampaignStatus::Draft {
                    row.campaign = Campaign {
                        version: row.campaign.version,
                        ..start.campaign.clone()
                    };
                    row.campaign.status = start.expected;
                    row.campaign.total_recipients = start.campaign.total_recipients;
                    row.queue_entry = None;
                }
            }
            let outcome = self.runs.start(start, worker, lease).await?;
            if matches!(outcome, StartOutcome::Started { .. }) {
                self.ledger().run_started(&self.runs.tables(), id, start.monthly_limit);
            }
            Ok(outcome)
        })
        .await
    }

    async fn enqueue_start(&self, start_request: &EnqueueStart) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        let enqueue = self.runs.enqueue_start(start_request);
        self.write(
            "enqueue start",
            Written::Runs(start_request.campaign.account_id),
            enqueue,
        )
        .await
    }

    async fn queued_start(&self, run: QueuedRun) -> Result<Option<QueuedStart>, StoreError> {
        self.call("queued start", self.runs.queued_start(run)).await
    }

    async fn abort_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError> {
        let abort = self.runs.abort_start(run, status, events);
        self.write("abort start", Written::Runs(run.account_id), abort).await
    }

    async fn skip_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError> {
        let skip = self.runs.skip_start(run, status, events);
        self.write("skip start", Written::Runs(run.account_id), skip).await
    }

    async fn due(&self, _: i64) -> Result<Vec<QueuedRun>, StoreError> {
        unreachable!("a simulation schedules no campaign")
    }
}

#[async_trait]
impl RunRetryStore for Stores {
    async fn retry(&self, retry: &RunRetry) -> Result<RetryOutcome, StoreError> {
        self.write("retry", Written::Runs(retry.campaign.account_id), async {
            let outcome = self.runs.retry(retry).await?;
            if matches!(outcome, RetryOutcome::Started { .. }) {
                self.ledger()
                    .run_started(&self.runs.tables(), retry.campaign.id, retry.monthly_limit);
            }
            Ok(outcome)
        })
        .await
    }

    async fn schedule_retry(
        &self,
        _: &RetrySchedule,
    ) -> Result<(WriteOutcome<CampaignStatus>, RetryReport), StoreError> {
        unreachable!("a simulation schedules no retry")
    }

    async fn due_retries(&self, _: i64) -> Result<Vec<DueRetry>, StoreError> {
        unreachable!("a simulation schedules no retry")
    }
}

#[async_trait]
impl RunQueue for Stores {
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<QueuedRun>, StoreError> {
        self.ledger().responses.remove(&self.scheduler.running());
        self.call("take run", async {
            let taken = self.runs.take(worker, lease).await;
            if let Ok(Some(run)) = taken {
                self.commit(Written::Runs(run.account_id));
            }
            taken
        })
        .await
    }

    async fn has_waiting(&self) -> Result<bool, StoreError> {
        unreachable!("no run of a simulation yields")
    }

    async fn release(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        let release = self.runs.release(run, worker);
        self.write("release run", Written::Runs(run.account_id), release).await
    }

    async fn postponements(&self, _: QueuedRun) -> Result<u32, StoreError> {
        unreachable!("no run of a simulation has files")
    }

    async fn postpone(&self, _: QueuedRun, _: Uuid, _: Duration) -> Result<(), StoreError> {
        unreachable!("no run of a simulation has files")
    }

    async fn wait(&self, run: QueuedRun, worker: Uuid, held: HeldSends) -> Result<(), StoreError> {
        let wait = self.runs.wait(run, worker, held);
        self.write("wait for held sends", Written::Runs(run.account_id), wait)
            .await
    }

    async fn abandon(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        let abandon = self.runs.abandon(run, worker);
        self.write("abandon run", Written::Runs(run.account_id), abandon).await
    }
}

#[async_trait]
impl RunStore for Stores {
    async fn inputs(&self, run: QueuedRun) -> Result<Option<RunInputs>, StoreError> {
        self.call("run inputs", self.runs.inputs(run)).await
    }

    async fn pause(&self, run: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError> {
        self.write(
            "pause run",
            Written::Runs(run.account_id),
            self.runs.pause(run, reason, events),
        )
        .await
    }

    async fn pause_template(&self, account: AccountId, template: TemplateId, reason: &str) -> Result<(), StoreError> {
        let pause = self.runs.pause_template(account, template, reason);
        self.write("pause template", Written::Runs(account), pause).await
    }

    async fn finish(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        self.write("finish run", Written::Runs(run.account_id), async {
            let task = self.scheduler.running();
            self.ledger().run_finishes(&self.runs.tables(), run.campaign_id, task);
            self.runs.finish(run).await
        })
        .await
    }

    async fn report(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        self.call("run report", self.runs.report(run)).await
    }
}

#[async_trait]
impl SendStore for Stores {
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        self.write("claim sends", Written::Runs(run.account_id), async {
            let paused_at = self.take_pause(run);
            let outcome = self.runs.claim(run, worker, position, size, lease).await;
            self.restore_pause(run, paused_at);
            outcome
        })
        .await
    }

    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError> {
        self.write("record and start", Written::Runs(run.account_id), async {
            let facts = StartFacts::read(&self.runs.tables(), run, worker);
            let paused_at = self.take_pause(run);
            let phone_number = self.take_phone_number(run);
            let results = self.without_dropped_result(results);
            let started = self.runs.record_and_start(run, worker, results, next).await;
            self.restore_pause(run, paused_at);
            if phone_number.is_some() {
                self.runs
                    .tables()
                    .campaigns
                    .get_mut(&run.campaign_id)
                    .unwrap()
                    .profile_id = phone_number;
            }
            let mut started = started?;
            self.ledger().sends_started(&self.runs.tables(), &facts, &started);
            if self.has_bug(SimulationBug::OptOutIgnored) {
                started.unreachable.clear();
            }
            Ok(started)
        })
        .await
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        let record = self.runs.record(run, self.without_dropped_result(results));
        self.write("record results", Written::Runs(run.account_id), record)
            .await
    }
}

impl Stores {
    /// The results without the last one, for the bug [`SimulationBug::ResultDropped`], else all.
    fn without_dropped_result<'a>(&self, results: &'a [(SendId, SendResult)]) -> &'a [(SendId, SendResult)] {
        let dropped = usize::from(self.has_bug(SimulationBug::ResultDropped));
        &results[..results.len().saturating_sub(dropped)]
    }

    /// Takes the pause of a run for the time of a call, for the bug [`SimulationBug::PauseIgnored`].
    fn take_pause(&self, run: QueuedRun) -> Option<time::OffsetDateTime> {
        let mut tables = self.runs.tables();
        let row = tables.campaigns.get_mut(&run.campaign_id).unwrap();
        row.campaign
            .paused_at
            .take_if(|_| self.has_bug(SimulationBug::PauseIgnored))
    }

    fn restore_pause(&self, run: QueuedRun, paused_at: Option<time::OffsetDateTime>) {
        let mut tables = self.runs.tables();
        let campaign = &mut tables.campaigns.get_mut(&run.campaign_id).unwrap().campaign;
        campaign.paused_at = paused_at.or(campaign.paused_at);
    }

    /// Takes the phone number of a run for the time of a call, for the bug [`SimulationBug::PairIntervalIgnored`]: the store
    /// then finds no other run of the number.
    fn take_phone_number(&self, run: QueuedRun) -> Option<crate::shared::ProfileId> {
        let mut tables = self.runs.tables();
        let row = tables.campaigns.get_mut(&run.campaign_id).unwrap();
        row.profile_id
            .take_if(|_| self.has_bug(SimulationBug::PairIntervalIgnored))
    }

    /// Fails the sends whose outcome has been unknown for `ttl`.
    pub(super) async fn fail_unknown_sends(&self, ttl: Duration) -> Result<u64, StoreError> {
        self.call("fail unknown sends", async {
            let failed = self.runs.fail_unknown(ttl, 100).await?;
            if failed > 0 {
                self.check_runs();
            }
            Ok(failed)
        })
        .await
    }
}
