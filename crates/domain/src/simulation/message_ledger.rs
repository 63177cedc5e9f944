//! What happened to direct messages, and the checks of every change. The ledger compares each committed state with the
//! one before, and with the calls that WhatsApp got and the responses that clients got.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::executor::TaskId;
use super::ledger::Ledger;
use crate::campaigns::in_memory::InMemoryContact;
use crate::direct_messages::in_memory::{InMemoryMessage, MessageTables, MonthUse};
use crate::direct_messages::{ContactFacts, ContentKind, DirectStatus, EXPIRED, LeavingMessage, NumberQueue};
use crate::shared::{AccountId, ContactId, MessageId, WebhookKind};
use crate::webhooks::in_memory::WebhookTables;

/// How long a contact who has written may get free-form messages.
const WINDOW: Duration = Duration::hours(24);

/// A message as it was committed last.
#[derive(Clone)]
struct SeenMessage {
    account: AccountId,
    contact: ContactId,
    kind: ContentKind,
    status: DirectStatus,
    is_started: bool,
    send_at: OffsetDateTime,
    expires_at: OffsetDateTime,
    /// The canonical form of its first request.
    request: Value,
    /// Whether it uses the quota of the month of `send_at`.
    uses_quota: bool,
}

#[derive(Default)]
pub(super) struct MessageHistory {
    messages: BTreeMap<MessageId, SeenMessage>,
    references: BTreeMap<(AccountId, String), MessageId>,
    /// The calls of each message that may have arrived.
    calls: BTreeMap<MessageId, u32>,
    /// The task that has started a message and not called WhatsApp for it.
    starters: BTreeMap<MessageId, TaskId>,
    /// The messages whose cancel got a response.
    cancelled: BTreeSet<MessageId>,
    holders: BTreeMap<NumberQueue, QueueHolder>,
}

/// The worker that has taken a queue.
#[derive(Clone, Copy)]
pub(super) struct QueueHolder {
    pub(super) worker: Uuid,
    pub(super) task: TaskId,
    pub(super) leased_until: OffsetDateTime,
}

fn is_accepted(status: DirectStatus) -> bool {
    use DirectStatus::{Delivered, Read, Sent};
    matches!(status, Sent | Delivered | Read)
}

/// Whether a message may go from one status to the other.
fn may_follow(before: DirectStatus, after: DirectStatus, was_started: bool) -> bool {
    use DirectStatus::{Cancelled, Delivered, Failed, Pending, Read, Sent};
    match (before, after) {
        (Pending, Cancelled) => !was_started,
        (Pending, Sent | Delivered | Read | Failed) | (Sent, Delivered | Read | Failed) | (Delivered, Read) => true,
        (before, after) => before == after,
    }
}

/// The first day of the month.
fn month(at: OffsetDateTime) -> Date {
    Date::from_calendar_date(at.year(), at.month(), 1).unwrap()
}

impl SeenMessage {
    fn of(row: &InMemoryMessage) -> Self {
        let message = &row.message;
        Self {
            account: row.account_id,
            contact: message.contact_id,
            kind: message.kind,
            status: message.status,
            is_started: message.started_at.is_some(),
            send_at: message.send_at,
            expires_at: message.expires_at,
            request: row.request.clone(),
            uses_quota: message.kind == ContentKind::Template,
        }
    }
}

impl Ledger {
    pub(super) fn check_messages(&mut self, tables: &MessageTables, webhooks: &WebhookTables) {
        let mut is_changed = false;
        for (id, row) in &tables.messages {
            let now = (row.message.status, row.message.started_at.is_some());
            let before = self.messages.messages.get(id);
            if before.map(|seen| (seen.status, seen.is_started)) == Some(now) {
                continue;
            }
            is_changed = true;
            match self.messages.messages.insert(*id, SeenMessage::of(row)) {
                None => self.message_appeared(*id, row),
                Some(before) => self.message_changed(*id, &before, row, tables.now, webhooks),
            }
        }
        self.check_queues(tables);
        if tables.messages.len() != self.messages.messages.len() {
            self.violation("a message was removed".to_owned());
        }
        if is_changed {
            self.check_month_use(tables);
        }
    }

