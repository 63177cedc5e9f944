//! The tables of the in-memory store.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;
use uuid::Uuid;

use super::super::{DeliveryKey, Direction, Health, StoredWebhook, WebhookEvent, WebhookLog};
use crate::shared::{AccountId, Event, WebhookEventId, WebhookId, WebhookLogId};

#[derive(Clone, Debug)]
pub struct InMemoryEndpoint {
    pub account_id: AccountId,
    pub stored: StoredWebhook,
    pub health: Health,
}

impl InMemoryEndpoint {
    /// Whether deliveries to it may be enqueued.
    pub(super) fn is_deliverable(&self) -> bool {
        self.stored.webhook.direction == Direction::Outbound && self.stored.webhook.is_active
    }

    /// Whether webhook events of this kind of the account are for it, also while it is inactive.
    pub(super) fn subscribes(&self, account: AccountId, kind: &str) -> bool {
        let webhook = &self.stored.webhook;
        let has_kind = webhook.events.iter().any(|event| event == kind || event == "*");
        self.account_id == account && webhook.direction == Direction::Outbound && has_kind
    }
}

#[derive(Clone, Debug)]
pub struct InMemoryEvent {
    pub event: WebhookEvent,
    /// Its order in the feed. A ping is in no feed.
    pub seq: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMemoryDeliveryState {
    Waiting,
    Failed,
    /// Its endpoint became inactive.
    Dropped,
}

/// An open or abandoned delivery. A delivery that succeeded has only its log.
#[derive(Clone, Debug)]
pub struct InMemoryDelivery {
    pub state: InMemoryDeliveryState,
    pub attempts: u32,
    /// When it is due: the end of its lease, or the time of its next attempt.
    pub next_attempt_at: OffsetDateTime,
    /// Whether the latest claim has neither ended nor been released.
    pub leased: bool,
    /// The number of the latest claim.
    pub claim: i64,
    /// When it last failed, or was dropped.
    pub failed_at: Option<OffsetDateTime>,
}

impl InMemoryDelivery {
    /// A delivery that is due at `now`.
    pub(super) fn new(now: OffsetDateTime) -> Self {
        Self {
            state: InMemoryDeliveryState::Waiting,
            attempts: 0,
            next_attempt_at: now,
            leased: false,
            claim: 0,
            failed_at: None,
        }
    }

    pub(super) fn is_due(&self, now: OffsetDateTime) -> bool {
        self.state == InMemoryDeliveryState::Waiting && self.next_attempt_at <= now
    }
}

#[derive(Clone, Debug)]
pub struct InMemoryLog {
    pub account_id: AccountId,
    /// The event of a delivery. `None` for a received call.
    pub event_id: Option<WebhookEventId>,
    /// The log of a delivery has no payload of its own: its event is the payload.
    pub log: WebhookLog,
}

#[derive(Clone, Debug)]
pub struct InMemoryOutboxEvent {
    pub account_id: AccountId,
    pub event: Event,
    pub created_at: OffsetDateTime,
}

/// The tables. The methods beside them are the rules that every store of webhooks follows.
#[derive(Clone, Debug)]
pub struct WebhookTables {
    /// The store's clock.
    pub now: OffsetDateTime,
    pub suspended_accounts: BTreeSet<AccountId>,
    pub endpoints: BTreeMap<WebhookId, InMemoryEndpoint>,
    pub events: BTreeMap<WebhookEventId, InMemoryEvent>,
    pub deliveries: BTreeMap<DeliveryKey, InMemoryDelivery>,
    pub logs: BTreeMap<WebhookLogId, InMemoryLog>,
    /// The calls that inbound endpoints accepted: the endpoint and the `webhook-id`.
    pub inbox: BTreeSet<(WebhookId, String)>,
    /// The outbox events that were appended and not relayed.
    pub outbox: Vec<InMemoryOutboxEvent>,
    last_seq: u64,
    last_claim: i64,
}

impl WebhookTables {
    pub fn new(now: OffsetDateTime) -> Self {
        Self {
            now,
            suspended_accounts: BTreeSet::new(),
            endpoints: BTreeMap::new(),
            events: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            logs: BTreeMap::new(),
            inbox: BTreeSet::new(),
            outbox: Vec::new(),
            last_seq: 0,
            last_claim: 0,
        }
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// A claim number that no earlier claim of any delivery has.
    pub(super) fn next_claim(&mut self) -> i64 {
        self.last_claim += 1;
        self.last_claim
    }

    pub(super) fn endpoint(&self, account: AccountId, id: WebhookId) -> Option<&InMemoryEndpoint> {
        self.endpoints.get(&id).filter(|row| row.account_id == account)
    }

    pub(super) fn endpoint_mut(&mut self, account: AccountId, id: WebhookId) -> Option<&mut InMemoryEndpoint> {
        self.endpoints.get_mut(&id).filter(|row| row.account_id == account)
    }

    pub(super) fn event(&self, account: AccountId, id: WebhookEventId) -> Option<&InMemoryEvent> {
        self.events.get(&id).filter(|row| row.event.account_id == account)
    }
}

/// The first id of a time. Events get ids that begin with their time.
pub(super) fn first_id_at(at: OffsetDateTime) -> u128 {
    u128::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default() << 80
}

/// The id of the event with this order among those of a time.
pub(super) fn event_id(at: OffsetDateTime, seq: u64) -> WebhookEventId {
    Uuid::from_u128(first_id_at(at) | u128::from(seq)).into()
}
