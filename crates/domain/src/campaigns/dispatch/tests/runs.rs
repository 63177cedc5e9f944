//! The in-memory stores of one run, which follow the contracts of the ports.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use time::Duration;
use uuid::Uuid;

use super::faults::FaultInjector;
use super::rows::{Row, add, make_due};
use crate::billing::PlanEntitlement;
use crate::campaigns::service::tests::NOW;
use crate::campaigns::{
    Campaign, CampaignStatus, ClaimOutcome, ClaimPosition, CounterChange, EnqueueStart, QueuedRun, QueuedStart,
    Recipient, ResumeFacts, RunFacts, RunInputs, RunQueue, RunReport, RunStart, RunStartStore, RunStore, SendCounts,
    SendResult, SendStore, StartOutcome, StartedSends, Trigger, finish,
};
use crate::messaging::SendStatus;
use crate::shared::{AccountId, CampaignId, ContactId, Event, SendId, StoreError, TemplateId, WriteOutcome};

/// A bug of a store that the simulation must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// After the lease of a dead worker has expired, its started sends are due again.
    ResendsUnknown,
    /// A send can start although it was already started or has ended.
    IgnoresStatus,
    /// A worker can start sends although the run was cancelled or another worker holds it.
    IgnoresHolder,
    /// A cancel releases the reservations of in-flight sends, and their results release them again.
    ReleasesTwice,
}

pub(super) struct State {
    pub(super) inputs: Option<RunInputs>,
    pub(super) rows: Vec<Row>,
    pub(super) counts: SendCounts,
    pub(super) holder: Option<Uuid>,
    /// The number of consecutive postponements, and the end of the last one.
    pub(super) postponed: (u32, Duration),
    /// The database's clock, as the time since the start of the run.
    pub(super) now: Duration,
    pub(super) events: Vec<Event>,
    /// The sends that were in flight at the worker's first claim.
    pub(super) in_flight_before: Vec<SendId>,
    /// Every worker id that held the run.
    holders: Vec<Uuid>,
    /// Whether a worker took the run with an id that held it before.
    pub(super) id_reused: bool,
    /// The number of sends in each claim.
    pub(super) claimed: Vec<usize>,
    /// The number of results in each record.
    pub(super) recorded: Vec<usize>,
    /// The month's messages: sent and reserved.
    pub(super) usage: (usize, usize),
    pub(super) bug: Option<Bug>,
}

pub(super) struct FakeRuns {
    state: Mutex<State>,
    injector: Arc<FaultInjector>,
}

