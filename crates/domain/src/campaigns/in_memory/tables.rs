//! The tables of the in-memory store.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use uuid::Uuid;

use super::super::{Campaign, CampaignStatus, CounterChange, HeldSends, QueuedStart, Recipient, SendCounts};
use crate::holds::HoldCause;
use crate::messaging::{ErrorCodes, SendStatus};
use crate::settings::AccountSettings;
use crate::shared::{AccountId, CampaignId, ContactId, Event, ProfileId, SendId};
use crate::templates::Template;
use crate::whatsapp::StoredProfile;

/// A bug of a store that tests must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// After the lease of a dead worker has expired, its started sends are due again.
    ResendsUnknown,
    /// A send can start although it was already started or has ended.
    IgnoresStatus,
    /// A worker can start sends although the run was cancelled or another worker holds it.
    IgnoresHolder,
    /// The end of a run releases the reservations of in-flight sends, and their results release them again.
    ReleasesTwice,
    /// A send is checked when it is claimed, and not when it starts.
    CheckedAtClaim,
}

#[derive(Clone, Debug)]
pub struct InMemoryContact {
    pub recipient: Recipient,
    pub opted_out: bool,
}

/// An account, with its messages of the month.
#[derive(Clone, Debug, Default)]
pub struct InMemoryAccount {
    pub suspended: bool,
    pub settings: AccountSettings,
    pub contacts: BTreeMap<ContactId, InMemoryContact>,
    pub profiles: BTreeMap<ProfileId, StoredProfile>,
    pub sent: i64,
    pub reserved: i64,
    pub test_sends: i64,
    /// What direct messages use or hold. Their store sets it.
    pub direct_messages: i64,
    /// The send of each WhatsApp message id.
    pub messages: BTreeMap<String, SendId>,
}

#[derive(Clone, Debug)]
pub struct InMemoryQueueEntry {
    pub start: QueuedStart,
    pub prepared: bool,
    pub worker: Option<Uuid>,
    pub leased_until: OffsetDateTime,
    /// Its order in the queue.
    pub(super) position: u64,
    /// The number of consecutive postponements, and the end of the last one.
    pub(super) postponed: Option<(u32, OffsetDateTime)>,
    /// The held sends of a waiting run.
    pub waiting: Option<HeldSends>,
    /// The settings by which the held sends were checked.
    pub(super) checked_by: Option<AccountSettings>,
}

#[derive(Clone, Debug)]
pub struct InMemoryCampaign {
    pub campaign: Campaign,
    /// The template with the content of the run.
    pub template: Option<Template>,
    /// The number of the run.
    pub profile_id: Option<ProfileId>,
    /// None before the first run.
    pub counts: Option<SendCounts>,
    pub queue_entry: Option<InMemoryQueueEntry>,
}

#[derive(Clone, Debug)]
pub struct InMemorySend {
    pub id: SendId,
    pub status: SendStatus,
    pub started_at: Option<OffsetDateTime>,
    pub unknown_at: Option<OffsetDateTime>,
    pub attempts: u32,
    pub retry_at: Option<OffsetDateTime>,
    /// The setting that holds the send, and when it was first due.
    pub hold: Option<HoldCause>,
    pub held_since: Option<OffsetDateTime>,
    pub failed_at: Option<OffsetDateTime>,
    /// The error code and message of a failed send.
    pub error: Option<(Option<i64>, String)>,
    pub wa_message_id: Option<String>,
    /// The message id of an earlier attempt, which a retry replaced.
    pub superseded: Option<String>,
    pub never_confirmed: bool,
}

impl InMemoryAccount {
    /// The messages of the month's quota that are used or held.
    pub fn used(&self) -> i64 {
        self.sent + self.reserved + self.test_sends + self.direct_messages
    }
}

