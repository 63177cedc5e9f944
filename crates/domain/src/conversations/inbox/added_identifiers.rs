//! The numbers and ids that contacts get from inbound events.

use crate::contacts::{AddedIdentifiers, Identifier};
use crate::conversations::ContactIdentity;

/// Contacts whose consent an event of the batch decides are among them: the store compares its time with the erasure's.
pub(super) fn added_identifiers(before: &[ContactIdentity], now: &[ContactIdentity]) -> Vec<AddedIdentifiers> {
    let mut added = Vec::new();
    for (position, contact) in now.iter().enumerate() {
        let known = before
            .get(position)
            .map(ContactIdentity::identifiers)
            .unwrap_or_default();
        let identifiers = contact.identifiers();
        let id = contact.id.0;
        added.push(AddedIdentifiers { id, identifiers }.without(&known));
    }
    added.retain(|contact| !contact.identifiers.is_empty());
    added
}

impl ContactIdentity {
    /// What WhatsApp identifies the contact by. A `wa_id` may lack Brazil's ninth digit, so the phone number goes first.
    fn identifiers(&self) -> Vec<Identifier> {
        let number = self.phone.as_deref().or(self.wa_id.as_deref());
        let reported = self.user_ids.iter();
        let reported = reported.flat_map(|reported| std::iter::once(&reported.user_id).chain(&reported.parent_user_id));
        let ids = self.wa_user_id.iter().chain(reported);
        let ids = ids.map(|id| Identifier::user_id(id));
        number.map(Identifier::phone).into_iter().chain(ids).collect()
    }
}
