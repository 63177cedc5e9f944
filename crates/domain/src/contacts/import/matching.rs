//! Finds the stored contact of an import row: by phone number, else by WhatsApp user id.

use std::collections::HashMap;

use super::super::{ContactDraft, RowRefusal};
use crate::shared::{ContactId, redacted_debug};

/// The phone number and user ids of a stored contact.
#[derive(Clone, PartialEq, Eq)]
pub struct ContactKeys {
    pub id: ContactId,
    pub phone: Option<String>,
    pub wa_user_id: Option<String>,
    /// The user ids that WhatsApp reported to the account's numbers.
    pub reported_user_ids: Vec<String>,
}

redacted_debug!(ContactKeys { id });

/// The stored contacts that have a phone number or a user id of a batch, oldest first.
///
/// An import adds a missing phone number or user id to a contact, and never replaces one. So a repeated import finds
/// the contacts that the first one wrote, and refuses the rows that the first one refused.
pub struct ContactMatcher {
    contacts: Vec<ContactKeys>,
    by_phone: HashMap<String, usize>,
    by_user_id: HashMap<String, usize>,
}

redacted_debug!(ContactMatcher {});

impl ContactMatcher {
    pub fn new(contacts: Vec<ContactKeys>) -> Self {
        let (mut by_phone, mut by_user_id) = (HashMap::new(), HashMap::new());
        for (at, contact) in contacts.iter().enumerate() {
            by_phone.extend(contact.phone.clone().map(|phone| (phone, at)));
            for id in contact.wa_user_id.iter().chain(&contact.reported_user_ids) {
                by_user_id.entry(id.clone()).or_insert(at);
            }
        }
        Self {
            contacts,
            by_phone,
            by_user_id,
        }
    }

    /// Returns the contact that the row updates, or `None` for a new contact.
    pub fn find(&self, row: &ContactDraft) -> Result<Option<ContactId>, RowRefusal> {
        let phone = row.phone.as_ref().map(|phone| phone.as_str());
        let with_phone = phone.and_then(|phone| self.by_phone.get(phone));
        let with_id = row.wa_user_id.as_ref().and_then(|id| self.by_user_id.get(id));
        let contact = |at: Option<&usize>| at.and_then(|at| self.contacts.get(*at));
        match (contact(with_phone), contact(with_id)) {
            (Some(contact), None) if row.wa_user_id.is_some() && contact.wa_user_id.is_some() => {
                Err(RowRefusal::UserIdDiffers)
            }
            (Some(with_phone), Some(with_id)) if with_phone.id != with_id.id => Err(RowRefusal::UserIdTaken),
            (None, Some(contact)) if phone.is_some() && contact.phone.is_some() => Err(RowRefusal::UserIdTaken),
            (with_phone, with_id) => Ok(with_phone.or(with_id).map(|contact| contact.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::super::Phone;
    use super::*;

    const ANA: &str = "+5511961234567";
    const BIA: &str = "+5511961234568";

    fn keys(id: u128, phone: Option<&str>, user: Option<&str>) -> ContactKeys {
        ContactKeys {
            id: ContactId(Uuid::from_u128(id)),
            phone: phone.map(str::to_owned),
            wa_user_id: user.map(str::to_owned),
            reported_user_ids: user.map(|user| format!("{user}other")).into_iter().collect(),
        }
    }

    fn find(stored: &[ContactKeys], phone: Option<&str>, user: Option<&str>) -> Result<Option<u128>, RowRefusal> {
        let row = ContactDraft {
            phone: phone.and_then(Phone::parse),
            wa_user_id: user.map(str::to_owned),
            ..ContactDraft::default()
        };
        let found = ContactMatcher::new(stored.to_vec()).find(&row)?;
        Ok(found.map(|id| id.0.as_u128()))
    }

    #[test]
    fn matcher_prefers_the_phone_and_falls_back_to_the_id() {
        let stored = [
            keys(1, Some(ANA), Some("BR.1")),
            keys(2, None, Some("BR.2")),
            keys(3, Some(BIA), None),
        ];
        assert_eq!(find(&stored, Some(ANA), None), Ok(Some(1)));
        assert_eq!(find(&stored, None, Some("BR.1")), Ok(Some(1)));
        assert_eq!(find(&stored, None, Some("BR.2other")), Ok(Some(2)));
        assert_eq!(find(&stored, Some(ANA), Some("BR.1other")), Ok(Some(1)));
        assert_eq!(find(&stored, Some(ANA), Some("BR.1")), Ok(Some(1)));
        // The contact gets the missing key.
        assert_eq!(find(&stored, Some(BIA), Some("BR.3")), Ok(Some(3)));
        assert_eq!(find(&stored, Some("+5511961234569"), Some("BR.2")), Ok(Some(2)));
        assert_eq!(find(&stored, Some("+5511961234569"), Some("BR.3")), Ok(None));
        assert_eq!(find(&stored, None, Some("BR.3")), Ok(None));
    }

    #[test]
    fn matcher_refuses_to_join_contacts_or_replace_keys() {
        let stored = [
            keys(1, Some(ANA), Some("BR.1")),
            keys(2, None, Some("BR.2")),
            keys(3, Some(BIA), None),
        ];
        assert_eq!(find(&stored, Some(BIA), Some("BR.2")), Err(RowRefusal::UserIdTaken));
        assert_eq!(find(&stored, Some(BIA), Some("BR.1")), Err(RowRefusal::UserIdTaken));
        assert_eq!(
            find(&stored, Some("+5511961234569"), Some("BR.1")),
            Err(RowRefusal::UserIdTaken)
        );
        assert_eq!(find(&stored, Some(ANA), Some("BR.9")), Err(RowRefusal::UserIdDiffers));
    }
}
