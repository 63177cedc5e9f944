//! Inbound events that are held for profiles that are not verified: sealed, given to a profile once it is verified,
//! and dropped after seven days.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use time::Duration;

use crate::conversations::{InboundEvent, InboundItem, InboxStore, ReceiveOutcome};
use crate::messaging::ProfileKey;
use crate::shared::{AccountId, Cipher, Ids, SealContext, StoreError};
use crate::whatsapp::ProfileStore;
use crate::whatsapp::verification::{
    HeldMessage, HeldMessageStore, NumberHolderStore, PurgedHeld, StoredHeldMessage, VerificationState,
};

/// How long an event is held.
pub const HELD_FOR: Duration = Duration::days(7);

/// The most profiles that one call of [`HeldMessages::deliver`] serves.
const PROFILES: i64 = 100;

/// The most events that a profile is given in one transaction.
const PAGE: i64 = 100;

#[derive(Clone)]
pub struct HeldStores {
    pub holders: Arc<dyn NumberHolderStore>,
    pub held: Arc<dyn HeldMessageStore>,
    pub inbox: Arc<dyn InboxStore>,
    pub profiles: Arc<dyn ProfileStore>,
}

/// Holds inbound events, and gives them to profiles that became verified.
#[derive(Clone)]
pub struct HeldMessages {
    stores: HeldStores,
    cipher: Arc<dyn Cipher>,
    ids: Arc<dyn Ids>,
}

impl HeldMessages {
    pub fn new(stores: HeldStores, cipher: Arc<dyn Cipher>, ids: Arc<dyn Ids>) -> Self {
        Self { stores, cipher, ids }
    }

    /// Holds the events of a number. `given`: a verified profile received them too.
    pub async fn hold(&self, number: &str, events: &[InboundEvent], given: bool) -> Result<(), StoreError> {
        let messages: Vec<HeldMessage> = events
            .iter()
            .map(|event| self.seal(number, event))
            .collect::<Result<_, StoreError>>()?;
        self.stores.held.hold(number, &messages, given).await
    }

    /// Gives held events to verified profiles that still wait for them. Returns whether more profiles may wait. A
    /// failing profile does not delay the others.
    pub async fn deliver(&self) -> Result<bool, StoreError> {
        let waiting = self.stores.holders.waiting_for_held(PROFILES).await?;
        let mut failed = None;
        for profile in &waiting {
            if let Err(error) = self.deliver_to(*profile).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or_else(|| Ok(is_full(&waiting, PROFILES)), Err)
    }

    /// Removes at most `limit` events that were held for too long.
    pub async fn purge(&self, limit: i64) -> Result<PurgedHeld, StoreError> {
        self.stores.held.purge(HELD_FOR, limit).await
    }

    /// Gives a profile what was held since it was made or stopped being verified, then ends its wait. An interrupted
    /// delivery begins again: what the profile has already received changes nothing.
    async fn deliver_to(&self, profile: ProfileKey) -> Result<(), StoreError> {
        let ProfileKey { account_id, profile_id } = profile;
        let Some(stored) = self.stores.profiles.find(account_id, profile_id).await? else {
            return Ok(());
        };
        let is_verified = stored.profile.verification.state == VerificationState::Verified;
        let Some(since) = stored.history.held_since.filter(|_| is_verified) else {
            return Ok(());
        };
        let number = &stored.profile.phone_number_id;
        let (mut after, mut failed) = (0, None);
        loop {
            let page = self.stores.held.held_since(number, since, after, PAGE).await?;
            if !self.give(account_id, number, &page, &mut failed).await? {
                return Ok(());
            }
            after = page.last().map_or(after, |last| last.seq);
            if !is_full(&page, PAGE) {
                break;
            }
        }
        match failed {
            // The events that could not be given stay held, and so does the wait for them.
            Some(error) => Err(error),
            None => self.stores.holders.end_hold(account_id, profile_id, since).await,
        }
    }

    /// Gives a page to the account as one batch; if that fails, one by one. Keeps the first error of an event in
    /// `failed`. Returns false if the profile is not verified any more.
    async fn give(
        &self,
        account: AccountId,
        number: &str,
        page: &[StoredHeldMessage],
        failed: &mut Option<StoreError>,
    ) -> Result<bool, StoreError> {
        let mut opened: Vec<(i64, InboundEvent)> = Vec::new();
        for message in page {
            match self.open(message) {
                Ok(event) => opened.push((message.seq, event)),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        let mut batches: Vec<&[(i64, InboundEvent)]> = vec![&opened];
        while let Some(batch) = batches.pop() {
            let (seqs, events): (Vec<i64>, Vec<InboundEvent>) = batch.iter().cloned().unzip();
            if events.is_empty() {
                continue;
            }
            let items = inbound_items(self.ids.as_ref(), &events);
            match self.stores.inbox.receive(account, number, &items).await {
                Ok(ReceiveOutcome::Received | ReceiveOutcome::ReceivedEarly) => {
                    self.stores.held.mark_given(number, &seqs).await?
                }
                Ok(ReceiveOutcome::NotVerified | ReceiveOutcome::NoNumber) => return Ok(false),
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(_) if batch.len() > 1 => batches.extend(batch.chunks(1).rev()),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        Ok(true)
    }

    fn seal(&self, number: &str, event: &InboundEvent) -> Result<HeldMessage, StoreError> {
        let json = serde_json::to_string(event).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let key = key(number, event, &json);
        let event = self
            .cipher
            .seal(&SecretString::from(json), &SealContext::held_message(&key));
        Ok(HeldMessage { key, event })
    }

    fn open(&self, message: &StoredHeldMessage) -> Result<InboundEvent, StoreError> {
        let json = self
            .cipher
            .open(&message.event, &SealContext::held_message(&message.key))
            .ok_or_else(|| StoreError::Corrupt("a held inbound event cannot be opened".into()))?;
        // The error of the parser may quote the event.
        serde_json::from_str(json.expose_secret())
            .map_err(|_| StoreError::Corrupt("a held inbound event has an unknown form".into()))
    }
}

/// The events with the ids of the rows that they may create.
pub(super) fn inbound_items(ids: &dyn Ids, events: &[InboundEvent]) -> Vec<InboundItem> {
    let item = |event: &InboundEvent| InboundItem {
        event: event.clone(),
        contact_id: ids.next().into(),
        conversation_id: ids.next().into(),
        message_id: ids.next().into(),
        media_id: ids.next().into(),
    };
    events.iter().map(item).collect()
}

/// WhatsApp may deliver a message several times, each time with the same id. The hash hides the id, which contains the
/// sender's number.
fn key(number: &str, event: &InboundEvent, json: &str) -> Vec<u8> {
    let id = match event {
        InboundEvent::Message(message) | InboundEvent::Echo(message) => message.wa_message_id.as_str(),
        InboundEvent::Preference { .. }
        | InboundEvent::NumberChanged { .. }
        | InboundEvent::Recipient { .. }
        | InboundEvent::Revoked { .. }
        | InboundEvent::Edited { .. } => json,
    };
    Sha256::digest(format!("{number}\n{id}")).to_vec()
}

fn is_full<T>(page: &[T], limit: i64) -> bool {
    i64::try_from(page.len()).is_ok_and(|read| read >= limit)
}

#[cfg(test)]
mod tests;