impl InMemorySend {
    /// A send that was not tried yet.
    pub fn new(id: SendId) -> Self {
        Self {
            id,
            status: SendStatus::Pending,
            started_at: None,
            unknown_at: None,
            attempts: 0,
            retry_at: None,
            hold: None,
            held_since: None,
            failed_at: None,
            error: None,
            wa_message_id: None,
            superseded: None,
            never_confirmed: false,
        }
    }

    /// Whether it can start.
    pub fn waits(&self) -> bool {
        self.status == SendStatus::Pending && self.started_at.is_none()
    }

    /// Whether it was started and its outcome is not known.
    pub fn is_open(&self) -> bool {
        self.status == SendStatus::Pending && self.started_at.is_some()
    }

    /// Whether the month's quota holds a reservation for it. `sending`: the status of its campaign.
    fn holds_reservation(&self, sending: bool) -> bool {
        self.is_open() || sending && self.waits()
    }

    fn is_accepted(&self) -> bool {
        matches!(self.status, SendStatus::Sent | SendStatus::Delivered | SendStatus::Read)
    }
}

/// The key of a send.
pub type SendKey = (CampaignId, ContactId);

/// The tables. The methods beside them are the rules that every store of runs follows.
#[derive(Clone, Debug)]
pub struct RunTables {
    /// The store's clock.
    pub now: OffsetDateTime,
    pub accounts: BTreeMap<AccountId, InMemoryAccount>,
    pub campaigns: BTreeMap<CampaignId, InMemoryCampaign>,
    pub sends: BTreeMap<SendKey, InMemorySend>,
    /// The events that were appended.
    pub events: Vec<Event>,
    pub bug: Option<PlantedBug>,
    /// The number of sends that the budget still admits. None: there is no budget.
    pub admitted_sends: Option<usize>,
    pub(super) codes: ErrorCodes,
    pub(super) last_position: u64,
}

impl RunTables {
    pub fn new(now: OffsetDateTime, codes: ErrorCodes) -> Self {
        Self {
            now,
            accounts: BTreeMap::new(),
            campaigns: BTreeMap::new(),
            sends: BTreeMap::new(),
            events: Vec::new(),
            bug: None,
            admitted_sends: None,
            codes,
            last_position: 0,
        }
    }

    /// Adds a campaign without a run.
    pub fn add(&mut self, campaign: Campaign) {
        let row = InMemoryCampaign {
            campaign,
            template: None,
            profile_id: None,
            counts: None,
            queue_entry: None,
        };
        self.campaigns.insert(row.campaign.id, row);
    }

    pub(super) fn status(&self, id: CampaignId) -> Option<CampaignStatus> {
        self.campaigns.get(&id).map(|row| row.campaign.status)
    }

    pub(super) fn account(&self, id: CampaignId) -> Option<&InMemoryAccount> {
        self.accounts.get(&self.campaigns.get(&id)?.campaign.account_id)
    }

    pub(super) fn account_mut(&mut self, id: CampaignId) -> Option<&mut InMemoryAccount> {
        self.accounts.get_mut(&self.campaigns.get(&id)?.campaign.account_id)
    }

    pub(super) fn entry(&self, id: CampaignId) -> Option<&InMemoryQueueEntry> {
        self.campaigns.get(&id)?.queue_entry.as_ref()
    }

    pub fn entry_mut(&mut self, id: CampaignId) -> Option<&mut InMemoryQueueEntry> {
        self.campaigns.get_mut(&id)?.queue_entry.as_mut()
    }

    /// The queue entry, if this worker holds the run.
    pub(super) fn held_entry(&mut self, id: CampaignId, worker: Uuid) -> Option<&mut InMemoryQueueEntry> {
        self.entry_mut(id).filter(|entry| entry.worker == Some(worker))
    }

    pub fn holder(&self, id: CampaignId) -> Option<Uuid> {
        self.entry(id)?.worker
    }

