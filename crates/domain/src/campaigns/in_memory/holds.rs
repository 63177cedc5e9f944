//! The rules of held sends.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::super::HeldSends;
use super::tables::{RunTables, SendKey};
use crate::holds::{HoldDecision, HoldFacts, HoldPolicy, held_too_long};
use crate::messaging::{Category, SendStatus};
use crate::shared::{AccountId, CampaignId, ContactId};

impl RunTables {
    fn category(&self, id: CampaignId) -> Option<Category> {
        Some(self.campaigns.get(&id)?.template.as_ref()?.category)
    }

    /// When marketing messages were started and did not fail, by contact.
    pub fn marketing_starts(&self, account: AccountId) -> BTreeMap<ContactId, Vec<OffsetDateTime>> {
        let is_own = |id: CampaignId| {
            let row = self.campaigns.get(&id);
            row.is_some_and(|row| row.campaign.account_id == account) && self.category(id) == Some(Category::Marketing)
        };
        let mut starts: BTreeMap<ContactId, Vec<OffsetDateTime>> = BTreeMap::new();
        for ((campaign, contact), send) in &self.sends {
            let counts = is_own(*campaign) && send.status != SendStatus::Failed;
            if let Some(started_at) = send.started_at.filter(|_| counts) {
                starts.entry(*contact).or_default().push(started_at);
            }
        }
        starts
    }

    /// Holds and fails those of these sends of one campaign that the account's settings hold. Returns the others.
    pub(super) fn check_holds(&mut self, keys: Vec<SendKey>) -> Vec<SendKey> {
        let Some((id, _)) = keys.first().copied() else {
            return keys;
        };
        let (Some(category), Some(account)) = (self.category(id), self.account(id)) else {
            return keys;
        };
        let settings = account.settings.clone();
        let Some(account_id) = self.campaigns.get(&id).map(|row| row.campaign.account_id) else {
            return keys;
        };
        if !settings.may_hold(category) {
            return keys;
        }
        let now = self.now;
        let mut policy = HoldPolicy::new(settings.clone(), now, self.marketing_starts(account_id));
        let mut free = vec![];
        for key in keys {
            let contact = self.account(id).and_then(|account| account.contacts.get(&key.1));
            let facts = HoldFacts {
                category: Some(category),
                person: key.1,
                time_zone: None,
                phone: contact.map(|contact| contact.recipient.phone.clone()),
                due_at: self.sends.get(&key).and_then(|send| send.held_since).unwrap_or(now),
                expires_at: None,
            };
            match policy.decide(&facts) {
                HoldDecision::Free => free.push(key),
                HoldDecision::Held { cause, until } => self.change(key, |send| {
                    send.held_since.get_or_insert(now);
                    (send.hold, send.retry_at) = (Some(cause), Some(until));
                }),
                HoldDecision::TooLong(cause) => self.advance(key, SendStatus::Failed, None, &held_too_long(cause)),
            }
        }
        if let Some(entry) = self.entry_mut(id) {
            entry.checked_by.get_or_insert(settings);
        }
        free
    }

    /// Makes the held sends due if the settings have changed since they were checked.
    pub(super) fn release_holds(&mut self, id: CampaignId) {
        if !self.settings_changed(id) {
            return;
        }
        let (now, settings) = (self.now, self.account(id).map(|account| account.settings.clone()));
        for send in self.sends_of_mut(id).filter(|send| send.waits() && send.hold.is_some()) {
            send.retry_at = Some(now);
        }
        self.entry_mut(id)
            .into_iter()
            .for_each(|entry| entry.checked_by.clone_from(&settings));
    }

    fn settings_changed(&self, id: CampaignId) -> bool {
        let checked_by = self.entry(id).and_then(|entry| entry.checked_by.as_ref());
        let settings = self.account(id).map(|account| &account.settings);
        checked_by.is_some_and(|checked_by| Some(checked_by) != settings)
    }

    /// What the run waits for, if all its remaining sends are held.
    pub(super) fn held_sends(&self, id: CampaignId) -> Option<HeldSends> {
        let waiting = self.sends_of(id).filter(|(_, send)| send.waits());
        let held = waiting.clone().filter(|(_, send)| send.hold.is_some());
        if waiting.count() != held.clone().count() {
            return None;
        }
        Some(HeldSends {
            count: i64::try_from(held.clone().count()).unwrap_or(i64::MAX),
            until: held.filter_map(|(_, send)| send.retry_at).min()?,
        })
    }

    /// Whether a waiting run has nothing to do yet.
    pub(super) fn still_waits(&self, id: CampaignId) -> bool {
        let waiting = self.entry(id).and_then(|entry| entry.waiting);
        waiting.is_some_and(|held| held.until > self.now) && !self.settings_changed(id)
    }

    /// Puts a run that this worker holds back until its first held send is due.
    pub(super) fn wait(&mut self, id: CampaignId, worker: uuid::Uuid, held: HeldSends) {
        if self.holder(id) == Some(worker) {
            self.release(id, worker, None);
            self.entry_mut(id)
                .into_iter()
                .for_each(|entry| entry.waiting = Some(held));
        }
    }
}