impl FakeRuns {
    /// A run that has just started, held by `holder`.
    pub(super) fn new(
        inputs: RunInputs,
        recipients: Vec<Option<Recipient>>,
        holder: Uuid,
        injector: Arc<FaultInjector>,
    ) -> Self {
        let row = |(at, recipient): (u128, Option<Recipient>)| Row {
            id: SendId(Uuid::from_u128(1000 + at)),
            contact_id: ContactId(Uuid::from_u128(500 + at)),
            recipient,
            status: SendStatus::Pending,
            started: false,
            unknown: false,
            attempts: 0,
            retry_at: Duration::ZERO,
            error: None,
        };
        let rows: Vec<Row> = (0..).zip(recipients).map(row).collect();
        let row_count = rows.len();
        let total = i64::try_from(row_count).unwrap();
        let counts = SendCounts {
            total,
            pending: total,
            ..SendCounts::default()
        };
        let state = State {
            inputs: Some(inputs),
            rows,
            counts,
            holder: Some(holder),
            postponed: (0, Duration::ZERO),
            now: Duration::ZERO,
            events: vec![],
            in_flight_before: vec![],
            holders: vec![holder],
            id_reused: false,
            claimed: vec![],
            recorded: vec![],
            usage: (0, row_count),
            bug: None,
        };
        Self {
            state: Mutex::new(state),
            injector,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Does what `Campaigns::cancel` does: deletes the queue entry and the reservations of unsent messages.
    pub(super) fn cancel(&self) {
        let mut state = self.state();
        if state.campaign().status != CampaignStatus::Sending {
            return;
        }
        state.campaign_mut().status = CampaignStatus::Cancelled;
        state.holder = None;
        state.release_reservations();
    }

    /// Expires the lease. The worker does not notice.
    pub(super) fn expire(&self) {
        self.state().abandon();
    }

    /// Resumes a paused run.
    pub(super) fn resume(&self) {
        let mut state = self.state();
        state.abandon();
        let campaign = state.campaign_mut();
        campaign.paused_at = None;
        campaign.pause_reason = None;
    }
}

impl State {
    pub(super) fn campaign(&self) -> &Campaign {
        &self.inputs.as_ref().unwrap().campaign
    }

    pub(super) fn campaign_mut(&mut self) -> &mut Campaign {
        &mut self.inputs.as_mut().unwrap().campaign
    }

    pub(super) fn goes_on(&self) -> bool {
        self.campaign().status == CampaignStatus::Sending && self.campaign().paused_at.is_none()
    }

    fn report(&self) -> Option<RunReport> {
        let inputs = self.inputs.as_ref()?;
        Some(RunReport::of(&inputs.campaign, &self.counts))
    }

    fn take(&mut self, worker: Uuid) -> Option<QueuedRun> {
        if !self.goes_on() || self.holder.is_some() || self.postponed.1 > self.now {
            return None;
        }
        self.holder = Some(worker);
        self.id_reused |= self.holders.contains(&worker);
        self.holders.push(worker);
        Some(super::fixture::RUN)
    }

    fn abandon(&mut self) {
        if self.holder.take().is_none() {
            return;
        }
        if self.bug == Some(Bug::ResendsUnknown) {
            let left = |row: &&mut Row| row.started && row.status == SendStatus::Pending;
            self.rows.iter_mut().filter(left).for_each(make_due);
        }
        self.mark_unknown();
    }

    /// Releases the reservations of unsent messages at the end of a run.
    fn release_reservations(&mut self) {
        self.mark_unknown();
        let releases_twice = self.bug == Some(Bug::ReleasesTwice);
        let unsent = |row: &&Row| row.status == SendStatus::Pending && (!row.started || releases_twice);
        let unsent = self.rows.iter().filter(unsent).count();
        self.usage.1 = self.usage.1.saturating_sub(unsent);
    }

    fn mark_unknown(&mut self) {
        for row in &mut self.rows {
            row.unknown |= row.started && row.status == SendStatus::Pending;
        }
    }

    /// Whether the send has a reservation in the month's quota.
    pub(super) fn holds_reservation(&self, row: &Row) -> bool {
        let sending = self.campaign().status == CampaignStatus::Sending;
        row.status == SendStatus::Pending && (sending || row.started)
    }

    /// Changes a send, and updates the month's usage.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Row)) {
        let accepted = |row: &Row| matches!(row.status, SendStatus::Sent | SendStatus::Delivered | SendStatus::Read);
        let (held, sent) = (self.holds_reservation(&self.rows[at]), accepted(&self.rows[at]));
        change(&mut self.rows[at]);
        let (holds, sends) = (self.holds_reservation(&self.rows[at]), accepted(&self.rows[at]));
        let moved = |n: usize, before: bool, after: bool| (n + usize::from(after)).saturating_sub(usize::from(before));
        self.usage = (moved(self.usage.0, sent, sends), moved(self.usage.1, held, holds));
    }

    fn start(&mut self, worker: Uuid, next: &[SendId]) -> StartedSends {
        let goes_on = self.holder == Some(worker) && self.goes_on();
        let mut started = StartedSends {
            goes_on: goes_on || self.bug == Some(Bug::IgnoresHolder),
            sends: vec![],
            unreachable: vec![],
        };
        let ignores_status = self.bug == Some(Bug::IgnoresStatus);
        let named = |row: &&mut Row| started.goes_on && next.contains(&row.id);
        for row in self.rows.iter_mut().filter(named) {
            if ignores_status || (!row.started && row.status == SendStatus::Pending) {
                row.started = true;
                started.sends.push(row.id);
                if row.recipient.is_none() {
                    started.unreachable.push(row.id);
                }
            }
        }
        started
    }

    fn record(&mut self, results: &[(SendId, SendResult)]) {
        self.recorded.push(results.len());
        let finished = !matches!(
            self.campaign().status,
            CampaignStatus::Sending | CampaignStatus::Cancelled
        );
        let now = self.now;
        for (id, result) in results {
            let at = self.rows.iter().position(|row| row.id == *id).unwrap();
            let status = match result {
                SendResult::Sent { .. } => SendStatus::Sent,
                SendResult::Failed { .. } => SendStatus::Failed,
                SendResult::Unknown
                | SendResult::Deferred { .. }
                | SendResult::Throttled { .. }
                | SendResult::Released => SendStatus::Pending,
            };
            self.apply_status(at, status);
            self.change(at, |row| match result {
                SendResult::Failed { code, message } => row.error = Some((*code, message.clone())),
                SendResult::Unknown => row.unknown = true,
                SendResult::Deferred { .. } | SendResult::Throttled { .. } | SendResult::Released if finished => {}
                SendResult::Throttled { delay } => {
                    row.retry_at = now + *delay;
                    make_due(row);
                }
                SendResult::Deferred { delay } => {
                    row.attempts += 1;
                    row.retry_at = now + *delay;
                    make_due(row);
                }
                SendResult::Released => make_due(row),
                SendResult::Sent { .. } => {}
            });
        }
    }

    /// Applies a result or a status update.
    pub(super) fn apply_status(&mut self, at: usize, status: SendStatus) {
        let from = self.rows[at].status;
        if let Some(to) = from.advance(status) {
            self.counts = add(self.counts, CounterChange { from, to });
            self.change(at, |row| row.status = to);
        }
    }

    fn finish(&mut self) -> Option<RunReport> {
        let ended = finish(self.campaign(), &self.counts, Trigger::Send, None, NOW);
        if let Some((campaign, events)) = ended {
            *self.campaign_mut() = campaign;
            self.events.extend(events);
            self.holder = None;
            self.release_reservations();
        }
        self.report()
    }

    fn pause(&mut self, reason: &str, events: &[Event]) {
        if self.goes_on() {
            let campaign = self.campaign_mut();
            campaign.paused_at = Some(NOW);
            campaign.pause_reason = Some(reason.to_owned());
            self.events.extend_from_slice(events);
        }
    }

    pub(super) fn fail_unknown(&mut self) -> u64 {
        let open = |row: &Row| row.started && row.status == SendStatus::Pending;
        let late: Vec<usize> = (0..self.rows.len()).filter(|&at| open(&self.rows[at])).collect();
        for &at in &late {
            self.apply_status(at, SendStatus::Failed);
            self.rows[at].error = Some((None, "the outcome is unknown".to_owned()));
        }
        late.len().try_into().unwrap()
    }
}

#[async_trait]
impl RunStartStore for FakeRuns {
    async fn facts(&self, _: AccountId, _: CampaignId) -> Result<Option<RunFacts>, StoreError> {
        let inputs = self.state().inputs.clone();
        Ok(inputs.map(|inputs| RunFacts {
            campaign: inputs.campaign,
            template: Some(inputs.template),
            content_frozen: true,
            profile_id: None,
            number_unverified: false,
            billing: PlanEntitlement {
                plan: "free".into(),
                granted: None,
                subscriptions: Vec::new(),
            },
            now: NOW + Duration::HOUR,
        }))
    }

