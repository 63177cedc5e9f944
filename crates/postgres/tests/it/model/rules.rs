//! The model: how each step changes the state, and which outcome the store must return.

use std::collections::BTreeSet;

use recado_domain::campaigns::{CampaignRefusal, CampaignStatus, Command, StartOutcome, transition};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::WriteOutcome;

use super::state::{
    CAMPAIGNS, CONTACTS_PER_ACCOUNT, Key, Kind, QueueEntry, Retry, Send, State, StepOutcome, message_of, refused,
};
use super::steps::{Item, Pause, Results, Step};

impl State {
    pub(super) fn after(mut self, step: &Step) -> Self {
        self.outcome = match step {
            Step::Start {
                campaign,
                worker,
                expected,
            } => self.start(*campaign, *worker, *expected),
            Step::EnqueueStart { campaign, expected } => self.enqueue_start(*campaign, *expected),
            Step::AbortStart(campaign) => self.abort_start(*campaign),
            Step::Take(worker) => self.take(*worker),
            Step::Expire(campaign) => self.update_queue_entry(*campaign, |entry| entry.expired = true),
            Step::Claim {
                campaign,
                worker,
                after,
                size,
            } => self.claim(*campaign, *worker, *after, *size),
            Step::RecordAndStart {
                campaign,
                worker,
                results,
                next,
            } => self.record_and_start(*campaign, *worker, results, next),
            Step::Record { campaign, results } => {
                results
                    .iter()
                    .for_each(|(contact, kind)| self.apply_result((*campaign, *contact), *kind));
                StepOutcome::Nothing
            }
            Step::Pause(campaign, pause) => self.pause(*campaign, *pause),
            Step::Resume(campaign) => self.guarded(*campaign, |state| state.campaigns[*campaign].paused = false),
            Step::Cancel(campaign) => self.guarded(*campaign, |state| {
                state.campaigns[*campaign].paused = false;
                state.end(*campaign, CampaignStatus::Cancelled);
            }),
            Step::StaleEdit { campaign, .. } => {
                StepOutcome::Write(WriteOutcome::Stale(self.campaigns[*campaign].status))
            }
            Step::Finish { campaign } => self.finish(*campaign),
            Step::Retry { campaign, expected } => self.retry(*campaign, *expected),
            Step::Release(campaign, worker) => self.release(*campaign, *worker),
            Step::Abandon(campaign, worker) => {
                if self.is_held_by(*campaign, *worker) {
                    self.abandon(*campaign);
                }
                StepOutcome::Nothing
            }
            Step::StatusUpdates(account, items) => self.apply_status_updates(*account, items),
            Step::FailUnknown => self.fail_unknown(),
            Step::Consent { account, contact, out } => self.consent(*account, *contact, *out),
            Step::Suspend { account, suspended } => {
                self.accounts[*account].suspended = *suspended;
                StepOutcome::Nothing
            }
            Step::ReserveTestSend(account) => self.reserve_test_send(*account),
            Step::ReleaseTestSend(account) => {
                let test_sends = &mut self.accounts[*account].test_sends;
                *test_sends = (*test_sends - 1).max(0);
                StepOutcome::Nothing
            }
            Step::PassTime => self.pass_time(),
        };
        self
    }

    fn update_queue_entry(&mut self, campaign: usize, change: impl FnOnce(&mut QueueEntry)) -> StepOutcome {
        if let Some(entry) = &mut self.campaigns[campaign].queue_entry {
            change(entry);
        }
        StepOutcome::Nothing
    }

    /// The refusal if `count` more messages exceed the quota.
    fn exceeded(&self, account: usize, count: usize) -> Option<StepOutcome> {
        let (limit, used) = (self.accounts[account].limit, self.used(account));
        let wanted = i64::try_from(count).unwrap();
        let left = (limit - used).max(0);
        let refusal = CampaignRefusal::QuotaExceeded { limit, left, wanted };
        (used + wanted > limit).then_some(StepOutcome::Start(StartOutcome::Refused(refusal)))
    }

