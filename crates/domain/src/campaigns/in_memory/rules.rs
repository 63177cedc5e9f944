//! The rules of runs: starts, the queue, pauses, ends and retries.

use time::Duration;
use uuid::Uuid;

use super::super::events::started_event;
use super::super::{
    Campaign, CampaignRefusal, CampaignStatus, Command, CounterChange, EnqueueStart, Failure, FailureClass, QueuedRun,
    QueuedStart, RetryOutcome, RetryReport, RunReport, RunRetry, RunStart, SendCounts, StartOutcome, Trigger, finish,
    transition,
};
use super::tables::{InMemoryAccount, InMemoryQueueEntry, InMemorySend, PlantedBug, RunTables, SendKey};
use crate::messaging::SendStatus;
use crate::shared::{AccountId, CampaignId, ContactId, Event, SendId, WriteOutcome};

impl RunTables {
    /// The refusal if `wanted` more messages exceed the quota.
    fn check_quota(&self, account: AccountId, limit: i64, wanted: i64) -> Result<(), CampaignRefusal> {
        let account = self.accounts.get(&account);
        let used = account.map_or(0, InMemoryAccount::used);
        let left = (limit - used).max(0);
        match used + wanted > limit {
            true => Err(CampaignRefusal::QuotaExceeded { limit, left, wanted }),
            false => Ok(()),
        }
    }

    pub(super) fn start(&mut self, start: &RunStart, worker: Option<Uuid>, lease: Duration) -> StartOutcome {
        let (account_id, id) = (start.campaign.account_id, start.campaign.id);
        let (Some(row), Some(account)) = (self.campaigns.get(&id), self.accounts.get(&account_id)) else {
            return StartOutcome::Missing;
        };
        let (status, command) = (row.campaign.status, Command::Start);
        if status != start.expected {
            return StartOutcome::status_changed(start.expected, status, command);
        }
        if row.queue_entry.as_ref().is_some_and(|entry| entry.prepared) {
            return StartOutcome::Refused(CampaignRefusal::Status { status, command });
        }
        if !start.matches_campaign(&row.campaign) {
            return StartOutcome::Changed;
        }
        let contacts = account.contacts.iter().filter(|(_, contact)| !contact.opted_out);
        let contacts: Vec<ContactId> = contacts.map(|(id, _)| *id).collect();
        let recipients = i64::try_from(contacts.len()).unwrap_or(i64::MAX);
        if recipients == 0 {
            return StartOutcome::Refused(CampaignRefusal::NoRecipients);
        }
        if let Err(refusal) = self.check_quota(account_id, start.monthly_limit, recipients) {
            return StartOutcome::Refused(refusal);
        }
        for contact in contacts {
            let send = SendId(Uuid::from_u128(id.0.as_u128() << 64 | contact.0.as_u128()));
            self.sends.insert((id, contact), InMemorySend::new(send));
        }
        if let Some(row) = self.campaigns.get_mut(&id) {
            row.profile_id = start.profile_id;
            row.campaign.clone_from(&start.campaign);
            row.campaign.total_recipients = recipients;
            (row.campaign.paused_at, row.campaign.pause_reason) = (None, None);
            row.counts = Some(SendCounts {
                total: recipients,
                pending: recipients,
                ..SendCounts::default()
            });
        }
        let queued_start = QueuedStart {
            trigger: start.trigger,
            actor: start.actor.clone(),
        };
        self.begin(id, queued_start, recipients);
        let leased_until = self.now + lease;
        if let Some(entry) = self.entry_mut(id) {
            (entry.worker, entry.leased_until) = (worker, leased_until);
        }
        StartOutcome::Started { recipients }
    }

    /// Reserves the run's messages, queues it and appends its event.
    fn begin(&mut self, id: CampaignId, start: QueuedStart, recipients: i64) {
        if let Some(account) = self.account_mut(id) {
            account.reserved += recipients;
        }
        let trigger = start.trigger;
        self.enqueue(id, start, true);
        if let Some(row) = self.campaigns.get_mut(&id) {
            row.campaign.version += 1;
            self.events.push(started_event(&row.campaign, trigger, recipients));
        }
    }

    /// A queued start keeps its position when it is prepared.
    pub(in super::super) fn enqueue(&mut self, id: CampaignId, start: QueuedStart, prepared: bool) {
        self.last_position += 1;
        let Some(row) = self.campaigns.get_mut(&id) else { return };
        let queued = row.queue_entry.take();
        row.queue_entry = Some(InMemoryQueueEntry {
            start,
            prepared,
            worker: None,
            leased_until: self.now,
            position: queued.as_ref().map_or(self.last_position, |entry| entry.position),
            postponed: queued.and_then(|entry| entry.postponed),
            waiting: None,
            checked_by: None,
        });
    }

