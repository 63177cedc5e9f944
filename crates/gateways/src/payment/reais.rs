//! Amounts at the payment gateway: JSON numbers in reais. No value is computed as a float.

use recado_domain::billing::Cents;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Number, Value};

/// Maximum digits of an amount in a JSON number. Up to this length a float's shortest text is the text that was sent.
const MAX_DIGITS: u32 = 15;

/// The decimals of reais.
const DECIMALS: u32 = 2;

/// Converts an amount to a JSON number with up to two decimals; `None` if it exceeds `MAX_DIGITS` digits.
pub(super) fn to_reais(amount: Cents) -> Option<Number> {
    let reais = Decimal::new(amount.0, DECIMALS);
    has_few_digits(reais).then(|| reais.normalize().to_string().parse().ok())?
}

/// Parses a JSON number in reais. Returns `None` for other types, more than two decimals or more than `MAX_DIGITS`
/// digits.
pub(super) fn from_reais(value: &Value) -> Option<Cents> {
    let reais = Decimal::from_str_exact(&value.as_number()?.to_string())
        .ok()?
        .normalize();
    if reais.scale() > DECIMALS || !has_few_digits(reais) {
        return None;
    }
    (reais * Decimal::ONE_HUNDRED).to_i64().map(Cents)
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
            assert_eq!(from_reais(&value), cents.map(Cents), "{text}");
        }
        assert_eq!(json!(to_reais(Cents(1_990))).to_string(), "19.9");
        assert_eq!(json!(to_reais(Cents(9_700))).to_string(), "97");
        assert_eq!(json!(to_reais(Cents(-5))).to_string(), "-0.05");
        assert_eq!(to_reais(Cents(i64::MAX)), None);
    }

    proptest! {
        #[test]
        fn cents_reais_round_trip(cents in -999_999_999_999_999_i64..=999_999_999_999_999) {
            let written = json!(to_reais(Cents(cents))).to_string();
            let read: Value = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(from_reais(&read), Some(Cents(cents)), "{}", written);
        }
    }
}