    fn start(&mut self, campaign: usize, worker: Option<usize>, expected: CampaignStatus) -> StepOutcome {
        let (status, account) = (self.campaigns[campaign].status, CAMPAIGNS[campaign]);
        let entry = self.campaigns[campaign].queue_entry.clone();
        let prepared = entry.as_ref().is_some_and(|entry| entry.prepared);
        if status != expected {
            return StepOutcome::Start(StartOutcome::status_changed(expected, status, Command::Start));
        }
        if prepared {
            return refused(status, Command::Start);
        }
        let out = &self.accounts[account].out;
        let contacts: Vec<usize> = (0..CONTACTS_PER_ACCOUNT[account])
            .filter(|contact| !out.contains(contact))
            .collect();
        if contacts.is_empty() {
            return StepOutcome::Start(StartOutcome::Refused(CampaignRefusal::NoRecipients));
        }
        if let Some(exceeded) = self.exceeded(account, contacts.len()) {
            return exceeded;
        }
        let order = entry.map_or_else(|| self.tick(), |entry| entry.order);
        let simulated = account == 1 && self.simulates;
        let stored = &mut self.campaigns[campaign];
        stored.status = CampaignStatus::Sending;
        stored.simulated = simulated;
        stored.has_number = !simulated;
        stored.total = contacts.len();
        stored.begun = true;
        stored.queue_entry = Some(QueueEntry {
            worker,
            expired: false,
            prepared: true,
            order,
            retry: false,
        });
        let recipients = i64::try_from(contacts.len()).unwrap();
        self.sends
            .extend(contacts.into_iter().map(|contact| ((campaign, contact), Send::new())));
        StepOutcome::Start(StartOutcome::Started { recipients })
    }

    fn enqueue_start(&mut self, campaign: usize, expected: CampaignStatus) -> StepOutcome {
        let status = self.campaigns[campaign].status;
        if status != expected {
            return StepOutcome::Write(WriteOutcome::Stale(status));
        }
        self.campaigns[campaign].status = CampaignStatus::Sending;
        self.enqueue(campaign, false, false);
        StepOutcome::Write(WriteOutcome::Done)
    }

    fn enqueue(&mut self, campaign: usize, prepared: bool, retry: bool) {
        let order = self.tick();
        self.campaigns[campaign].queue_entry = Some(QueueEntry {
            worker: None,
            expired: false,
            prepared,
            order,
            retry,
        });
    }

    fn abort_start(&mut self, campaign: usize) -> StepOutcome {
        let stored = &mut self.campaigns[campaign];
        if stored.queue_entry.take_if(|entry| !entry.prepared).is_some() {
            stored.status = CampaignStatus::Draft;
            stored.paused = false;
        }
        StepOutcome::Nothing
    }

    fn take(&mut self, worker: usize) -> StepOutcome {
        for campaign in 0..CAMPAIGNS.len() {
            let entry = self.campaigns[campaign].queue_entry.as_ref();
            if entry.is_some_and(|entry| entry.worker.is_some() && entry.expired) {
                self.abandon(campaign);
            }
        }
        let free = (0..CAMPAIGNS.len()).filter(|at| self.goes_on(*at) && self.holder(*at).is_none());
        let order = |at: &usize| self.campaigns[*at].queue_entry.as_ref().map(|entry| entry.order);
        let taken = free.filter(|at| order(at).is_some()).min_by_key(order);
        if let Some(campaign) = taken {
            self.update_queue_entry(campaign, |entry| (entry.worker, entry.expired) = (Some(worker), false));
        }
        StepOutcome::Taken(taken)
    }