    pub(super) fn enqueue_start(&mut self, request: &EnqueueStart) -> WriteOutcome<CampaignStatus> {
        let id = request.campaign.id;
        let Some(row) = self.campaigns.get_mut(&id) else {
            return WriteOutcome::Missing;
        };
        if (row.campaign.status, row.campaign.version) != (request.expected, request.campaign.version) {
            return WriteOutcome::Stale(row.campaign.status);
        }
        row.campaign.status = request.campaign.status;
        row.campaign.version += 1;
        self.enqueue(id, request.run.clone(), false);
        self.events.extend_from_slice(&request.events);
        WriteOutcome::Done
    }

    pub(super) fn abort_start(&mut self, id: CampaignId, status: CampaignStatus, events: &[Event]) {
        let Some(row) = self.campaigns.get_mut(&id) else { return };
        let aborted = row.queue_entry.take_if(|entry| !entry.prepared).is_some();
        if aborted && row.campaign.status == CampaignStatus::Sending {
            row.campaign.status = status;
            row.campaign.version += 1;
            (row.campaign.paused_at, row.campaign.pause_reason) = (None, None);
            self.events.extend_from_slice(events);
        }
    }

    pub(super) fn take(&mut self, worker: Uuid, lease: Duration) -> Option<QueuedRun> {
        let now = self.now;
        let expired = |entry: &InMemoryQueueEntry| entry.worker.is_some() && entry.leased_until < now;
        let ids: Vec<CampaignId> = self.campaigns.keys().copied().collect();
        for id in ids {
            if self.entry(id).is_some_and(expired) {
                self.abandon(id);
            }
        }
        let id = self.waiting()?;
        let entry = self.entry_mut(id)?;
        (entry.worker, entry.leased_until) = (Some(worker), now + lease);
        let account_id = self.campaigns.get(&id)?.campaign.account_id;
        Some(QueuedRun {
            account_id,
            campaign_id: id,
        })
    }

    /// The run that has waited longest for a worker.
    pub(super) fn waiting(&self) -> Option<CampaignId> {
        let is_postponed = |entry: &InMemoryQueueEntry| entry.postponed.is_some_and(|(_, until)| until > self.now);
        let is_free = |id: CampaignId| {
            let entry = self.entry(id).filter(|entry| entry.worker.is_none())?;
            (!is_postponed(entry) && !self.still_waits(id)).then_some(entry.position)
        };
        let ids = self.campaigns.keys().copied().filter(|id| self.goes_on(*id));
        let waiting = ids.filter_map(|id| Some((is_free(id)?, id)));
        waiting.min().map(|(_, id)| id)
    }

    /// Puts a run that this worker holds at the end of the queue.
    pub(super) fn release(&mut self, id: CampaignId, worker: Uuid, delay: Option<Duration>) {
        let (now, position) = (self.now, self.last_position + 1);
        if let Some(entry) = self.held_entry(id, worker) {
            (entry.worker, entry.position) = (None, position);
            let count = entry.postponed.map_or(0, |(count, _)| count);
            entry.postponed = delay.map(|delay| (count + 1, now + delay));
            entry.waiting.take_if(|_| delay.is_some());
            self.last_position = position;
        }
    }

