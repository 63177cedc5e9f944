//! Takes over the phone number of a contact card that answers a contact request.
//!
//! Anybody can share any card, so a card alone proves nothing. WhatsApp marks the one that its own button sends, and it
//! counts only as the answer to a request of this account.

use time::{Duration, OffsetDateTime};

use super::super::{ANSWERED_WITHIN, ContactIdentity, InboundMessage, Sender};

/// How much the clock of WhatsApp may be behind that of the database.
pub(super) const CLOCK_DIFFERENCE: Duration = Duration::minutes(5);

/// The number of a card by which the sender answers a contact request.
pub(super) fn answered_number(message: &InboundMessage) -> Sender {
    Sender {
        wa_id: message.answered_wa_id.clone(),
        ..Sender::default()
    }
}

/// Whether a card that was written at `at` answers one of the requests.
pub(super) fn is_answer(requests: &[OffsetDateTime], at: OffsetDateTime) -> bool {
    requests.iter().any(|asked_at| {
        let age = at - *asked_at;
        -CLOCK_DIFFERENCE <= age && age <= ANSWERED_WITHIN
    })
}

/// Sets the phone number of the sender's contact, the one at `at`, from the answer to a request. A known phone number is
/// never replaced. Returns 1 if another contact has the number: then nothing changes.
pub(super) fn set_number(contacts: &mut [ContactIdentity], at: usize, message: &InboundMessage) -> usize {
    let number = answered_number(message);
    let (Some(wa_id), Some(phone)) = (number.wa_id.clone(), number.phone()) else {
        return 0;
    };
    let phone = Some(phone.to_string());
    let has_number = |other: &ContactIdentity| other.phone == phone || other.wa_id.as_ref() == Some(&wa_id);
    let is_taken = contacts.iter().any(has_number);
    let Some(contact) = contacts.get_mut(at) else { return 0 };
    if contact.phone.is_some() || contact.wa_id.is_some() || message.sender.wa_id.is_some() {
        return 0;
    }
    if is_taken {
        return 1;
    }
    (contact.phone, contact.wa_id) = (phone, Some(wa_id));
    0
}
