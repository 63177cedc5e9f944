//! Opt-outs that outlive the erasure of a contact, as keyed hashes of what identifies the person.

use uuid::Uuid;

use crate::shared::{AccountId, redacted_debug};

/// What WhatsApp identifies a person by. Phone numbers and user ids never have the same form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identifier(String);

redacted_debug!(Identifier {});

impl Identifier {
    /// A phone number, or a `wa_id`, which is a number without its plus sign.
    pub fn phone(number: &str) -> Self {
        Self(number.trim_start_matches('+').to_owned())
    }

    /// A user id, or that of a parent business.
    pub fn user_id(id: &str) -> Self {
        Self(id.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a consent that is newer than the erasure of a person with the same identifier decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewerConsent {
    /// WhatsApp reports the identifier, so the contact is the person, who has decided since.
    Stays,
    /// A caller states the identifier. The contact's consent may be that of another person.
    Yields,
}

/// Hashes identifiers under a secret, so that the database alone does not reveal them.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait IdentifierHasher: Send + Sync {
    /// The hash under the current secret.
    fn hash(&self, account: AccountId, identifier: &Identifier) -> Vec<u8>;

    /// The hashes under the current secret and those before it.
    fn all_hashes(&self, account: AccountId, identifier: &Identifier) -> Vec<Vec<u8>>;
}

/// Identifiers that a contact did not have before: all of a new one, or those that a change adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedIdentifiers {
    /// The contact.
    pub id: Uuid,
    pub identifiers: Vec<Identifier>,
}

impl AddedIdentifiers {
    pub fn new(id: Uuid, phone: Option<&str>, user_id: Option<&str>) -> Self {
        let phone = phone.map(Identifier::phone);
        let identifiers = phone.into_iter().chain(user_id.map(Identifier::user_id)).collect();
        Self { id, identifiers }
    }

    /// Leaves out those that the contact had before.
    #[must_use]
    pub fn without(mut self, before: &[Identifier]) -> Self {
        self.identifiers.retain(|identifier| !before.contains(identifier));
        self
    }
}
