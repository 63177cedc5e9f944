//! The in-memory store of one run, with injected faults and checks of the worker's calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::FutureExt;
use time::Duration;
use uuid::Uuid;

use super::faults::FaultInjector;
use super::fixture::RUN;
use crate::campaigns::in_memory::{
    InMemoryAccount, InMemoryCampaign, InMemoryContact, InMemoryRuns, InMemorySend, RunTables,
};
use crate::campaigns::service::RUN_LEASE;
use crate::campaigns::service::tests::NOW;
use crate::campaigns::{
    Campaign, CampaignStatus, CampaignStore, ClaimOutcome, ClaimPosition, HeldSends, QueuedRun, QueuedStart, Recipient,
    RunInputs, RunQueue, RunReport, RunStore, RunSweepStore, SendCounts, SendResult, SendStore, StartedSends, Trigger,
};
use crate::messaging::ErrorCodes;
use crate::shared::{AccountId, ContactId, Event, SendId, StoreError, TemplateId};
use crate::whatsapp::StoredProfile;

/// The calls of the run's workers.
#[derive(Default)]
struct Calls {
    /// The sends that were in flight at the worker's first claim.
    in_flight_before: Vec<SendId>,
    /// Every worker id that held the run.
    holders: Vec<Uuid>,
    /// The number of sends in each claim.
    claimed: Vec<usize>,
    /// The number of results in each record.
    recorded: Vec<usize>,
}

pub(super) struct FaultyRuns {
    pub(super) store: Arc<InMemoryRuns>,
    calls: Mutex<Calls>,
    injector: Arc<FaultInjector>,
}

fn contact_id(at: usize) -> ContactId {
    ContactId(Uuid::from_u128(500 + u128::try_from(at).unwrap()))
}

impl FaultyRuns {
    /// A run that has just started, held by `holder`.
    pub(super) fn new(
        inputs: RunInputs,
        recipients: Vec<Recipient>,
        holder: Uuid,
        injector: Arc<FaultInjector>,
    ) -> Self {
        let codes = ErrorCodes {
            codes: &[],
            ranges: &[],
        };
        let mut tables = RunTables::new(NOW + Duration::HOUR, codes);
        let total = i64::try_from(recipients.len()).unwrap();
        let mut account = InMemoryAccount {
            reserved: total,
            profiles: BTreeMap::from_iter(inputs.profile.map(|number| (number.profile.id, number))),
            ..InMemoryAccount::default()
        };
        for (at, recipient) in recipients.into_iter().enumerate() {
            let opted_out = false;
            account
                .contacts
                .insert(contact_id(at), InMemoryContact { recipient, opted_out });
            let send = SendId(Uuid::from_u128(1000 + u128::try_from(at).unwrap()));
            tables
                .sends
                .insert((RUN.campaign_id, contact_id(at)), InMemorySend::new(send));
        }
        let profile_id = account.profiles.keys().next().copied();
        tables.accounts.insert(RUN.account_id, account);
        tables.add(inputs.campaign);
        let start = QueuedStart {
            trigger: Trigger::Send,
            actor: None,
        };
        tables.enqueue(RUN.campaign_id, start, true);
        let leased_until = tables.now + RUN_LEASE;
        let run = tables.run_mut();
        (run.template, run.profile_id) = (Some(inputs.template), profile_id);
        run.counts = Some(SendCounts {
            total,
            pending: total,
            ..SendCounts::default()
        });
        let entry = run.queue_entry.as_mut().unwrap();
        (entry.worker, entry.leased_until) = (Some(holder), leased_until);
        let calls = Calls {
            holders: vec![holder],
            ..Calls::default()
        };
        Self {
            store: Arc::new(InMemoryRuns::new(tables)),
            calls: Mutex::new(calls),
            injector,
        }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, RunTables> {
        self.store.tables()
    }

    /// The number of sends in each claim.
    pub(super) fn claimed(&self) -> Vec<usize> {
        self.calls.lock().unwrap().claimed.clone()
    }

    /// The number of results in each record.
    pub(super) fn recorded(&self) -> Vec<usize> {
        self.calls.lock().unwrap().recorded.clone()
    }

    /// Writes the campaign as a member does.
    fn update(&self, change: impl FnOnce(&mut Campaign)) {
        let stored = self.tables().campaign().clone();
        let mut changed = stored.clone();
        change(&mut changed);
        self.store
            .update(&changed, &stored, &[])
            .now_or_never()
            .unwrap()
            .unwrap();
    }

    pub(super) fn cancel(&self) {
        if self.tables().campaign().status == CampaignStatus::Sending {
            self.update(|campaign| campaign.status = CampaignStatus::Cancelled);
        }
    }

    /// Expires the lease. The worker does not notice.
    pub(super) fn expire(&self) {
        let mut tables = self.tables();
        let expired = tables.now - Duration::SECOND;
        let entry = tables.entry_mut(RUN.campaign_id);
        entry.into_iter().for_each(|entry| entry.leased_until = expired);
    }

    /// Resumes a paused run.
    pub(super) fn resume(&self) {
        self.expire();
        self.update(|campaign| (campaign.paused_at, campaign.pause_reason) = (None, None));
    }

    /// Fails the sends whose outcome is unknown.
    pub(super) fn fail_unknown(&self) {
        let failed = self.store.fail_unknown(Duration::ZERO, i64::MAX).now_or_never();
        failed.unwrap().unwrap();
    }

    /// Asserts that the worker names the sends in flight.
    fn check_claim(&self, position: Option<&ClaimPosition>) {
        let (tables, mut calls) = (self.tables(), self.calls.lock().unwrap());
        let in_flight = tables.rows().filter(|send| send.is_open() && send.unknown_at.is_none());
        let mut in_flight = in_flight.map(|send| send.id);
        // Workers that share an id may execute the run at the same time, and do not know each other's sends.
        let id_reused = (1..calls.holders.len()).any(|at| calls.holders[..at].contains(&calls.holders[at]));
        match position {
            // The store keeps what was in flight before the worker began.
            None => calls.in_flight_before = in_flight.collect(),
            Some(_) if id_reused => {}
            Some(position) => {
                let named = |send: &SendId| position.in_flight.contains(send) || calls.in_flight_before.contains(send);
                assert!(
                    in_flight.all(|send| named(&send)),
                    "a claim does not name a send in flight"
                );
            }
        }
    }
}

impl RunTables {
    pub(super) fn run_mut(&mut self) -> &mut InMemoryCampaign {
        self.campaigns.get_mut(&RUN.campaign_id).unwrap()
    }

