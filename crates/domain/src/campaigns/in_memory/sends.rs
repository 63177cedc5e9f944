//! The rules of sends: claims, starts, results and status updates.

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::super::{
    CampaignStatus, ClaimOutcome, ClaimedSend, NEVER_CONFIRMED, PAIR_INTERVAL, SendResult, StartedSends, Trigger,
};
use super::tables::{InMemorySend, PlantedBug, RunTables, SendKey};
use crate::messaging::{ErrorClass, SendStatus};
use crate::shared::{AccountId, CampaignId, ContactId, SendId};

impl RunTables {
    /// The sends that a claim may return: first those whose retry time has come, then the others by contact.
    pub fn due_sends(&self, id: CampaignId, after: Option<ContactId>) -> (Vec<SendKey>, Vec<SendKey>) {
        let waiting = || self.sends_of(id).filter(|(_, send)| send.waits());
        let due = waiting().filter_map(|(key, send)| Some((send.retry_at.filter(|at| *at <= self.now)?, key)));
        let mut due: Vec<(OffsetDateTime, SendKey)> = due.collect();
        due.sort_unstable();
        let due: Vec<SendKey> = due.into_iter().map(|(_, key)| key).collect();
        let fresh = waiting()
            .filter(|(_, send)| send.retry_at.is_none())
            .map(|(key, _)| key);
        // A retry searches sends without a retry time only if nothing else is due.
        let is_retry = self
            .entry(id)
            .is_some_and(|entry| entry.start.trigger == Trigger::Retry);
        let next: Vec<SendKey> = fresh.clone().filter(|key| !is_retry && Some(key.1) > after).collect();
        match due.is_empty() && next.is_empty() {
            true => (due, fresh.collect()),
            false => (due, next),
        }
    }

    pub(super) fn claim(
        &mut self,
        id: CampaignId,
        worker: Uuid,
        after: Option<ContactId>,
        size: i64,
        lease: Duration,
    ) -> ClaimOutcome {
        let leased_until = self.now + lease;
        match self.entry_mut(id) {
            None => return ClaimOutcome::Stopped,
            Some(entry) if entry.worker != Some(worker) => return ClaimOutcome::Lost,
            Some(entry) => entry.leased_until = leased_until,
        }
        if !self.goes_on(id) {
            return ClaimOutcome::Stopped;
        }
        self.release_holds(id);
        let (due, fresh) = self.due_sends(id, after);
        let size = usize::try_from(size).unwrap_or(0);
        let due: Vec<SendKey> = due.into_iter().chain(fresh).take(size).collect();
        let free = self.check_holds(due.clone());
        if let Some(last) = due.iter().map(|key| key.1).max().filter(|_| free.is_empty()) {
            return ClaimOutcome::Skipped(last);
        }
        let claimed = |key: SendKey| {
            let send = self.sends.get(&key)?;
            Some(ClaimedSend {
                id: send.id,
                contact_id: key.1,
                attempts: send.attempts,
                recipient: self.recipient(key).cloned(),
                wa_id: None,
            })
        };
        let sends: Vec<ClaimedSend> = free.into_iter().filter_map(claimed).collect();
        if !sends.is_empty() {
            self.entry_mut(id).into_iter().for_each(|entry| entry.waiting = None);
            return ClaimOutcome::Sends(sends);
        }
        if let Some(held) = self.held_sends(id) {
            return ClaimOutcome::Held(held);
        }
        let waiting = self.sends_of(id).filter(|(_, send)| send.waits());
        let next = waiting.filter_map(|(_, send)| send.retry_at).min();
        next.map_or(ClaimOutcome::Exhausted, |next| ClaimOutcome::Wait(next - self.now))
    }

    /// When the contact may get a message of this run, if another run of the same number has sent one recently.
    fn free_at(&self, key: SendKey) -> Option<OffsetDateTime> {
        let number = self.campaigns.get(&key.0)?.profile_id?;
        let is_concurrent = |id: CampaignId| {
            let other = self.campaigns.get(&id).filter(|_| id != key.0);
            other.is_some_and(|other| other.profile_id == Some(number) && other.queue_entry.is_some())
        };
        let sends = self.sends.iter();
        let sends = sends.filter(|((id, contact), _)| *contact == key.1 && is_concurrent(*id));
        let started_at = sends.filter_map(|(_, send)| send.started_at).max()?;
        Some(started_at + PAIR_INTERVAL).filter(|at| *at > self.now)
    }

