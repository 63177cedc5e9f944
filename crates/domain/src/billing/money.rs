//! Money: whole cents, and their pt-BR text for display.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An amount in centavos of a real.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Cents(pub i64);

/// Formats as `R$ 1.234,56`, with a no-break space.
impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, cents) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let whole = (cents / 100).to_string();
        let mut grouped = String::with_capacity(whole.len() * 4 / 3);
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at) % 3 == 0 {
                grouped.push('.');
            }
            grouped.push(digit);
        }
        write!(f, "{sign}R$\u{a0}{grouped},{:02}", cents % 100)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cents_display_uses_the_brazilian_format() {
        for (cents, text) in [
            (0, "R$\u{a0}0,00"),
            (5, "R$\u{a0}0,05"),
            (990, "R$\u{a0}9,90"),
            (9_700, "R$\u{a0}97,00"),
            (100_000, "R$\u{a0}1.000,00"),
            (123_456, "R$\u{a0}1.234,56"),
            (123_456_789, "R$\u{a0}1.234.567,89"),
            (-123_456, "-R$\u{a0}1.234,56"),
            (i64::MIN, "-R$\u{a0}92.233.720.368.547.758,08"),
        ] {
            assert_eq!(Cents(cents).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn cents_display_contains_every_digit(cents: i64) {
            let text = Cents(cents).to_string();
            let digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '-').collect();
            prop_assert_eq!(digits.parse::<i128>().unwrap(), i128::from(cents));
            let begins = text.trim_start_matches('-').starts_with("R$\u{a0}");
            prop_assert!(begins);
            let (whole, cents) = text.rsplit_once(',').unwrap();
            prop_assert_eq!(cents.len(), 2);
            let groups: Vec<&str> = whole.split('\u{a0}').nth(1).unwrap().split('.').collect();
            prop_assert!(groups.iter().skip(1).all(|group| group.len() == 3) && (1..=3).contains(&groups[0].len()));
        }
    }
}