    async fn resume_facts(&self, _: AccountId, _: CampaignId) -> Result<Option<ResumeFacts>, StoreError> {
        Ok(None)
    }

    async fn start(&self, _: &RunStart, _: Option<Uuid>, _: Duration) -> Result<StartOutcome, StoreError> {
        Ok(StartOutcome::Missing)
    }

    async fn enqueue_start(&self, _: &EnqueueStart) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        Ok(WriteOutcome::Missing)
    }

    async fn queued_start(&self, _: QueuedRun) -> Result<Option<QueuedStart>, StoreError> {
        Ok(None)
    }

    async fn abort_start(&self, _: QueuedRun, _: CampaignStatus, _: &[Event]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn due(&self, _: i64) -> Result<Vec<QueuedRun>, StoreError> {
        Ok(vec![])
    }
}

#[async_trait]
impl RunQueue for FakeRuns {
    async fn take(&self, worker: Uuid, _: Duration) -> Result<Option<QueuedRun>, StoreError> {
        self.injector.store_step(|| self.state().take(worker)).await
    }

    async fn has_waiting(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn release(&self, _: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        let release = || {
            let mut state = self.state();
            state.holder = state.holder.filter(|holder| *holder != worker);
            state.postponed = (0, Duration::ZERO);
        };
        self.injector.store_step(release).await
    }

    async fn postponements(&self, _: QueuedRun) -> Result<u32, StoreError> {
        self.injector.store_step(|| self.state().postponed.0).await
    }

    async fn postpone(&self, _: QueuedRun, worker: Uuid, delay: Duration) -> Result<(), StoreError> {
        let postpone = || {
            let mut state = self.state();
            if state.holder == Some(worker) {
                state.holder = None;
                state.postponed = (state.postponed.0 + 1, state.now + delay);
            }
        };
        self.injector.store_step(postpone).await
    }

    async fn abandon(&self, _: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        let abandon = || {
            let mut state = self.state();
            if state.holder == Some(worker) {
                state.abandon();
            }
        };
        self.injector.store_step(abandon).await
    }
}

#[async_trait]
impl RunStore for FakeRuns {
    async fn inputs(&self, _: QueuedRun) -> Result<Option<RunInputs>, StoreError> {
        self.injector.store_step(|| self.state().inputs.clone()).await
    }

    async fn pause(&self, _: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError> {
        self.injector.store_step(|| self.state().pause(reason, events)).await
    }

    async fn pause_template(&self, _: AccountId, _: TemplateId, reason: &str) -> Result<(), StoreError> {
        self.injector.store_step(|| self.state().pause(reason, &[])).await
    }

    async fn finish(&self, _: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        self.injector.store_step(|| self.state().finish()).await
    }

    async fn report(&self, _: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        self.injector.store_step(|| self.state().report()).await
    }
}

#[async_trait]
impl SendStore for FakeRuns {
    async fn claim(
        &self,
        _: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        _: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        self.injector
            .store_step(|| self.state().claim(worker, position, size))
            .await
    }

    /// Two steps, so that a fault can be injected between them.
    async fn record_and_start(
        &self,
        _: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError> {
        if !results.is_empty() {
            self.injector.store_step(|| self.state().record(results)).await?;
        }
        self.injector.store_step(|| self.state().start(worker, next)).await
    }

    async fn record(&self, _: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        self.injector.store_step(|| self.state().record(results)).await
    }
}