    pub(super) fn record_and_start(
        &mut self,
        id: CampaignId,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> StartedSends {
        let is_plain = |result: &SendResult| matches!(result, SendResult::Sent { wa_id: None, .. });
        let stateful: Vec<_> = results
            .iter()
            .filter(|(_, result)| !is_plain(result))
            .cloned()
            .collect();
        self.record(id, &stateful);
        let goes_on = self.holder(id) == Some(worker) && self.goes_on(id);
        let goes_on = goes_on || self.bug == Some(PlantedBug::IgnoresHolder);
        let can_start = |key: &SendKey| {
            let waits = self.sends.get(key).is_some_and(InMemorySend::waits);
            goes_on && key.0 == id && (waits || self.bug == Some(PlantedBug::IgnoresStatus))
        };
        let keys: Vec<SendKey> = next
            .iter()
            .filter_map(|send| self.key_of(*send))
            .filter(can_start)
            .collect();
        let checks = goes_on && self.bug != Some(PlantedBug::CheckedAtClaim);
        let keys = if checks { self.check_holds(keys) } else { keys }.into_iter();
        let starting: Vec<(SendKey, Option<OffsetDateTime>)> = keys.map(|key| (key, self.free_at(key))).collect();
        // A send that did not start has no result.
        for (send, result) in results.iter().filter(|(_, result)| is_plain(result)) {
            let key = self.key_of(*send).filter(|key| key.0 == id);
            if let Some(key) = key.filter(|key| self.sends.get(key).is_some_and(InMemorySend::is_open)) {
                self.apply_result(key, result);
            }
        }
        let mut started = StartedSends {
            goes_on,
            sends: vec![],
            unreachable: vec![],
            is_over_budget: false,
        };
        let now = self.now;
        for (key, free_at) in starting {
            if self.admitted_sends == Some(0) {
                started.is_over_budget = true;
                continue;
            }
            self.admitted_sends = self.admitted_sends.map(|admitted| admitted - 1);
            match free_at {
                Some(free_at) => self.change(key, |send| (send.retry_at, send.hold) = (Some(free_at), None)),
                None => {
                    self.change(key, |send| (send.started_at, send.hold) = (Some(now), None));
                    let send = self.sends.get(&key).map(|send| send.id);
                    started.sends.extend(send);
                    started
                        .unreachable
                        .extend(send.filter(|_| self.recipient(key).is_none()));
                }
            }
        }
        started
    }

    pub(super) fn record(&mut self, id: CampaignId, results: &[(SendId, SendResult)]) {
        for (send, result) in results {
            if let Some(key) = self.key_of(*send).filter(|key| key.0 == id) {
                self.apply_result(key, result);
            }
        }
    }

    fn apply_result(&mut self, key: SendKey, result: &SendResult) {
        use CampaignStatus::{Completed, Partial, Sent};
        // A send of a finished run is not due again: no worker would claim it.
        let finished = matches!(self.status(key.0), Some(Completed | Partial | Sent));
        let now = self.now;
        match result {
            SendResult::Sent { message_id, .. } => {
                if let Some(message_id) = message_id {
                    self.set_message_id(key, message_id);
                }
                self.advance(key, SendStatus::Sent, None, "");
            }
            SendResult::Failed { code, message } => self.advance(key, SendStatus::Failed, *code, message),
            SendResult::Unknown => self.change(key, |send| {
                if send.status == SendStatus::Pending {
                    send.unknown_at.get_or_insert(now);
                }
            }),
            SendResult::Deferred { .. } | SendResult::Throttled { .. } | SendResult::Released => {
                self.change(key, |send| {
                    if finished || send.status != SendStatus::Pending {
                        return;
                    }
                    if let SendResult::Deferred { delay } | SendResult::Throttled { delay } = result {
                        send.retry_at = Some(now + *delay);
                    }
                    send.attempts += u32::from(matches!(result, SendResult::Deferred { .. }));
                    (send.started_at, send.unknown_at) = (None, None);
                });
            }
        }
    }

    fn set_message_id(&mut self, key: SendKey, message: &str) {
        let Some(send) = self.sends.get_mut(&key).filter(|send| send.wa_message_id.is_none()) else {
            return;
        };
        send.wa_message_id = Some(message.to_owned());
        let id = send.id;
        if let Some(account) = self.account_mut(key.0) {
            account.messages.insert(message.to_owned(), id);
        }
    }

    /// Applies a status, unless the send already has a later one. An opt-out of the contact holds in any case.
    pub(super) fn advance(&mut self, key: SendKey, status: SendStatus, code: Option<i64>, message: &str) {
        let now = self.now;
        self.change(key, |send| {
            let Some(next) = send.status.advance(status) else {
                return;
            };
            (send.status, send.unknown_at) = (next, None);
            if next == SendStatus::Failed {
                (send.error, send.failed_at) = (Some((code, message.to_owned())), Some(now));
            }
        });
        if code.map(|code| self.codes.class(code)) == Some(ErrorClass::OptedOut) {
            let contact = self
                .account_mut(key.0)
                .and_then(|account| account.contacts.get_mut(&key.1));
            contact.into_iter().for_each(|contact| contact.opted_out = true);
        }
    }

    /// Applies a status update. False: it matches no send of the account.
    pub fn apply_status(
        &mut self,
        account: AccountId,
        send: Option<SendId>,
        message: &str,
        status: SendStatus,
        error_code: Option<i64>,
    ) -> bool {
        let is_own = |key: &SendKey| {
            let campaign = self.campaigns.get(&key.0);
            campaign.is_some_and(|row| row.campaign.account_id == account)
        };
        let named = send.and_then(|send| self.key_of(send)).filter(is_own);
        let by_message = self
            .accounts
            .get(&account)
            .and_then(|account| account.messages.get(message));
        let by_message = by_message.and_then(|send| self.key_of(*send));
        let Some((key, send)) = named.or(by_message).and_then(|key| Some((key, self.sends.get(&key)?))) else {
            return false;
        };
        // A message of an attempt before a retry.
        if send.superseded.is_some() && by_message == Some(key) && send.wa_message_id.as_deref() != Some(message) {
            return false;
        }
        self.set_message_id(key, message);
        self.advance(key, status, error_code, "");
        true
    }

    pub(super) fn fail_unknown(&mut self, ttl: Duration, limit: i64) -> u64 {
        let end = self.now - ttl;
        let unknown = self
            .sends
            .iter()
            .filter(|(_, send)| send.is_open() && send.unknown_at.is_some_and(|at| at <= end));
        let unknown: Vec<SendKey> = unknown
            .map(|(key, _)| *key)
            .take(usize::try_from(limit).unwrap_or(0))
            .collect();
        for key in &unknown {
            self.advance(*key, SendStatus::Failed, None, NEVER_CONFIRMED);
            self.change(*key, |send| send.never_confirmed = true);
        }
        unknown.len().try_into().unwrap_or(u64::MAX)
    }
}
