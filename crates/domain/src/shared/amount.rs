//! Exact decimal numbers for money in currency units, quantities and metric values. Binary floats are never used.

use std::borrow::Cow;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Neg, Sub};

use rust_decimal::{Decimal, RoundingStrategy};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The most digits of an accepted amount before and after the decimal point. With 15 digits in total, products of two
/// amounts and very large sums are exact, and parsing a JSON number is lossless.
const MAX_WHOLE_DIGITS: u32 = 11;
const MAX_DECIMALS: u32 = 4;

/// The decimals of the price of one message.
const PRICE_DECIMALS: u32 = 6;

/// The largest accepted deviation of a binary float from the intended decimal number. Float errors in sums and products
/// of money are far smaller.
const FLOAT_NOISE: Decimal = Decimal::from_parts(1, 0, 0, false, 8);

/// The decimals of published sums of message prices.
const COST_DECIMALS: u32 = 4;

/// The decimals of published money, percentages and averages.
const PUBLISHED_DECIMALS: u32 = 2;

/// An exact decimal number. It serializes as a JSON number and deserializes from a number or a string of digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(Decimal);

impl Amount {
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// Parses digits with an optional sign and decimal point. Returns `None` for other texts and for too many digits.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.'));
        Decimal::from_str_exact(text).ok().filter(|_| plain).map(Self)
    }

    /// Accepts amounts below 100 billion with at most `MAX_DECIMALS` decimals. A binary float's approximation of such
    /// an amount (59.699999999999996) is rounded to it.
    pub fn validated(self) -> Option<Self> {
        let value = self
            .0
            .round_dp_with_strategy(MAX_DECIMALS, RoundingStrategy::MidpointNearestEven);
        let is_approximation = (value - self.0).abs() <= FLOAT_NOISE;
        let is_in_range = value.trunc().abs() < Decimal::from(10_i64.pow(MAX_WHOLE_DIGITS));
        (is_approximation && is_in_range).then_some(Self(value))
    }

    /// The price of one message: from 0 to 100 billion, rounded to `PRICE_DECIMALS`. Returns `None` outside this range.
    pub fn price(self) -> Option<Self> {
        let strategy = RoundingStrategy::MidpointNearestEven;
        let value = self.0.round_dp_with_strategy(PRICE_DECIMALS, strategy).normalize();
        let is_in_range = value.trunc() < Decimal::from(10_i64.pow(MAX_WHOLE_DIGITS));
        (is_in_range && !self.is_negative()).then_some(Self(value))
    }

    /// Rounds a sum of message prices, half to even.
    #[must_use]
    pub fn rounded_cost(self) -> Self {
        let strategy = RoundingStrategy::MidpointNearestEven;
        Self(self.0.round_dp_with_strategy(COST_DECIMALS, strategy))
    }

    /// The number of decimals that are needed to write it.
    pub fn decimals(self) -> u32 {
        self.0.normalize().scale()
    }

    pub fn is_negative(self) -> bool {
        self < Self::ZERO
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Rounds to `PUBLISHED_DECIMALS`, half to even.
    #[must_use]
    pub fn rounded(self) -> Self {
        let strategy = RoundingStrategy::MidpointNearestEven;
        Self(self.0.round_dp_with_strategy(PUBLISHED_DECIMALS, strategy))
    }

    /// Divides by `divisor` and rounds. Returns 0 if the divisor is 0.
    #[must_use]
    pub fn ratio(self, divisor: impl Into<Self>) -> Self {
        let quotient = self.0.checked_div(divisor.into().0);
        Self(quotient.unwrap_or_default()).rounded()
    }

    /// Returns the rounded percentage of `whole`, or 0 if the whole is 0.
    #[must_use]
    pub fn percent_of(self, whole: impl Into<Self>) -> Self {
        (self * Self::from(100)).ratio(whole)
    }
}

impl From<i64> for Amount {
    fn from(number: i64) -> Self {
        Self(number.into())
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.normalize().fmt(f)
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul for Amount {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(self.0.saturating_mul(other.0))
    }
}

impl Neg for Amount {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl Serialize for Amount {
    /// Writes the exact digits: a binary float could not represent every amount.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = RawValue::from_string(self.to_string()).map_err(S::Error::custom)?;
        digits.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Digits)
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        match generator.contract().is_serialize() {
            true => json_schema!({ "type": "number" }),
            false => json_schema!({ "type": ["number", "string"], "pattern": r"^-?[0-9]+(\.[0-9]+)?$" }),
        }
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decimal number")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Amount, E> {
        Ok(number.into())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Amount, E> {
        Ok(Amount(number.into()))
    }

    /// Uses the shortest decimal representation, which equals the written number if it has at most 15 digits.
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
        Amount::parse(text).ok_or_else(|| E::custom("must be a decimal number of at most 28 digits"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    #[test]
    fn money_is_rounded_half_to_even() {
        for (exact, rounded) in [
            ("0.125", "0.12"),
            ("0.135", "0.14"),
            ("-0.125", "-0.12"),
            ("2.5", "2.5"),
            ("1.00", "1"),
        ] {
            assert_eq!(amount(exact).rounded().to_string(), rounded);
        }
        assert_eq!(amount("10").ratio(3).to_string(), "3.33");
        assert_eq!(amount("10").ratio(0), Amount::ZERO);
        assert_eq!(Amount::from(2).percent_of(3).to_string(), "66.67");
    }

    #[test]
    fn amount_parse_rejects_other_texts() {
        for text in ["", "-", ".", "1e3", "1_000", "0x1", "NaN", "1,5", " 1", "1.2.3"] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
        assert!(serde_json::from_value::<Amount>(json!(-1.5e300)).is_err());
        assert!(serde_json::from_value::<Amount>(json!(true)).is_err());
    }

    #[test]
    fn amount_validation_checks_range_and_decimals() {
        for valid in ["0", "-3", "99999999999.9999", "1.20000000", "0.0001"] {
            assert_eq!(amount(valid).validated(), Some(amount(valid)), "{valid}");
        }
        for invalid in [
            "100000000000",
            "-100000000000",
            "99999999999.99999999999",
            "0.00001",
            "0.00000002",
            "7.12345",
        ] {
            assert_eq!(amount(invalid).validated(), None, "{invalid}");
        }
    }

    #[test]
    fn amount_validation_rounds_float_approximations() {
        for (float, intended) in [
            (19.9 * 3.0, "59.7"),
            (0.1 + 0.2, "0.3"),
            (-(19.9 * 3.0), "-59.7"),
            (4.35 * 100.0, "435"),
        ] {
            let read: Amount = serde_json::from_value(json!(float)).unwrap();
            assert_eq!(read.validated(), Some(amount(intended)), "{float}");
        }
    }

    #[test]
    fn amount_json_has_every_digit() {
        let long = amount("123456789012345678901.23");
        assert_eq!(serde_json::to_string(&long).unwrap(), "123456789012345678901.23");
        assert_eq!(
            serde_json::to_string(&[amount("1.50"), amount("2.00")]).unwrap(),
            "[1.5,2]"
        );
        assert_eq!(json!({ "n": amount("0.1") }), json!({ "n": 0.1 }));
    }

    proptest! {
        #[test]
        fn amount_json_round_trips(whole in -99_999_999_999_i64..99_999_999_999, decimals in 0..10_000_u32) {
            let text = format!("{whole}.{decimals:04}");
            let read: Amount = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, amount(&text));
            prop_assert_eq!(read.validated(), Some(read));
            let written = serde_json::to_string(&read).unwrap();
            prop_assert_eq!(serde_json::from_str::<Amount>(&written).unwrap(), read);
        }
    }
}
