//! What copies of a person's data are found by.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::contacts::Identifier;
use crate::shared::redacted_debug;

/// Shorter values would match texts of other people.
const MIN_TERM_CHARS: usize = 5;

/// What identifies a person in copies: values of the contact, and the ids of rows that belong to the person alone. Names
/// are none of them, because other people have the same.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonMarks {
    pub phone: Option<String>,
    pub wa_id: Option<String>,
    pub email: Option<String>,
    /// WhatsApp's user ids, for every portfolio, and those of parent businesses.
    #[serde(default)]
    pub user_ids: Vec<String>,
    pub conversation_id: Option<Uuid>,
    /// Whether the person had opted out.
    #[serde(default)]
    pub has_opted_out: bool,
}

redacted_debug!(PersonMarks { conversation_id });

impl PersonMarks {
    /// What WhatsApp identifies the person by.
    pub fn identifiers(&self) -> Vec<Identifier> {
        let numbers = self.phone.iter().chain(&self.wa_id);
        let numbers = numbers.map(|number| Identifier::phone(number));
        let mut identifiers: Vec<_> = numbers
            .chain(self.user_ids.iter().map(|id| Identifier::user_id(id)))
            .collect();
        identifiers.sort();
        identifiers.dedup();
        identifiers
    }

    /// Under what an opt-out is stored. A `wa_id` may lack Brazil's ninth digit, so the phone number goes first.
    pub fn opt_out_identifiers(&self) -> Vec<Identifier> {
        let number = self.phone.as_deref().or(self.wa_id.as_deref());
        let ids = self.user_ids.iter().map(|id| Identifier::user_id(id));
        number.map(Identifier::phone).into_iter().chain(ids).collect()
    }

    /// The person's values in lower case, as texts contain them.
    pub fn personal_terms(&self) -> Vec<String> {
        let identifiers = self.identifiers();
        let values = identifiers.iter().map(Identifier::as_str).chain(self.email.as_deref());
        values
            .map(str::to_lowercase)
            .filter(|term| term.chars().count() >= MIN_TERM_CHARS)
            .collect()
    }

    /// The ids of rows that belong to the person alone.
    pub fn own_ids(&self, contact: Uuid) -> Vec<String> {
        let ids = std::iter::once(contact).chain(self.conversation_id);
        ids.map(|id| id.to_string()).collect()
    }

    /// The personal terms, and the ids.
    pub fn terms(&self, contact: Uuid) -> Vec<String> {
        [self.personal_terms(), self.own_ids(contact)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_find_numbers_ids_and_addresses_without_names() {
        let marks = PersonMarks {
            phone: Some("+5511961234567".into()),
            wa_id: Some("5511961234567".into()),
            email: Some("Eva@Example.com".into()),
            user_ids: vec!["BR.1a".into(), "BR.abcdef".into()],
            conversation_id: Some(Uuid::from_u128(7)),
            has_opted_out: false,
        };
        let personal = ["5511961234567", "br.1a", "br.abcdef", "eva@example.com"];
        assert_eq!(marks.personal_terms(), personal);
        let terms = marks.terms(Uuid::from_u128(5));
        assert_eq!(
            terms[4..],
            [Uuid::from_u128(5), Uuid::from_u128(7)].map(|id| id.to_string())
        );
        // A number and its wa_id are one identifier.
        assert_eq!(marks.identifiers().len(), 3);
        let short_id = PersonMarks {
            wa_id: Some("551161234567".into()),
            ..marks.clone()
        };
        assert_eq!(
            (short_id.identifiers().len(), short_id.opt_out_identifiers().len()),
            (4, 3)
        );
        assert_eq!(short_id.opt_out_identifiers(), marks.opt_out_identifiers());
        let short = PersonMarks {
            user_ids: vec!["BR.1".into()],
            ..PersonMarks::default()
        };
        assert!(short.personal_terms().is_empty() && short.identifiers().len() == 1);
    }
}