    fn claim(&mut self, campaign: usize, worker: usize, after: Option<usize>, size: usize) -> StepOutcome {
        if !self.is_held_by(campaign, worker) {
            let queued = self.campaigns[campaign].queue_entry.is_some();
            return if queued {
                StepOutcome::Lost
            } else {
                StepOutcome::Stopped
            };
        }
        self.update_queue_entry(campaign, |entry| entry.expired = false);
        if !self.goes_on(campaign) {
            return StepOutcome::Stopped;
        }
        let waiting = |retry: Retry, after: Option<usize>| {
            let sends = self
                .sends_of(campaign)
                .filter(move |(_, send)| send.waits() && send.retry == retry);
            sends
                .map(|((_, contact), _)| contact)
                .filter(move |contact| Some(*contact) > after)
        };
        let due: BTreeSet<usize> = waiting(Retry::Due, None).collect();
        // A retry searches sends without a retry time only if nothing else is due.
        let is_retry = self.campaigns[campaign]
            .queue_entry
            .as_ref()
            .is_some_and(|entry| entry.retry);
        let mut fresh: Vec<usize> = waiting(Retry::Never, after).filter(|_| !is_retry).collect();
        if due.is_empty() && fresh.is_empty() {
            fresh = waiting(Retry::Never, None).collect();
        }
        match (due.is_empty() && fresh.is_empty(), waiting(Retry::Later, None).next()) {
            (false, _) => StepOutcome::Claimed {
                due,
                fresh,
                size,
                goes_on: after.is_some(),
            },
            (true, Some(_)) => StepOutcome::Wait,
            (true, None) => StepOutcome::Exhausted,
        }
    }

    fn record_and_start(&mut self, campaign: usize, worker: usize, results: &Results, next: &[Key]) -> StepOutcome {
        for (contact, kind) in results.iter().filter(|(_, kind)| !kind.is_plain()) {
            self.apply_result((campaign, *contact), *kind);
        }
        let goes_on = self.is_held_by(campaign, worker) && self.goes_on(campaign);
        let own = next
            .iter()
            .filter(|key| goes_on && key.0 == campaign && self.sends[*key].waits());
        let (deferred, started): (Vec<Key>, Vec<Key>) = own.copied().partition(|key| self.has_concurrent_run(*key));
        for (contact, kind) in results.iter().filter(|(_, kind)| kind.is_plain()) {
            let key = (campaign, *contact);
            // A send that did not start has no result.
            if self.sends[&key].is_open() {
                self.apply_result(key, *kind);
            }
        }
        for key in deferred {
            self.send(key).retry = Retry::Later;
        }
        for key in &started {
            let send = self.send(*key);
            (send.started, send.recently) = (true, true);
            send.starts += 1;
            send.possible.insert(send.starts);
            send.reported = None;
        }
        let out = &self.account(campaign).out;
        let unreachable = started
            .iter()
            .filter(|(_, contact)| out.contains(contact))
            .copied()
            .collect();
        StepOutcome::RecordAndStart {
            goes_on,
            started,
            unreachable,
        }
    }

    fn send(&mut self, key: Key) -> &mut Send {
        self.sends.get_mut(&key).unwrap()
    }

    /// Applies the result that a worker reports for a started send.
    fn apply_result(&mut self, key: Key, kind: Kind) {
        let finished = self.is_finished(key.0);
        let send = self.send(key);
        send.reported = Some(kind);
        let attempt = send.starts;
        match kind {
            Kind::Sent | Kind::SentWithWaId => {
                self.set_message_id(key, attempt);
                self.advance(key, SendStatus::Sent);
            }
            Kind::SentWithoutId => {
                self.advance(key, SendStatus::Sent);
            }
            Kind::Failed | Kind::Stopped => {
                send.possible.remove(&attempt);
                if self.advance(key, SendStatus::Failed) {
                    self.send(key).stopped = kind == Kind::Stopped;
                }
                if kind == Kind::Stopped {
                    self.accounts[CAMPAIGNS[key.0]].out.insert(key.1);
                }
            }
            Kind::Unknown => send.unknown |= send.is_open(),
            Kind::DeferredNow | Kind::DeferredLong | Kind::Released => {
                if finished || !send.is_open() {
                    return;
                }
                match kind {
                    Kind::DeferredNow => (send.attempts, send.retry) = (send.attempts + 1, Retry::Due),
                    Kind::DeferredLong => (send.attempts, send.retry) = (send.attempts + 1, Retry::Later),
                    _ => {}
                }
                (send.started, send.unknown) = (false, false);
            }
        }
    }

