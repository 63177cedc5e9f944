//! Phone numbers: normalizes any common notation to E.164. A Brazilian mobile number always has its ninth digit, so
//! that both notations of it become one number.
//!
//! Source: the numbering plan of region BR in libphonenumber (metadata of 2026-07).

use std::fmt;

use serde::Serialize;

use crate::shared::redacted_debug;

/// A canonical number, for example `+5511961234567`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Phone(String);

redacted_debug!(Phone {});

/// The characters that may separate digits.
const PUNCTUATION: &str = " +-().\u{a0}/";

impl Phone {
    /// Parses a number in any common notation. A number without a country code is Brazilian, and a Brazilian mobile
    /// number without its ninth digit gets it. Returns `None` if the text is not a phone number.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if !text.chars().all(|c| c.is_ascii_digit() || PUNCTUATION.contains(c))
            || text.rfind('+').is_some_and(|at| at > 0)
        {
            return None;
        }
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        if text.starts_with('+') && !digits.starts_with("55") {
            let valid = (8..=15).contains(&digits.len()) && !digits.starts_with('0');
            return valid.then(|| Self(format!("+{digits}")));
        }
        let candidates = national_candidates(&digits, text.starts_with('+'));
        candidates
            .into_iter()
            .find_map(canonical)
            .map(|national| Self(format!("+55{national}")))
    }

    /// Returns the texts that a stored number may contain if it matches a search: the digits of `text`, and its
    /// canonical number if it has one. Returns nothing if `text` has characters that no number has.
    pub fn search_forms(text: &str) -> Vec<String> {
        let text = text.trim();
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        if digits.is_empty() || !text.chars().all(|c| c.is_ascii_digit() || PUNCTUATION.contains(c)) {
            return vec![];
        }
        let plus = if text.starts_with('+') { "+" } else { "" };
        let typed = format!("{plus}{digits}");
        let canonical = Self::parse(text)
            .map(|phone| phone.0)
            .filter(|phone| !phone.contains(&typed));
        std::iter::once(typed).chain(canonical).collect()
    }

    /// The number in E.164 form, with its `+`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the possible national numbers, the likeliest first.
fn national_candidates(digits: &str, plus: bool) -> Vec<&str> {
    if plus {
        return digits.strip_prefix("55").into_iter().collect();
    }
    if let Some(national) = digits.strip_prefix("0055") {
        return vec![national];
    }
    if let Some(after_trunk) = digits.strip_prefix('0') {
        return std::iter::once(after_trunk)
            .chain(without_carrier(after_trunk))
            .collect();
    }
    let without_country = digits.strip_prefix("55").filter(|_| matches!(digits.len(), 12 | 13));
    without_country.into_iter().chain(std::iter::once(digits)).collect()
}

/// Removes the two digits of a carrier, which may follow the trunk prefix.
fn without_carrier(digits: &str) -> Option<&str> {
    const CARRIERS: [&str; 13] = [
        "12", "14", "15", "21", "22", "23", "25", "31", "41", "43", "55", "65", "99",
    ];
    let (carrier, rest) = digits.split_at_checked(2)?;
    CARRIERS.contains(&carrier).then_some(rest)
}

/// Returns the national number in its current form: an area code with 9 digits (mobile) or 8 digits (landline, radio).
fn canonical(national: &str) -> Option<String> {
    let (area, subscriber) = national.split_at_checked(2)?;
    if !is_area(area) {
        return None;
    }
    match (subscriber.len(), subscriber.bytes().next()?) {
        (9, b'9') | (8, b'2'..=b'5' | b'7') => Some(national.to_owned()),
        (8, b'6' | b'8' | b'9') => Some(format!("{area}9{subscriber}")),
        _ => None,
    }
}

fn is_area(area: &str) -> bool {
    match area.as_bytes() {
        [b'1' | b'4' | b'6' | b'8' | b'9', b'1'..=b'9'] => true,
        [b'2', second] => b"12478".contains(second),
        [b'3', second] => b"1234578".contains(second),
        [b'5', second] => b"1345".contains(second),
        [b'7', second] => b"134579".contains(second),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<String> {
        Phone::parse(text).map(|phone| phone.to_string())
    }

    #[test]
    fn phone_parse_matches_the_numbering_plan() {
        let same = [
            "(11) 96123-4567",
            "11961234567",
            "5511961234567",
            "005511961234567",
            "011 96123-4567",
            "0 15 11 96123-4567",
            "+55 11 96123-4567",
            "1161234567",
            " 11.96123.4567 ",
        ];
        for text in same {
            assert_eq!(parsed(text).as_deref(), Some("+5511961234567"), "{text}");
        }
        let others = [
            ("+55 21 8765-4321", "+5521987654321"),
            ("553188887777", "+5531988887777"),
            ("+55 11 3003-1234", "+551130031234"),
            ("1133334444", "+551133334444"),
            ("+551178123456", "+551178123456"),
            ("5599123456", "+5555999123456"),
            ("5555991234567", "+5555991234567"),
            ("+1 650 555 1234", "+16505551234"),
        ];
        for (text, number) in others {
            assert_eq!(parsed(text).as_deref(), Some(number), "{text}");
        }
    }

    #[test]
    fn phone_parse_rejects_invalid_numbers() {
        let wrong = [
            "961234567",
            "+55 20 96123-4567",
            "",
            "+",
            "abc",
            "11 96123-45",
            "+0123456789",
            "1234567",
            "11961234567x",
            "11+961234567",
            "+1234567890123456",
            "١١٩٦١٢٣٤٥٦٧",
            "+55 23 96123-4567",
            "+55 36 96123-4567",
        ];
        for text in wrong {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn phone_search_matches_any_notation() {
        let forms = |text| Phone::search_forms(text);
        assert_eq!(forms("553188887777"), ["553188887777", "+5531988887777"]);
        assert_eq!(forms("(31) 8888-7777"), ["3188887777", "+5531988887777"]);
        assert_eq!(forms("(31) 98888-7777"), ["31988887777"]);
        assert_eq!(forms("+55 31"), ["+5531"]);
        assert_eq!(forms("8888-77"), ["888877"]);
        for text in ["", " - ", "+", "Ana", "Ana 31", "50%"] {
            assert_eq!(forms(text), Vec::<String>::new(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn phone_parse_is_idempotent_and_never_panics(text in "[0-9+() -]{0,20}") {
            if let Some(number) = parsed(&text) {
                let again = parsed(&number);
                prop_assert_eq!(again.as_deref(), Some(number.as_str()));
            }
        }

        #[test]
        fn phone_parse_adds_the_ninth_digit(
            area in prop::sample::select(vec!["11", "31", "85"]), rest in "[689][0-9]{7}",
        ) {
            prop_assert_eq!(parsed(&format!("{area}{rest}")), parsed(&format!("{area}9{rest}")));
        }
    }
}