    /// Ends the lease of the run. The outcome of its open sends is unknown.
    pub(super) fn abandon(&mut self, id: CampaignId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.worker = None;
        }
        if self.bug == Some(PlantedBug::ResendsUnknown) {
            let open = self.sends_of_mut(id).filter(|send| send.is_open());
            open.for_each(|send| (send.started_at, send.unknown_at) = (None, None));
        }
        self.mark_unknown(id);
    }

    fn mark_unknown(&mut self, id: CampaignId) {
        let now = self.now;
        for send in self.sends_of_mut(id).filter(|send| send.is_open()) {
            send.unknown_at.get_or_insert(now);
        }
    }

    /// Pauses the run. False: it is not sending, or paused already.
    pub(super) fn pause(&mut self, id: CampaignId, reason: &str) -> bool {
        let now = self.now;
        let row = self.campaigns.get_mut(&id).map(|row| &mut row.campaign);
        let sends =
            |campaign: &&mut Campaign| campaign.status == CampaignStatus::Sending && campaign.paused_at.is_none();
        row.filter(sends).is_some_and(|campaign| {
            (campaign.paused_at, campaign.pause_reason) = (Some(now), Some(reason.to_owned()));
            campaign.version += 1;
            true
        })
    }

    pub(super) fn finish(&mut self, id: CampaignId) -> Option<RunReport> {
        let start = self.entry(id).map(|entry| entry.start.clone());
        let (trigger, actor) = start.map_or((Trigger::Send, None), |start| (start.trigger, start.actor));
        let row = self.campaigns.get_mut(&id)?;
        let counts = row.counts.unwrap_or_default();
        let ended = finish(&row.campaign, &counts, trigger, actor.as_ref(), self.now);
        if let Some((campaign, events)) = ended {
            row.campaign = campaign;
            row.campaign.version += 1;
            self.events.extend(events);
            self.end_run(id);
        }
        Some(RunReport::of(&self.campaigns.get(&id)?.campaign, &counts))
    }

    /// Removes the run from the queue and releases the reservations of its unstarted sends.
    fn end_run(&mut self, id: CampaignId) {
        if let Some(row) = self.campaigns.get_mut(&id) {
            row.queue_entry = None;
        }
        self.mark_unknown(id);
        let releases_twice = self.bug == Some(PlantedBug::ReleasesTwice);
        let unsent = self
            .sends_of(id)
            .filter(|(_, send)| send.waits() || releases_twice && send.is_open())
            .count();
        if let Some(account) = self.account_mut(id) {
            account.reserved -= i64::try_from(unsent).unwrap_or(i64::MAX);
        }
    }

    pub(super) fn update(
        &mut self,
        campaign: &Campaign,
        expected: &Campaign,
        events: &[Event],
    ) -> WriteOutcome<CampaignStatus> {
        let Some(row) = self.campaigns.get_mut(&campaign.id) else {
            return WriteOutcome::Missing;
        };
        if (row.campaign.status, row.campaign.version) != (expected.status, expected.version) {
            return WriteOutcome::Stale(row.campaign.status);
        }
        row.campaign.clone_from(campaign);
        row.campaign.version = expected.version + 1;
        if expected.paused_at.is_some() && campaign.paused_at.is_none() {
            row.queue_entry
                .iter_mut()
                .for_each(|entry| (entry.postponed, entry.waiting) = (None, None));
        }
        self.events.extend_from_slice(events);
        if campaign.status == CampaignStatus::Cancelled && expected.status == CampaignStatus::Sending {
            self.end_run(campaign.id);
        }
        WriteOutcome::Done
    }

    /// Whether a retry includes the failed send.
    fn can_retry(&self, key: SendKey, send: &InMemorySend) -> bool {
        let (Some((code, _)), Some(failed_at)) = (&send.error, send.failed_at) else {
            return false;
        };
        let failure = Failure {
            error: code.map(|code| self.codes.class(code)),
            times: 1,
            failed_at,
            opted_in_since: false,
            has_phone: true,
        };
        let is_due = match failure.class() {
            (FailureClass::Again, _) => true,
            (FailureClass::Later, at) => at.is_some_and(|at| at <= self.now),
            (FailureClass::Never, _) => false,
        };
        send.status == SendStatus::Failed && is_due && self.recipient(key).is_some()
    }

    /// Retries every failed send that may be retried now, and those that an early end left unstarted.
    pub(super) fn retry(&mut self, retry: &RunRetry) -> RetryOutcome {
        let (id, now) = (retry.campaign.id, self.now);
        let Some(row) = self.campaigns.get(&id) else {
            return RetryOutcome::Missing;
        };
        if let Err(refusal) = transition(row.campaign.status, Command::Retry) {
            return RetryOutcome::Refused(refusal);
        }
        if (row.campaign.status, row.campaign.version) != (retry.expected, retry.expected_version) {
            return RetryOutcome::Refused(CampaignRefusal::Contended);
        }
        let failed = self.sends_of(id).filter(|(key, send)| self.can_retry(*key, send));
        let failed: Vec<SendKey> = failed.map(|(key, _)| key).collect();
        let untried = self.sends_of(id).filter(|(_, send)| send.waits()).count();
        let left_out = vec![];
        let [tried, untried] = [failed.len(), untried].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        if tried + untried == 0 {
            return RetryOutcome::Refused(CampaignRefusal::NothingToRetry { left_out });
        }
        let recipients = tried + untried;
        if let Err(refusal) = self.check_quota(retry.campaign.account_id, retry.monthly_limit, recipients) {
            return RetryOutcome::Refused(refusal);
        }
        let (from, to) = (SendStatus::Failed, SendStatus::Pending);
        failed.iter().for_each(|_| self.count(id, CounterChange { from, to }));
        let retried = self
            .sends
            .iter_mut()
            .filter(|(key, send)| key.0 == id && (failed.contains(key) || send.waits()));
        for (_, send) in retried {
            let superseded = send.wa_message_id.take().or(send.superseded.take());
            let retry_at = Some(now);
            *send = InMemorySend {
                superseded,
                retry_at,
                ..InMemorySend::new(send.id)
            };
        }
        if let Some(row) = self.campaigns.get_mut(&id) {
            row.campaign = Campaign {
                retry_scheduled_at: None,
                version: retry.expected_version,
                ..retry.campaign.clone()
            };
            row.profile_id = retry.profile_id;
        }
        self.begin(id, retry.run.clone(), recipients);
        let report = RetryReport { tried, left_out };
        self.events.push(Event::Audit(retry.audit(&report)));
        RetryOutcome::Started { recipients, report }
    }

    pub(super) fn reserve_test_send(&mut self, account: AccountId, limit: i64) -> bool {
        let reserved = self.check_quota(account, limit, 1).is_ok();
        if let Some(account) = self.accounts.get_mut(&account) {
            account.test_sends += i64::from(reserved);
        }
        reserved
    }
}
