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
    /// Other contacts of the same person, whose exports have this one's data.
    #[serde(default)]
    pub linked_contacts: Vec<Uuid>,
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

    /// The personal terms as regular expressions of PostgreSQL for texts in lower case. A term that is a part of another
    /// number, address or id does not match.
    pub fn personal_patterns(&self) -> Vec<String> {
        let pattern = |term: String| {
            let escaped: String = term
                .chars()
                .flat_map(|letter| (!letter.is_alphanumeric()).then_some('\\').into_iter().chain([letter]))
                .collect();
            format!("(?<![[:alnum:]_@-])(?<![[:alnum:]]\\.){escaped}(?![[:alnum:]_@-])(?!\\.[[:alnum:]])")
        };
        self.personal_terms().into_iter().map(pattern).collect()
    }

    /// Whether a text in lower case has one of the terms, by the same rule.
    pub fn is_named_in(&self, text: &str, contact: Uuid) -> bool {
        self.terms(contact).iter().any(|term| {
            let around: Vec<&str> = text.split(term.as_str()).collect();
            around
                .iter()
                .zip(around.iter().skip(1))
                .any(|(before, after)| !is_part(before, after))
        })
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

/// Whether a term between these texts is a part of a longer one.
fn is_part(before: &str, after: &str) -> bool {
    let joins = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || "_@-".contains(letter));
    let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let (mut before, mut after) = (before.chars().rev(), after.chars());
    let (last, first) = (before.next(), after.next());
    joins(last)
        || joins(first)
        || (last == Some('.') && is_word(before.next()))
        || (first == Some('.') && is_word(after.next()))
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
            linked_contacts: vec![],
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

    #[test]
    fn part_of_another_value_is_not_the_person() {
        let marks = PersonMarks {
            phone: Some("+5511961234567".into()),
            email: Some("ana@x.com".into()),
            ..PersonMarks::default()
        };
        let contact = Uuid::from_u128(5);
        for text in [
            "{\"phone\":\"+5511961234567\"}",
            "tel. 5511961234567.",
            "ana@x.com",
            "<ana@x.com>, 2",
        ] {
            assert!(marks.is_named_in(text, contact), "{text}");
        }
        for text in [
            "mariana@x.com",
            "ana@x.com.br",
            "15511961234567",
            "55119612345678",
            "l.ana@x.com",
        ] {
            assert!(!marks.is_named_in(text, contact), "{text}");
        }
        let pattern = &marks.personal_patterns()[1];
        assert!(pattern.contains("ana\\@x\\.com"), "{pattern}");
    }
}