    pub(super) fn campaign(&self) -> &Campaign {
        &self.campaigns[&RUN.campaign_id].campaign
    }

    /// The WhatsApp number of the run.
    pub(super) fn number_mut(&mut self) -> Option<&mut StoredProfile> {
        let account = self.accounts.get_mut(&RUN.account_id).unwrap();
        account.profiles.values_mut().next()
    }

    pub(super) fn contact(&self, at: usize) -> &InMemoryContact {
        &self.accounts[&RUN.account_id].contacts[&contact_id(at)]
    }

    pub(super) fn contact_mut(&mut self, at: usize) -> &mut InMemoryContact {
        let account = self.accounts.get_mut(&RUN.account_id).unwrap();
        account.contacts.get_mut(&contact_id(at)).unwrap()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &InMemorySend> {
        self.sends.values()
    }

    pub(super) fn row(&self, at: usize) -> &InMemorySend {
        &self.sends[&(RUN.campaign_id, contact_id(at))]
    }

    /// The month's messages: sent and reserved.
    pub(super) fn usage(&self) -> (i64, i64) {
        let account = &self.accounts[&RUN.account_id];
        (account.sent, account.reserved)
    }
}

#[async_trait]
impl RunQueue for FaultyRuns {
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<QueuedRun>, StoreError> {
        let take = async {
            let taken = self.store.take(worker, lease).await;
            if let Ok(Some(_)) = taken {
                self.calls.lock().unwrap().holders.push(worker);
            }
            taken
        };
        self.injector.store_step(take).await
    }

    async fn has_waiting(&self) -> Result<bool, StoreError> {
        self.store.has_waiting().await
    }

    async fn release(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        self.injector.store_step(self.store.release(run, worker)).await
    }

    async fn postponements(&self, run: QueuedRun) -> Result<u32, StoreError> {
        self.injector.store_step(self.store.postponements(run)).await
    }

    async fn postpone(&self, run: QueuedRun, worker: Uuid, delay: Duration) -> Result<(), StoreError> {
        self.injector.store_step(self.store.postpone(run, worker, delay)).await
    }

    async fn wait(&self, run: QueuedRun, worker: Uuid, held: HeldSends) -> Result<(), StoreError> {
        self.injector.store_step(self.store.wait(run, worker, held)).await
    }

    async fn abandon(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        self.injector.store_step(self.store.abandon(run, worker)).await
    }
}

#[async_trait]
impl RunStore for FaultyRuns {
    async fn inputs(&self, run: QueuedRun) -> Result<Option<RunInputs>, StoreError> {
        self.injector.store_step(self.store.inputs(run)).await
    }

    async fn pause(&self, run: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError> {
        self.injector.store_step(self.store.pause(run, reason, events)).await
    }

    async fn pause_template(&self, account: AccountId, template: TemplateId, reason: &str) -> Result<(), StoreError> {
        let pause = self.store.pause_template(account, template, reason);
        self.injector.store_step(pause).await
    }

    async fn finish(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        self.injector.store_step(self.store.finish(run)).await
    }

    async fn report(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        self.injector.store_step(self.store.report(run)).await
    }
}

#[async_trait]
impl SendStore for FaultyRuns {
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let claim = async {
            let outcome = self.store.claim(run, worker, position.clone(), size, lease).await?;
            if !matches!(outcome, ClaimOutcome::Stopped | ClaimOutcome::Lost) {
                self.check_claim(position.as_ref());
            }
            if let ClaimOutcome::Sends(sends) = &outcome {
                self.calls.lock().unwrap().claimed.push(sends.len());
            }
            Ok(outcome)
        };
        self.injector.store_step(claim).await
    }

    /// Two steps, so that a fault can be injected between them.
    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError> {
        if !results.is_empty() {
            self.record(run, results).await?;
        }
        let start = self.store.record_and_start(run, worker, &[], next);
        self.injector.store_step(start).await
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        let record = async {
            self.calls.lock().unwrap().recorded.push(results.len());
            self.store.record(run, results).await
        };
        self.injector.store_step(record).await
    }
}
