//! The tables of the in-memory store.

use std::collections::BTreeMap;

use serde_json::Value;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::super::{DirectMessage, DirectStatus, HoldReason, NumberQueue, RequestedContent};
use crate::campaigns::MessageStatusEvent;
use crate::messaging::SendStatus;
use crate::shared::{AccountId, ContactId, ConversationId, Event, MessageId};

/// A bug of a store that tests must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedMessageBug {
    /// A worker can start messages although another worker holds the queue.
    StartIgnoresHolder,
    /// A started message stays due.
    StartedStaysDue,
    /// After the lease of a dead worker has expired, its started messages are due again.
    ResendsUnknown,
    /// A queue can be taken while another worker's lease lasts.
    TakeIgnoresLease,
    /// A message can be cancelled after it was started.
    CancelIgnoresStart,
    /// Two messages can have one reference.
    ReferenceNotUnique,
    /// A message that is not sent keeps its reservation.
    QuotaKept,
    /// More messages are accepted than the month has.
    QuotaNotChecked,
    /// The result of a call replaces the status that an update has set.
    ResultReplacesStatus,
    /// A message is due before `send_at`.
    SendAtIgnored,
    /// A message leaves after `expires_at`.
    ExpiryIgnored,
    /// A new message does not make its queue due.
    QueueNotDue,
    /// A released queue is deleted although a message is due later.
    QueueDeleted,
    /// A message whose outcome is unknown never fails.
    UnknownNeverFails,
    /// A cancel appends no event.
    CancelEventLost,
}

/// A message with what only the store knows of it.
#[derive(Clone, Debug)]
pub struct InMemoryMessage {
    pub account_id: AccountId,
    pub message: DirectMessage,
    pub content: RequestedContent,
    /// The canonical form of the request.
    pub request: Value,
    /// When the message can start. None: it was started, or has ended.
    pub due_at: Option<OffsetDateTime>,
    pub attempts: u32,
    /// The month whose quota holds a reservation for it.
    pub quota_month: Option<Date>,
}

impl InMemoryMessage {
    pub(super) fn is_started(&self) -> bool {
        self.message.started_at.is_some()
    }

    /// Whether the message was started and its outcome is not known.
    pub fn is_open(&self) -> bool {
        self.message.status == DirectStatus::Pending && self.is_started()
    }

    pub(super) fn queue(&self) -> NumberQueue {
        NumberQueue {
            account_id: self.account_id,
            profile_id: self.message.profile_id,
        }
    }

    pub(super) fn status_event(&self, status: SendStatus) -> MessageStatusEvent {
        let message = &self.message;
        MessageStatusEvent {
            id: message.id.0,
            campaign_id: None,
            conversation_id: message.conversation_id,
            contact_id: message.contact_id,
            wa_message_id: message.wa_message_id.clone(),
            status,
            error_code: message.error_code,
            error_message: message.error_message.clone(),
            address: message.started_at.and(message.address),
            client_reference: Some(message.client_reference.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InMemoryQueue {
    /// None: no message waits.
    pub due_at: Option<OffsetDateTime>,
    pub worker: Option<Uuid>,
    pub leased_until: OffsetDateTime,
    pub hold_reason: Option<HoldReason>,
    pub held_until: Option<OffsetDateTime>,
    /// Its order among the queues.
    pub(super) position: u64,
}

impl InMemoryQueue {
    pub(super) fn is_leased(&self, now: OffsetDateTime) -> bool {
        self.worker.is_some() && self.leased_until >= now
    }
}

/// An account's messages of a month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonthUse {
    pub sent: i64,
    pub reserved: i64,
}

/// The tables, with the rules that every store of direct messages follows.
#[derive(Clone, Debug)]
pub struct MessageTables {
    /// The store's clock.
    pub now: OffsetDateTime,
    pub messages: BTreeMap<MessageId, InMemoryMessage>,
    pub queues: BTreeMap<NumberQueue, InMemoryQueue>,
    pub usage: BTreeMap<(AccountId, Date), MonthUse>,
    /// The conversations of contacts. They show the messages that were sent.
    pub conversations: BTreeMap<(AccountId, ContactId), ConversationId>,
    /// The events that were appended, with their accounts.
    pub events: Vec<(AccountId, Event)>,
    pub bug: Option<PlantedMessageBug>,
    pub(super) last_position: u64,
}
