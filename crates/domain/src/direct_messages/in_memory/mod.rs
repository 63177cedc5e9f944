//! In-memory direct messages and the queues of their numbers: the reference that the store in PostgreSQL is compared
//! with, and the store of the simulation. The caller supplies contacts, templates, and what else uses the quota.

mod tables;

use std::collections::{BTreeMap, BTreeSet};

use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::creation::month_of;
use super::{
    Advance, CancelOutcome, CreationOutcome, CreationPlan, Departure, DepartureFacts, DirectMessage, DirectStatus,
    EXPIRED, HoldReason, LeavingMessage, MessageState, NumberQueue, cancelled_event, departure,
};
use crate::campaigns::{MessageStatusEvent, NEVER_CONFIRMED, SendResult};
use crate::holds::HoldPolicy;
use crate::messaging::SendStatus;
use crate::shared::{AccountId, MessageId, ProfileId};

pub use tables::*;

fn is_accepted(status: DirectStatus) -> bool {
    use DirectStatus::{Delivered, Read, Sent};
    matches!(status, Sent | Delivered | Read)
}

impl MessageTables {
    pub fn new(now: OffsetDateTime) -> Self {
        Self {
            now,
            messages: BTreeMap::new(),
            queues: BTreeMap::new(),
            usage: BTreeMap::new(),
            conversations: BTreeMap::new(),
            events: vec![],
            bug: None,
            last_position: 0,
        }
    }

    fn has_bug(&self, bug: PlantedMessageBug) -> bool {
        self.bug == Some(bug)
    }

    /// The messages of the month's quota that direct messages use or hold.
    pub fn used(&self, account: AccountId, month: Date) -> i64 {
        let usage = self.usage.get(&(account, month)).copied().unwrap_or_default();
        usage.sent + usage.reserved
    }

    /// The message with this reference.
    pub fn by_reference(&self, account: AccountId, reference: &str) -> Option<&InMemoryMessage> {
        let mut of_account = self.messages.values().filter(|row| row.account_id == account);
        of_account.find(|row| row.message.client_reference.as_deref() == Some(reference))
    }

    /// `used_by_others`: the messages of a month's quota that campaigns use or hold.
    pub fn insert(
        &mut self,
        account: AccountId,
        plan: &CreationPlan,
        used_by_others: impl Fn(Date) -> i64,
    ) -> CreationOutcome {
        let references = plan
            .messages
            .iter()
            .filter_map(|new| new.message.client_reference.as_ref());
        let is_taken = |reference: &String| self.by_reference(account, reference).is_some();
        if !self.has_bug(PlantedMessageBug::ReferenceNotUnique) && references.into_iter().any(is_taken) {
            return CreationOutcome::Changed;
        }
        for (&month, &count) in &plan.quota {
            let left = (plan.monthly_limit - used_by_others(month) - self.used(account, month)).max(0);
            if count > left && !self.has_bug(PlantedMessageBug::QuotaNotChecked) {
                return CreationOutcome::QuotaExceeded { month, left };
            }
        }
        for new in &plan.messages {
            let send_at = new.message.send_at;
            let due_at = match self.bug {
                Some(PlantedMessageBug::SendAtIgnored) => self.now,
                _ => send_at,
            };
            let content = new.request.get("content").cloned().unwrap_or_default();
            // A request without a readable content is a defect of the caller; its message never leaves.
            let Ok(content) = serde_json::from_value(content) else {
                continue;
            };
            let row = InMemoryMessage {
                account_id: account,
                message: new.message.clone(),
                content,
                request: new.request.clone(),
                due_at: Some(due_at),
                attempts: 0,
                quota_month: new.quota_month,
            };
            if let Some(month) = new.quota_month {
                self.usage.entry((account, month)).or_default().reserved += 1;
            }
            let (queue, expires_at) = (row.queue(), row.message.expires_at);
            self.messages.insert(new.message.id, row);
            if !self.has_bug(PlantedMessageBug::QueueNotDue) || !self.queues.contains_key(&queue) {
                self.make_due(queue, due_at, Some(expires_at));
            }
        }
        CreationOutcome::Inserted
    }

    /// Makes a queue due at this time, or earlier. A held queue stays held, but is due when a message expires.
    fn make_due(&mut self, queue: NumberQueue, at: OffsetDateTime, expires_at: Option<OffsetDateTime>) {
        self.last_position += 1;
        let row = self.queues.entry(queue).or_insert(InMemoryQueue {
            due_at: Some(at),
            worker: None,
            leased_until: self.now,
            hold_reason: None,
            held_until: None,
            position: self.last_position,
        });
        let at = if row.hold_reason.is_none() {
            Some(at)
        } else {
            expires_at
        };
        row.due_at = row.due_at.into_iter().chain(at).min();
    }