    /// Stores the WhatsApp id of an attempt's message.
    fn set_message_id(&mut self, key: Key, attempt: usize) {
        let message = message_of(key, attempt);
        let send = self.send(key);
        if send.message.is_none() {
            send.message = Some(message.clone());
            self.accounts[CAMPAIGNS[key.0]].messages.insert(message, key);
        }
    }

    /// Returns whether the update changed the status.
    fn advance(&mut self, key: Key, update: SendStatus) -> bool {
        let send = self.send(key);
        let next = send.status.advance(update);
        if let Some(next) = next {
            (send.status, send.unknown) = (next, false);
        }
        next.is_some()
    }

    fn pause(&mut self, campaign: usize, pause: Pause) -> StepOutcome {
        let stored = &mut self.campaigns[campaign];
        let sending = stored.status == CampaignStatus::Sending;
        match pause {
            Pause::Run => stored.paused |= sending,
            Pause::Template => stored.paused |= sending && !stored.simulated,
            Pause::Member => return self.guarded(campaign, |state| state.campaigns[campaign].paused = true),
        }
        StepOutcome::Nothing
    }

    /// A write that requires the status `sending`.
    fn guarded(&mut self, campaign: usize, change: impl FnOnce(&mut Self)) -> StepOutcome {
        let status = self.campaigns[campaign].status;
        if status != CampaignStatus::Sending {
            return StepOutcome::Write(WriteOutcome::Stale(status));
        }
        change(self);
        StepOutcome::Write(WriteOutcome::Done)
    }

    /// Ends the worker's lease. The outcome of its open sends is unknown.
    fn abandon(&mut self, campaign: usize) {
        self.update_queue_entry(campaign, |entry| (entry.worker, entry.expired) = (None, false));
        self.mark_unknown(campaign);
    }

    fn mark_unknown(&mut self, campaign: usize) {
        let sends = self.sends.range_mut((campaign, 0)..(campaign + 1, 0));
        sends.for_each(|(_, send)| send.unknown |= send.is_open());
    }

    fn end(&mut self, campaign: usize, status: CampaignStatus) {
        self.campaigns[campaign].status = status;
        self.campaigns[campaign].queue_entry = None;
        self.mark_unknown(campaign);
    }

    fn finish(&mut self, campaign: usize) -> StepOutcome {
        let stored = &self.campaigns[campaign];
        if stored.status == CampaignStatus::Sending && !stored.paused {
            let counts = self.counts(campaign);
            let status = match (stored.simulated, counts.accepted() == counts.total) {
                (true, _) => CampaignStatus::Sent,
                (false, true) => CampaignStatus::Completed,
                (false, false) => CampaignStatus::Partial,
            };
            self.end(campaign, status);
        }
        StepOutcome::Report(self.report(campaign))
    }