    pub fn goes_on(&self, id: CampaignId) -> bool {
        let is_active = self.account(id).is_some_and(|account| !account.suspended);
        let sends = |campaign: &Campaign| campaign.status == CampaignStatus::Sending && campaign.paused_at.is_none();
        is_active && self.campaigns.get(&id).is_some_and(|row| sends(&row.campaign))
    }

    /// The sends of a campaign, in the order of their contacts.
    pub fn sends_of(&self, id: CampaignId) -> impl Iterator<Item = (SendKey, &InMemorySend)> + Clone {
        let keys = (id, ContactId(Uuid::nil()))..=(id, ContactId(Uuid::max()));
        self.sends.range(keys).map(|(key, send)| (*key, send))
    }

    pub(super) fn sends_of_mut(&mut self, id: CampaignId) -> impl Iterator<Item = &mut InMemorySend> {
        let keys = (id, ContactId(Uuid::nil()))..=(id, ContactId(Uuid::max()));
        self.sends.range_mut(keys).map(|(_, send)| send)
    }

    pub fn key_of(&self, id: SendId) -> Option<SendKey> {
        self.sends.iter().find(|(_, send)| send.id == id).map(|(key, _)| *key)
    }

    /// The recipient of a send. None if it must not get messages.
    pub(super) fn recipient(&self, key: SendKey) -> Option<&Recipient> {
        let contact = self.account(key.0)?.contacts.get(&key.1)?;
        (!contact.opted_out).then_some(&contact.recipient)
    }

    /// Changes a send, its campaign's counters and its account's usage.
    pub(super) fn change(&mut self, key: SendKey, change: impl FnOnce(&mut InMemorySend)) {
        let sending = self.status(key.0) == Some(CampaignStatus::Sending);
        let Some(send) = self.sends.get_mut(&key) else { return };
        let usage = |send: &InMemorySend| (send.is_accepted(), send.holds_reservation(sending));
        let (from, (sent, reserved)) = (send.status, usage(send));
        change(send);
        let (to, (sends, reserves)) = (send.status, usage(send));
        if let Some(account) = self.account_mut(key.0) {
            account.sent += i64::from(sends) - i64::from(sent);
            account.reserved += i64::from(reserves) - i64::from(reserved);
        }
        self.count(key.0, CounterChange { from, to });
    }

    pub(super) fn count(&mut self, id: CampaignId, change: CounterChange) {
        if let Some(counts) = self.campaigns.get_mut(&id).and_then(|row| row.counts.as_mut()) {
            *counts.counter_mut(change.from) -= 1;
            *counts.counter_mut(change.to) += 1;
        }
    }

    /// Whether the month's quota holds a reservation for the send.
    pub fn holds_reservation(&self, key: SendKey) -> bool {
        let sending = self.status(key.0) == Some(CampaignStatus::Sending);
        self.sends.get(&key).is_some_and(|send| send.holds_reservation(sending))
    }

    /// Checks that counters and usage equal those of the sends.
    pub fn check_sums(&self) -> Result<(), String> {
        let mut usage: BTreeMap<AccountId, (i64, i64)> = BTreeMap::new();
        for (id, row) in &self.campaigns {
            let sending = row.campaign.status == CampaignStatus::Sending;
            let (sent, reserved) = usage.entry(row.campaign.account_id).or_default();
            let mut counts = SendCounts::default();
            for (_, send) in self.sends_of(*id) {
                counts.total += 1;
                *counts.counter_mut(send.status) += 1;
                *sent += i64::from(send.is_accepted());
                *reserved += i64::from(send.holds_reservation(sending));
            }
            let stored = row.counts.unwrap_or_default();
            if stored != counts {
                return Err(format!("the counters are {stored:?}, expected {counts:?}"));
            }
        }
        for (id, account) in &self.accounts {
            let stored = (account.sent, account.reserved);
            let expected = usage.get(id).copied().unwrap_or_default();
            if stored != expected {
                return Err(format!("the month's usage is {stored:?}, expected {expected:?}"));
            }
        }
        Ok(())
    }
}