    pub fn cancel(&mut self, account: AccountId, id: MessageId) -> CancelOutcome {
        let ignores_start = self.has_bug(PlantedMessageBug::CancelIgnoresStart);
        let own = self.messages.get(&id).filter(|row| row.account_id == account);
        let Some(row) = own else { return CancelOutcome::Missing };
        if row.message.status == DirectStatus::Cancelled {
            return CancelOutcome::Cancelled(Box::new(row.message.clone()));
        }
        let was_pending = row.message.status == DirectStatus::Pending;
        let is_started = row.is_started() && !ignores_start;
        let Some(status) = row.message.status.cancel(is_started) else {
            return CancelOutcome::AlreadyLeft;
        };
        let cancelled = self.change(id, |row| row.message.status = status);
        let Some(cancelled) = cancelled else {
            return CancelOutcome::Missing;
        };
        if was_pending && !self.has_bug(PlantedMessageBug::CancelEventLost) {
            self.events.push((account, cancelled_event(&cancelled)));
        }
        CancelOutcome::Cancelled(Box::new(cancelled))
    }

    /// Changes a message, and the quota that it uses. A message that is not pending any more leaves its queue.
    fn change(&mut self, id: MessageId, change: impl FnOnce(&mut InMemoryMessage)) -> Option<DirectMessage> {
        let keeps_quota = self.has_bug(PlantedMessageBug::QuotaKept);
        let row = self.messages.get_mut(&id)?;
        let before = row.message.status;
        change(row);
        let (status, account) = (row.message.status, row.account_id);
        (row.message.now, row.message.updated_at) = (self.now, self.now);
        if status != DirectStatus::Pending {
            (row.due_at, row.message.is_unknown, row.message.hold_reason) = (None, false, None);
            let is_kept = keeps_quota && !row.is_started();
            if let Some(month) = row.quota_month.take_if(|_| !is_kept) {
                self.usage.entry((account, month)).or_default().reserved -= 1;
            }
        }
        let sent = i64::from(is_accepted(status)) - i64::from(is_accepted(before));
        if sent > 0 {
            row.message.sent_at.get_or_insert(self.now);
            let conversation = self.conversations.get(&(account, row.message.contact_id));
            row.message.conversation_id = conversation.copied().or(row.message.conversation_id);
        }
        let month = month_of(row.message.send_at);
        self.usage.entry((account, month)).or_default().sent += sent;
        Some(row.message.clone())
    }

    /// Applies a status, unless the message already has a later one.
    fn advance(&mut self, id: MessageId, status: SendStatus, code: Option<i64>, text: Option<&str>) {
        let Some(next) = self
            .messages
            .get(&id)
            .and_then(|row| row.message.status.advance(status))
        else {
            return;
        };
        self.change(id, |row| {
            row.message.status = next;
            if next == DirectStatus::Failed {
                (row.message.error_code, row.message.error_message) = (code, text.map(str::to_owned));
            }
        });
        if let Some(row) = self.messages.get(&id) {
            let events = MessageStatusEvent::events(&[row.status_event(status)]);
            self.events
                .extend(events.into_iter().map(|event| (row.account_id, event)));
        }
    }

    /// Applies a status update. False: it matches no message of the account.
    pub fn apply_status(
        &mut self,
        account: AccountId,
        id: Option<MessageId>,
        wa_message_id: &str,
        status: SendStatus,
        code: Option<i64>,
    ) -> bool {
        let is_own = |id: &MessageId| self.messages.get(id).is_some_and(|row| row.account_id == account);
        let has_id = |row: &InMemoryMessage| {
            row.account_id == account && row.message.wa_message_id.as_deref() == Some(wa_message_id)
        };
        let by_message = || self.messages.iter().find(|(_, row)| has_id(row)).map(|(id, _)| *id);
        let Some(id) = id.filter(is_own).or_else(by_message) else {
            return false;
        };
        self.set_message_id(id, wa_message_id);
        self.advance(id, status, code, None);
        true
    }

    fn set_message_id(&mut self, id: MessageId, wa_message_id: &str) {
        let row = self.messages.get_mut(&id);
        if let Some(row) = row.filter(|row| row.message.wa_message_id.is_none()) {
            row.message.wa_message_id = Some(wa_message_id.to_owned());
            row.message.updated_at = self.now;
        }
    }

    /// The message ids of a queue that match, by due time and id.
    fn of_queue(&self, queue: NumberQueue, matches: impl Fn(&InMemoryMessage) -> bool) -> Vec<MessageId> {
        let rows = self
            .messages
            .iter()
            .filter(|(_, row)| row.queue() == queue && matches(row));
        let rows: BTreeSet<_> = rows.map(|(id, row)| (row.due_at, *id)).collect();
        rows.into_iter().map(|(_, id)| id).collect()
    }