    /// Checks that a worker will look at each waiting message in time.
    fn check_queues(&mut self, tables: &MessageTables) {
        for (id, row) in &tables.messages {
            let Some(due_at) = row.due_at else { continue };
            let key = NumberQueue {
                account_id: row.account_id,
                profile_id: row.message.profile_id,
            };
            let is_queued = tables.queues.get(&key).is_some_and(|queue| {
                queue.worker.is_some() || queue.hold_reason.is_some() || queue.due_at.is_some_and(|at| at <= due_at)
            });
            if !is_queued {
                self.violation(format!("message {id} waits, and its queue is not due in time"));
            }
        }
    }

    fn message_appeared(&mut self, id: MessageId, row: &InMemoryMessage) {
        let message = &row.message;
        if message.status != DirectStatus::Pending || message.started_at.is_some() {
            self.violation(format!("new message {id} is {} or started", message.status));
        }
        if let Some(reference) = &message.client_reference {
            let key = (row.account_id, reference.clone());
            if let Some(first) = self.messages.references.insert(key, id) {
                self.violation(format!("messages {first} and {id} have the reference {reference}"));
            }
        }
    }

    fn message_changed(
        &mut self,
        id: MessageId,
        before: &SeenMessage,
        row: &InMemoryMessage,
        now: OffsetDateTime,
        webhooks: &WebhookTables,
    ) {
        let status = row.message.status;
        let is_started = row.message.started_at.is_some();
        if before.is_started && !is_started && self.possible_calls(id) > 0 {
            self.violation(format!("message {id} is due again and may have arrived"));
        }
        if before.status == status {
            return;
        }
        if !may_follow(before.status, status, before.is_started) {
            self.violation(format!("message {id} went from {} to {status}", before.status));
        }
        let is_expired = status == DirectStatus::Failed && row.message.error_message.as_deref() == Some(EXPIRED);
        if is_expired && (now < before.expires_at || before.is_started) {
            self.violation(format!("message {id} expires too early or after its start"));
        }
        let kind = match status {
            DirectStatus::Pending => return,
            DirectStatus::Sent => WebhookKind::MessageSent,
            DirectStatus::Delivered => WebhookKind::MessageDelivered,
            DirectStatus::Read => WebhookKind::MessageRead,
            DirectStatus::Failed => WebhookKind::MessageFailed,
            DirectStatus::Cancelled => WebhookKind::MessageCancelled,
        };
        self.expect_event(webhooks, before.account, kind, &json!({ "id": id }));
    }

    fn possible_calls(&self, id: MessageId) -> u32 {
        self.messages.calls.get(&id).copied().unwrap_or_default()
    }

    /// Checks that the quota of each month equals what was accepted and not given back.
    fn check_month_use(&mut self, tables: &MessageTables) {
        let mut expected: BTreeMap<(AccountId, Date), MonthUse> = BTreeMap::new();
        for seen in self.messages.messages.values() {
            let of_month = expected.entry((seen.account, month(seen.send_at))).or_default();
            of_month.sent += i64::from(is_accepted(seen.status));
            of_month.reserved += i64::from(seen.uses_quota && seen.status == DirectStatus::Pending);
        }
        expected.retain(|_, usage| *usage != MonthUse::default());
        let mut stored = tables.usage.clone();
        stored.retain(|_, usage| *usage != MonthUse::default());
        if stored != expected {
            self.violation(format!("the months' messages are {stored:?}, expected {expected:?}"));
        }
    }

    /// `used`: the messages of a month after new ones were accepted.
    pub(super) fn messages_accepted(&mut self, used: i64, limit: i64) {
        if used > limit {
            self.violation(format!("{used} messages of a month are used or held of {limit}"));
        }
    }

    pub(super) fn check_phones(&mut self, contacts: &BTreeMap<ContactId, InMemoryContact>) {
        let phones: BTreeSet<&str> = contacts
            .values()
            .map(|contact| contact.recipient.phone.as_str())
            .collect();
        if phones.len() < contacts.len() {
            self.violation("two contacts have the same phone".to_owned());
        }
    }

    /// The tasks that hold queues.
    pub(super) fn messengers(&self) -> BTreeSet<TaskId> {
        self.messages.holders.values().map(|holder| holder.task).collect()
    }

    pub(super) fn queue_taken(&mut self, queue: NumberQueue, holder: QueueHolder, now: OffsetDateTime) {
        let before = self.messages.holders.insert(queue, holder);
        if before.is_some_and(|before| before.leased_until >= now) {
            self.violation(format!("{queue:?} is taken while another worker holds it"));
        }
    }

