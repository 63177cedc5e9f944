//! The contact of a message.

use std::collections::HashMap;

use serde_json::Map;
use time::OffsetDateTime;

use crate::campaigns::Recipient;
use crate::contacts::ContactDraft;
use crate::messaging::Addressee;
use crate::shared::{ContactId, ProfileId, redacted_debug};

/// A number of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberChoice {
    pub id: ProfileId,
    pub is_verified: bool,
}

/// The facts about a contact that decide on a message to it.
#[derive(Clone, PartialEq)]
pub struct ContactFacts {
    pub id: ContactId,
    /// The phone is empty if the contact has none.
    pub recipient: Recipient,
    /// The phone number as WhatsApp writes it, digits only.
    pub wa_id: Option<String>,
    /// WhatsApp's user id that was seen last.
    pub wa_user_id: Option<String>,
    /// The user id that each number may use. Empty if the contact has a phone.
    pub user_ids: HashMap<ProfileId, String>,
    pub opted_out: bool,
    pub last_inbound_at: Option<OffsetDateTime>,
    /// The number of the contact's conversation.
    pub conversation_profile: Option<ProfileId>,
}

redacted_debug!(ContactFacts { id, opted_out });

impl ContactFacts {
    /// The contact's phone number, else the user id that the number may use unless the message needs a phone number.
    pub(super) fn address(&self, number: Option<ProfileId>, needs_phone: bool) -> Option<Addressee> {
        let phone = Some(&self.recipient.phone).filter(|phone| !phone.is_empty()).cloned();
        let user = match number {
            Some(number) => self.user_ids.get(&number).cloned(),
            // Without a number the message is simulated.
            None => self.wa_user_id.clone(),
        };
        Addressee::first_of(phone, self.wa_id.as_deref(), user.filter(|_| !needs_phone))
    }

    /// A contact that has to be made. Its user id fits every number, because none reported it.
    pub(crate) fn of(new: &NewContact, numbers: &[NumberChoice]) -> Self {
        let user_ids = numbers
            .iter()
            .filter_map(|number| Some((number.id, new.draft.wa_user_id.clone()?)));
        let phone = new.draft.phone.as_ref().map(ToString::to_string);
        Self {
            id: new.id,
            recipient: Recipient {
                name: new.draft.name.clone(),
                phone: phone.unwrap_or_default(),
                user_id: None,
                email: None,
                attributes: Map::new(),
            },
            wa_id: None,
            wa_user_id: new.draft.wa_user_id.clone(),
            user_ids: user_ids.collect(),
            opted_out: false,
            last_inbound_at: None,
            conversation_profile: None,
        }
    }
}

/// A contact that a message needs.
#[derive(Clone, PartialEq)]
pub struct NewContact {
    pub id: ContactId,
    pub draft: ContactDraft,
}

redacted_debug!(NewContact { id });