    fn due_messages(&self, queue: NumberQueue) -> Vec<MessageId> {
        self.of_queue(queue, |row| row.due_at.is_some_and(|at| at <= self.now))
    }

    fn mark_unknown(&mut self, queue: NumberQueue) {
        let resends = self.has_bug(PlantedMessageBug::ResendsUnknown);
        let now = self.now;
        for id in self.of_queue(queue, |row| row.is_open() && !row.message.is_unknown) {
            self.change(id, |row| match resends {
                true => (row.due_at, row.message.started_at) = (Some(now), None),
                false => row.message.is_unknown = true,
            });
        }
    }

    /// Leases the queue that has waited longest and has a due message.
    pub fn take(&mut self, worker: Uuid, lease: Duration) -> Option<NumberQueue> {
        let (now, ignores_lease) = (self.now, self.has_bug(PlantedMessageBug::TakeIgnoresLease));
        let is_free = |row: &InMemoryQueue| !row.is_leased(now) || ignores_lease;
        let waiting = self.queues.iter_mut();
        let waiting = waiting.filter(|(_, row)| row.due_at.is_some_and(|at| at <= now) && is_free(row));
        let (&queue, row) = waiting.min_by_key(|(_, row)| row.position)?;
        (row.worker, row.leased_until) = (Some(worker), now + lease);
        self.mark_unknown(queue);
        Some(queue)
    }

    pub fn due(&self, queue: NumberQueue, limit: u32) -> u32 {
        u32::try_from(self.due_messages(queue).len()).map_or(limit, |due| due.min(limit))
    }

    fn held_queue(&mut self, queue: NumberQueue, worker: Uuid) -> Option<&mut InMemoryQueue> {
        self.queues.get_mut(&queue).filter(|row| row.worker == Some(worker))
    }

    /// `facts`: what decides on the departure of a message.
    pub fn start(
        &mut self,
        queue: NumberQueue,
        worker: Uuid,
        limit: u32,
        lease: Duration,
        facts: impl Fn(&InMemoryMessage) -> DepartureFacts,
        policy: &mut HoldPolicy,
    ) -> Option<Vec<LeavingMessage>> {
        let (now, leased_until) = (self.now, self.now + lease);
        let ignores_holder = self.has_bug(PlantedMessageBug::StartIgnoresHolder);
        match self.held_queue(queue, worker) {
            Some(row) => row.leased_until = leased_until,
            None if ignores_holder => {}
            None => return None,
        }
        let stays_due = self.has_bug(PlantedMessageBug::StartedStaysDue);
        let mut leaving = vec![];
        for id in self
            .due_messages(queue)
            .into_iter()
            .take(usize::try_from(limit).unwrap_or(0))
        {
            let Some(mut facts) = self.messages.get(&id).map(&facts) else {
                continue;
            };
            if self.has_bug(PlantedMessageBug::ExpiryIgnored) {
                facts.expires_at = now + Duration::SECOND;
            }
            match departure(facts, policy) {
                Departure::Hold { cause, until } => drop(self.change(id, |row| {
                    row.due_at = Some(until);
                    (row.message.hold_reason, row.message.retry_at) = (Some(cause.into()), Some(until));
                })),
                Departure::Fail(text) => self.advance(id, SendStatus::Failed, None, Some(&text)),
                Departure::Leave(message) => {
                    let address = message.to.kind();
                    self.change(id, |row| {
                        (row.message.started_at, row.message.hold_reason) = (Some(now), None);
                        row.message.address = Some(address);
                        row.due_at.take_if(|_| !stays_due);
                    });
                    leaving.push(*message);
                }
            }
        }
        Some(leaving)
    }

    pub fn record(&mut self, queue: NumberQueue, results: &[(MessageId, SendResult)]) {
        use SendResult::{Deferred, Released, Throttled};
        let may_be_due = |result: &SendResult| matches!(result, Deferred { .. } | Throttled { .. } | Released);
        if results.iter().any(|(_, result)| may_be_due(result)) {
            self.make_due(queue, OffsetDateTime::UNIX_EPOCH, None);
        }
        for (id, result) in results {
            self.apply_result(*id, result);
        }
    }

