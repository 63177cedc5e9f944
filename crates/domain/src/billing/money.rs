//! Money: whole cents in Recado, decimal reais at the gateway, pt-BR text for display. No value is computed as a float.

use std::fmt;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Maximum digits of an amount in a JSON number. Up to this length a float's shortest text is the text that was sent.
const MAX_DIGITS: u32 = 15;

/// The decimals of reais.
const DECIMALS: u32 = 2;

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

impl Cents {
    /// Returns the amount in reais as a JSON number with up to two decimals; `None` if it exceeds `MAX_DIGITS` digits.
    pub fn reais(self) -> Option<Number> {
        let reais = Decimal::new(self.0, DECIMALS);
        has_few_digits(reais).then(|| reais.normalize().to_string().parse().ok())?
    }

    /// Parses a JSON number in reais. Returns `None` for other types, more than two decimals or more than `MAX_DIGITS`
    /// digits.
    pub fn from_reais(value: &Value) -> Option<Self> {
        let reais = Decimal::from_str_exact(&value.as_number()?.to_string())
            .ok()?
            .normalize();
        if reais.scale() > DECIMALS || !has_few_digits(reais) {
            return None;
        }
        (reais * Decimal::ONE_HUNDRED).to_i64().map(Self)
    }
}

fn has_few_digits(amount: Decimal) -> bool {
    amount.mantissa().unsigned_abs() < 10_u128.pow(MAX_DIGITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

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

    #[test]
    fn cents_convert_from_and_to_reais() {
        for (text, cents) in [
            ("97", Some(9_700)),
            ("97.0", Some(9_700)),
            ("97.00", Some(9_700)),
            ("19.9", Some(1_990)),
            ("19.90", Some(1_990)),
            ("0.05", Some(5)),
            ("-1.5", Some(-150)),
            ("0.29", Some(29)),
            ("1.005", None),
            ("1e3", Some(100_000)),
            ("1e300", None),
            ("0.1e-7", None),
            ("99999999999999999.99", None),
            ("\"97\"", None),
            ("null", None),
            ("true", None),
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Cents::from_reais(&value), cents.map(Cents), "{text}");
        }
        assert_eq!(json!(Cents(1_990).reais()).to_string(), "19.9");
        assert_eq!(json!(Cents(9_700).reais()).to_string(), "97");
        assert_eq!(json!(Cents(-5).reais()).to_string(), "-0.05");
        assert_eq!(Cents(i64::MAX).reais(), None);
    }

    proptest! {
        #[test]
        fn cents_reais_round_trip(cents in -999_999_999_999_999_i64..=999_999_999_999_999) {
            let written = json!(Cents(cents).reais()).to_string();
            let read: Value = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(Cents::from_reais(&read), Some(Cents(cents)), "{}", written);
        }

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
