//! Delivery of a callback's inbound events to the verified profiles of their number.

use std::collections::BTreeSet;

use super::super::NamedRecipient;
use super::super::held::inbound_items;
use super::Callbacks;
use super::progress::Progress;
use crate::conversations::{InboundEvent, ReceiveOutcome};
use crate::shared::{AccountId, StoreError};
use crate::whatsapp::verification::{NumberHolder, VerificationState};

impl Callbacks {
    /// Gives the events to every verified profile of the number. If some profile of it is not verified, also holds
    /// them.
    ///
    /// The order closes the gap between two writers. A profile that becomes verified is first recorded as verified and
    /// then takes what is held. Here the events are first held and then the profiles are read again. So either the
    /// profile finds the held events, or this finds the profile verified. If both happen, the profile receives the
    /// events twice, which changes nothing.
    pub(super) async fn receive_inbound(
        &self,
        number: &str,
        events: &[InboundEvent],
        progress: &mut Progress,
    ) -> Result<(), StoreError> {
        let holders = self.stores.holders.holders_of_number(number).await?;
        let mut is_held = holders.iter().any(|holder| holder.state != VerificationState::Verified);
        // The accounts that are not tried again: they received the events, or failed and wait for the next attempt.
        let mut tried = BTreeSet::new();
        let mut is_given = false;
        for account in verified(&holders) {
            match self.give(account, number, events, progress).await? {
                // The profile stopped being verified after it was read.
                Some(ReceiveOutcome::NotVerified) => is_held = true,
                outcome => {
                    is_given |= outcome.is_some_and(ReceiveOutcome::is_received);
                    tried.insert(account);
                }
            }
        }
        if !is_held {
            return Ok(());
        }
        progress.note(self.held.hold(number, events, is_given).await)?;
        let mut is_given_late = false;
        for account in verified(&self.stores.holders.holders_of_number(number).await?) {
            if !tried.contains(&account) {
                let outcome = self.give(account, number, events, progress).await?;
                is_given_late |= outcome.is_some_and(ReceiveOutcome::is_received);
            }
        }
        if is_given_late && !is_given {
            progress.note(self.held.hold(number, events, true).await)?;
        }
        Ok(())
    }

    /// Gives what status updates say of the user ids of recipients to the accounts that sent the messages, if their
    /// profile is verified. An id that is lost comes again with the next message.
    pub(super) async fn learn_recipients(
        &self,
        number: &str,
        recipients: &[NamedRecipient],
        progress: &mut Progress,
    ) -> Result<(), StoreError> {
        let holders = self.stores.holders.holders_of_number(number).await?;
        for account in verified(&holders) {
            let new = self.stores.status_updates.new_recipients(account, recipients).await;
            let new = progress.note(new)?.unwrap_or_default();
            let event = |NamedRecipient { recipient, at, .. }| InboundEvent::Recipient { recipient, at };
            let events: Vec<_> = new.into_iter().map(event).collect();
            if !events.is_empty() {
                self.give(account, number, &events, progress).await?;
            }
        }
        Ok(())
    }

    /// Gives the events to an account as one batch; if that fails, one by one. None: an error was noted. A change of a
    /// message that is not stored makes the callback incomplete: it is applied again, after the message.
    async fn give(
        &self,
        account: AccountId,
        number: &str,
        events: &[InboundEvent],
        progress: &mut Progress,
    ) -> Result<Option<ReceiveOutcome>, StoreError> {
        let items = inbound_items(self.ids.as_ref(), events);
        let received = self.stores.inbox.receive(account, number, &items).await;
        if !progress.should_split(&received, items.len()) {
            let outcome = progress.note(received)?;
            progress.complete &= outcome != Some(ReceiveOutcome::ReceivedEarly);
            return Ok(outcome);
        }
        let mut outcome = None;
        for item in items {
            let received = self.stores.inbox.receive(account, number, &[item]).await;
            let received = progress.note(received)?;
            progress.complete &= received != Some(ReceiveOutcome::ReceivedEarly);
            if received == Some(ReceiveOutcome::NotVerified) {
                return Ok(received);
            }
            outcome = received.or(outcome);
        }
        Ok(outcome)
    }
}

/// The accounts with a verified profile of the number.
fn verified(holders: &[NumberHolder]) -> impl Iterator<Item = AccountId> {
    holders
        .iter()
        .filter(|holder| holder.state == VerificationState::Verified)
        .map(|holder| holder.account_id)
}
