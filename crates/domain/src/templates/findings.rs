//! What is wrong with the content of a template, field by field.

use schemars::JsonSchema;
use serde::Serialize;

use crate::shared::{FieldErrors, string_enum};

/// The most errors and the most warnings of a check. They bound the size of its response.
const MAX_FINDINGS: usize = 100;

string_enum! {
    /// The kind of an error or warning of a check.
    FindingCode {
        /// The field is missing or empty.
        Required = "required",
        /// The text is too short or too long.
        Length = "length",
        /// The value has the wrong form.
        Format = "format",
        /// A placeholder has the wrong form, number or position.
        Placeholder = "placeholder",
        /// The examples do not match the placeholders.
        Examples = "examples",
        /// There are too few or too many items.
        Count = "count",
        /// The buttons are in the wrong order.
        Order = "order",
        /// WhatsApp does not accept the value together with the other fields.
        NotAllowed = "not_allowed",
        /// The cards of the carousel differ in their components.
        UnequalCards = "unequal_cards",
        /// The file is not of this account, or WhatsApp does not accept its type.
        Media = "media",
        /// Warning: more than one word in three is a placeholder.
        ManyPlaceholders = "many_placeholders",
        /// Warning: a template of category UTILITY has words of an offer.
        OfferWords = "offer_words",
        /// Warning: a link is shortened, so that its target cannot be seen.
        ShortenedLink = "shortened_link",
        /// Warning: a text has only capital letters.
        AllCapitals = "all_capitals",
    }
}

/// An error or a warning of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The path of the field, as in the `fields` of a validation error.
    #[schemars(example = &"body_text")]
    pub field: String,
    /// The kind of the error or warning.
    pub code: FindingCode,
    /// The rule that the field breaks. It continues the field's name.
    #[schemars(example = &"must neither begin nor end with a placeholder")]
    pub message: String,
}

/// Findings in the order of the rules.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, field: impl Into<String>, code: FindingCode, message: impl Into<String>) {
        let (field, message) = (field.into(), message.into());
        let finding = Finding { field, code, message };
        if self.0.len() < MAX_FINDINGS && !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    pub(super) fn into_vec(self) -> Vec<Finding> {
        self.0
    }

    /// `Ok` without findings.
    pub(super) fn into_result(self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        for Finding { field, message, .. } in self.0 {
            errors.add(field, message);
        }
        errors.into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_the_errors_of_their_fields() {
        let mut findings = Findings::default();
        for _ in 0..2 {
            findings.add("body_text", FindingCode::Required, "is required");
        }
        findings.add("body_text", FindingCode::Length, "is too long");
        let expected = [(
            "body_text".to_owned(),
            vec!["is required".to_owned(), "is too long".to_owned()],
        )];
        assert_eq!(findings.into_result().unwrap_err().0, expected.into());
        let mut many = Findings::default();
        for number in 0..200 {
            many.add(format!("buttons[{number}]"), FindingCode::Format, "is wrong");
        }
        assert_eq!(many.into_vec().len(), MAX_FINDINGS);
        assert_eq!(Findings::default().into_result(), Ok(()));
    }
}