    /// Resets failed sends and sends that an early end left unstarted.
    fn retry(&mut self, campaign: usize, expected: CampaignStatus) -> StepOutcome {
        let status = self.campaigns[campaign].status;
        if status != expected {
            let refusal = transition(status, Command::Retry)
                .err()
                .unwrap_or(CampaignRefusal::Contended);
            return StepOutcome::Start(StartOutcome::Refused(refusal));
        }
        let out = &self.account(campaign).out;
        let failed =
            |key: &Key, send: &Send| send.status == SendStatus::Failed && !send.stopped && !out.contains(&key.1);
        let retried = self
            .sends_of(campaign)
            .filter(|(key, send)| failed(key, send) || send.waits());
        let retried: Vec<Key> = retried.map(|(key, _)| key).collect();
        if retried.is_empty() {
            return StepOutcome::Start(StartOutcome::Refused(CampaignRefusal::NothingToRetry {
                left_out: vec![],
            }));
        }
        if let Some(exceeded) = self.exceeded(CAMPAIGNS[campaign], retried.len()) {
            return exceeded;
        }
        for key in &retried {
            // A status update of an attempt without a stored message id would match the new attempt.
            let messages = &self.accounts[CAMPAIGNS[campaign]].messages;
            let has_message = |attempt: &usize| messages.contains_key(&message_of(*key, *attempt));
            let possible = self.sends[key].possible.iter().copied().filter(has_message).collect();
            let send = self.send(*key);
            send.possible = possible;
            send.earlier = send.starts;
            send.superseded = send.message.take().or(send.superseded.take());
            (send.status, send.started, send.attempts) = (SendStatus::Pending, false, 0);
            (send.retry, send.reported, send.never_confirmed) = (Retry::Due, None, false);
        }
        self.campaigns[campaign].status = CampaignStatus::Sending;
        self.enqueue(campaign, true, true);
        let recipients = i64::try_from(retried.len()).unwrap();
        StepOutcome::Start(StartOutcome::Started { recipients })
    }

    fn release(&mut self, campaign: usize, worker: usize) -> StepOutcome {
        if self.is_held_by(campaign, worker) {
            let order = self.tick();
            self.update_queue_entry(campaign, |entry| {
                (entry.worker, entry.expired, entry.order) = (None, false, order);
            });
        }
        StepOutcome::Nothing
    }

    /// Applies status updates that name an existing send or a stored message id.
    fn apply_status_updates(&mut self, account: usize, items: &[Item]) -> StepOutcome {
        let message = |item: &Item| message_of(item.key, item.attempt);
        let named = items.iter().filter(|item| item.named).map(|item| item.key);
        let messages = &self.accounts[account].messages;
        let by_message = items.iter().filter_map(|item| messages.get(&message(item)).copied());
        let affected: BTreeSet<Key> = named.chain(by_message).collect();
        let mut unmatched = Vec::new();
        for (position, item) in items.iter().enumerate() {
            let send = &self.sends[&item.key];
            let found = item.named || affected.contains(&item.key) && send.message.as_ref() == Some(&message(item));
            if !found || item.attempt <= send.earlier {
                unmatched.push(position);
                continue;
            }
            let unreserved = send.status == SendStatus::Pending && !self.holds_reservation(item.key);
            let is_surplus = unreserved && item.status != SendStatus::Failed;
            self.accounts[account].surplus += i64::from(is_surplus);
            self.set_message_id(item.key, item.attempt);
            if self.advance(item.key, item.status) && item.status == SendStatus::Failed {
                self.send(item.key).stopped = item.stopped;
            }
            if item.stopped {
                self.accounts[account].out.insert(item.key.1);
            }
        }
        StepOutcome::Unmatched(unmatched)
    }

    fn fail_unknown(&mut self) -> StepOutcome {
        let unknown: Vec<Key> = self
            .sends
            .iter()
            .filter(|(_, send)| send.unknown)
            .map(|(key, _)| *key)
            .collect();
        for key in &unknown {
            self.advance(*key, SendStatus::Failed);
            self.send(*key).never_confirmed = true;
        }
        StepOutcome::Failed(u64::try_from(unknown.len()).unwrap())
    }

    fn consent(&mut self, account: usize, contact: usize, out: bool) -> StepOutcome {
        let stored = &mut self.accounts[account].out;
        match out {
            true => stored.insert(contact),
            false => stored.remove(&contact),
        };
        StepOutcome::Nothing
    }

    fn reserve_test_send(&mut self, account: usize) -> StepOutcome {
        let has_quota = self.used(account) < self.accounts[account].limit;
        self.accounts[account].test_sends += i64::from(has_quota);
        StepOutcome::Reserved(has_quota)
    }

    fn pass_time(&mut self) -> StepOutcome {
        for send in self.sends.values_mut() {
            send.recently = false;
            if send.retry == Retry::Later {
                send.retry = Retry::Due;
            }
        }
        StepOutcome::Nothing
    }
}