    pub(super) fn queue_left(&mut self, queue: NumberQueue, worker: Uuid) {
        if self
            .messages
            .holders
            .get(&queue)
            .is_some_and(|holder| holder.worker == worker)
        {
            self.messages.holders.remove(&queue);
        }
    }

    pub(super) fn messages_started(
        &mut self,
        queue: NumberQueue,
        starter: QueueHolder,
        at: OffsetDateTime,
        started: &[LeavingMessage],
        contacts: &BTreeMap<ContactId, ContactFacts>,
    ) {
        match self.messages.holders.get_mut(&queue) {
            Some(holder) if holder.worker == starter.worker => *holder = starter,
            _ => self.violation(format!("a worker starts messages of {queue:?} without holding it")),
        }
        for LeavingMessage { id, .. } in started {
            self.messages.starters.insert(*id, starter.task);
            let Some(seen) = self.messages.messages.get(id).cloned() else {
                self.violation(format!("message {id} starts before it was committed"));
                continue;
            };
            if seen.status != DirectStatus::Pending || seen.is_started {
                self.violation(format!(
                    "message {id} starts although it was started or is {}",
                    seen.status
                ));
            }
            if at < seen.send_at || at >= seen.expires_at {
                self.violation(format!("message {id} starts before send_at or after expires_at"));
            }
            let contact = &contacts[&seen.contact];
            if contact.opted_out && seen.kind == ContentKind::Template {
                self.violation(format!("message {id} starts although the contact has opted out"));
            }
            let is_open = contact.last_inbound_at.is_some_and(|last| at < last + WINDOW);
            if seen.kind == ContentKind::Text && !is_open {
                self.violation(format!("message {id} starts outside the window"));
            }
        }
    }

    /// WhatsApp is called for a message.
    pub(super) fn message_called(&mut self, id: MessageId, task: TaskId) {
        let is_started = self.messages.messages.get(&id).map(|seen| seen.is_started);
        if is_started != Some(true) || self.messages.starters.remove(&id) != Some(task) {
            self.violation(format!("message {id} is called without a committed start"));
        }
        let is_cancelled = self.messages.messages.get(&id).map(|seen| seen.status) == Some(DirectStatus::Cancelled);
        if is_cancelled || self.messages.cancelled.contains(&id) {
            self.violation(format!("message {id} is called after it was cancelled"));
        }
        let calls = self.messages.calls.entry(id).or_default();
        *calls += 1;
        if *calls > 1 {
            self.violation(format!("message {id} is called again and may have arrived before"));
        }
    }

    /// WhatsApp rejected the message, so that it did not arrive.
    pub(super) fn message_rejected(&mut self, id: MessageId) {
        *self.messages.calls.entry(id).or_default() -= 1;
    }

    /// A client got the message `id` for its request.
    pub(super) fn message_responded(
        &mut self,
        id: MessageId,
        account: AccountId,
        reference: Option<&String>,
        request: &Value,
    ) {
        let Some(seen) = self.messages.messages.get(&id) else {
            self.violation(format!("a client got message {id}, which is not committed"));
            return;
        };
        let is_same = seen.request == *request && seen.account == account;
        let key = reference.map(|reference| (account, reference.clone()));
        let has_reference = key.is_none_or(|key| self.messages.references.get(&key) == Some(&id));
        if !is_same || !has_reference {
            self.violation(format!("a client got message {id} of another request or reference"));
        }
    }

    /// A client got the response that a message is cancelled.
    pub(super) fn cancel_responded(&mut self, id: MessageId) {
        self.messages.cancelled.insert(id);
        if self.possible_calls(id) > 0 {
            self.violation(format!("message {id} is cancelled after its call"));
        }
    }

    /// Checks the end of every message.
    pub(super) fn check_ends(&self) -> Result<(), String> {
        for (id, seen) in &self.messages.messages {
            let (status, calls) = (seen.status, self.possible_calls(*id));
            let is_possible = match status {
                DirectStatus::Pending => false,
                DirectStatus::Sent | DirectStatus::Delivered | DirectStatus::Read => calls == 1,
                DirectStatus::Cancelled => calls == 0,
                DirectStatus::Failed => true,
            };
            if !is_possible {
                return Err(format!("message {id} is {status} after {calls} calls"));
            }
        }
        Ok(())
    }
}