    fn apply_result(&mut self, id: MessageId, result: &SendResult) {
        if let SendResult::Sent {
            message_id: Some(message),
            ..
        } = result
        {
            // The event of the status contains the id.
            self.set_message_id(id, message);
        }
        let Some(row) = self.messages.get(&id) else { return };
        let state = MessageState {
            status: row.message.status,
            is_started: row.is_started(),
        };
        let (now, replaces) = (self.now, self.has_bug(PlantedMessageBug::ResultReplacesStatus));
        match (state.after(result), result) {
            (Advance::To(_), SendResult::Failed { code, message }) => {
                self.advance(id, SendStatus::Failed, *code, Some(message));
            }
            (Advance::To(_), _) => self.advance(id, SendStatus::Sent, None, None),
            (Advance::Unknown, _) => drop(self.change(id, |row| row.message.is_unknown = true)),
            (
                Advance::Again {
                    delay,
                    counts,
                    is_throttled,
                },
                _,
            ) => drop(self.change(id, |row| {
                row.due_at = Some(now + delay);
                (row.message.started_at, row.message.is_unknown) = (None, false);
                row.message.hold_reason = is_throttled.then_some(HoldReason::Throttled);
                row.attempts += u32::from(counts);
            })),
            (Advance::Nothing, SendResult::Sent { .. }) if replaces => {
                self.change(id, |row| row.message.status = DirectStatus::Sent);
            }
            (Advance::Nothing, _) => {}
        }
    }

    /// Releases a queue of this worker, and holds it for the time of `hold` if a message is due before its end. A queue
    /// without waiting messages is deleted.
    pub fn release(&mut self, queue: NumberQueue, worker: Uuid, hold: Option<(HoldReason, Duration)>) {
        if self.held_queue(queue, worker).is_none() {
            return;
        }
        let now = self.now;
        if hold.is_some() && !self.has_bug(PlantedMessageBug::ExpiryIgnored) {
            let is_expired = |row: &InMemoryMessage| row.message.expires_at <= now;
            let due = self.due_messages(queue);
            let expired = due
                .into_iter()
                .filter(|id| self.messages.get(id).is_some_and(is_expired));
            for id in expired.collect::<Vec<_>>() {
                self.advance(id, SendStatus::Failed, None, Some(EXPIRED));
            }
        }
        let waiting = self.messages.values().filter(|row| row.queue() == queue);
        let waiting = waiting.filter_map(|row| Some((row.due_at?, row.message.expires_at)));
        let waiting: Vec<_> = waiting.collect();
        let first = waiting.iter().map(|(due_at, _)| *due_at).min();
        let expires = waiting.iter().map(|(due_at, expires_at)| *due_at.max(expires_at)).min();
        let first = first.filter(|at| *at <= now || !self.has_bug(PlantedMessageBug::QueueDeleted));
        self.last_position += 1;
        let position = self.last_position;
        let Some(first) = first else {
            self.queues.remove(&queue);
            return;
        };
        let hold = hold.map(|(reason, delay)| (reason, now + delay));
        let hold = hold.filter(|(_, until)| first < *until);
        if let Some(row) = self.held_queue(queue, worker) {
            row.worker = None;
            row.position = position;
            row.hold_reason = hold.map(|(reason, _)| reason);
            row.held_until = hold.map(|(_, until)| until);
            row.due_at = Some(hold.map_or(first, |(_, until)| expires.map_or(until, |at| at.min(until))));
        }
    }

    /// Why and how long the messages of a queue are still held.
    pub fn held(&self, queue: NumberQueue) -> Option<(HoldReason, Duration)> {
        let row = self.queues.get(&queue)?;
        let left = row.held_until? - self.now;
        Some((row.hold_reason?, left)).filter(|_| left.is_positive())
    }

    /// Moves the due messages of a queue to another number, and releases the queue.
    pub fn hand_over(&mut self, queue: NumberQueue, worker: Uuid, number: ProfileId) {
        if self.held_queue(queue, worker).is_none() {
            return;
        }
        let successor = NumberQueue {
            profile_id: Some(number),
            ..queue
        };
        for id in self.due_messages(queue) {
            self.change(id, |row| row.message.profile_id = Some(number));
            self.make_due(successor, OffsetDateTime::UNIX_EPOCH, None);
        }
        self.release(queue, worker, None);
    }

    pub fn abandon(&mut self, queue: NumberQueue, worker: Uuid) {
        if self.held_queue(queue, worker).is_some() {
            self.mark_unknown(queue);
        }
        self.release(queue, worker, None);
    }

    /// Fails at most `limit` messages that were started longer than `ttl` ago, the oldest first. Returns how many.
    pub fn fail_unknown(&mut self, ttl: Duration, limit: usize) -> u64 {
        if self.has_bug(PlantedMessageBug::UnknownNeverFails) {
            return 0;
        }
        let end = self.now - ttl;
        let is_old = |row: &InMemoryMessage| row.is_open() && row.message.started_at.is_some_and(|at| at <= end);
        let old = self.messages.iter().filter(|(_, row)| is_old(row));
        let old: BTreeSet<_> = old.map(|(id, row)| (row.message.started_at, *id)).collect();
        let old: Vec<MessageId> = old.into_iter().map(|(_, id)| id).take(limit).collect();
        for id in &old {
            self.advance(*id, SendStatus::Failed, None, Some(NEVER_CONFIRMED));
        }
        u64::try_from(old.len()).unwrap_or(u64::MAX)
    }
}
