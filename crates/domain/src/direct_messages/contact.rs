//! The contact of a message.

use serde_json::Map;
use time::OffsetDateTime;

use crate::campaigns::Recipient;
use crate::contacts::ContactDraft;
use crate::messaging::Addressee;
use crate::shared::{ContactId, ProfileId, redacted_debug};

/// The facts about a contact that decide on a message to it.
#[derive(Clone, PartialEq)]
pub struct ContactFacts {
    pub id: ContactId,
    /// The phone is empty if the contact has none.
    pub recipient: Recipient,
    /// The contact's number as WhatsApp writes it.
    pub wa_id: Option<String>,
    pub wa_user_id: Option<String>,
    pub opted_out: bool,
    pub last_inbound_at: Option<OffsetDateTime>,
    /// The number of the contact's conversation.
    pub conversation_profile: Option<ProfileId>,
}

redacted_debug!(ContactFacts { id, opted_out });

impl ContactFacts {
    /// The contact's number, else its user id unless the message needs a number.
    pub(super) fn address(&self, needs_phone: bool) -> Option<Addressee> {
        let phone = Some(&self.recipient.phone).filter(|phone| !phone.is_empty()).cloned();
        let phone = phone.or_else(|| self.wa_id.as_ref().map(|id| format!("+{id}")));
        let user = self.wa_user_id.clone().filter(|_| !needs_phone);
        phone.map(Addressee::Phone).or_else(|| user.map(Addressee::User))
    }

    /// A contact that has to be made.
    pub(super) fn of(new: &NewContact) -> Self {
        let phone = new.draft.phone.as_ref().map(ToString::to_string);
        Self {
            id: new.id,
            recipient: Recipient {
                name: new.draft.name.clone(),
                phone: phone.unwrap_or_default(),
                email: None,
                attributes: Map::new(),
            },
            wa_id: None,
            wa_user_id: new.draft.wa_user_id.clone(),
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
