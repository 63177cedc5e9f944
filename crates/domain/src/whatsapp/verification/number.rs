//! What WhatsApp says about a number.

use serde::{Deserialize, Serialize};

/// The rate of a number that is also used in the WhatsApp Business app, of a standard number, and of a fast one.
const BUSINESS_APP_RATE: i32 = 20;
const STANDARD_RATE: i32 = 80;
const HIGH_RATE: i32 = 1000;

/// WhatsApp's values of a number. Each is null until it was read. Unknown words of WhatsApp are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumberFacts {
    /// The phone number as WhatsApp shows it.
    pub display_phone_number: Option<String>,
    /// The name that contacts see.
    pub verified_name: Option<String>,
    /// WhatsApp's review of the name, for example `approved`.
    pub name_status: Option<String>,
    /// WhatsApp's status of the number, for example `connected`.
    pub status: Option<String>,
    /// `green`, `yellow`, `red` or `unknown`.
    pub quality_rating: Option<String>,
    /// `standard`, `high` or `not_applicable`.
    pub throughput: Option<String>,
    /// How many messages a second WhatsApp accepts from the number.
    pub max_messages_per_second: Option<i32>,
    /// How many people the business may start conversations with in 24 hours; -1 is unlimited.
    pub messaging_limit: Option<i64>,
    /// Whether the number is also used in the WhatsApp Business app.
    pub on_business_app: Option<bool>,
    /// WhatsApp's id of the business portfolio.
    pub portfolio_id: Option<String>,
}

impl NumberFacts {
    /// Sets `max_messages_per_second` from the values on which it depends.
    #[must_use]
    pub fn with_max_rate(self) -> Self {
        let max_messages_per_second = max_messages_per_second(self.on_business_app, self.throughput.as_deref());
        Self {
            max_messages_per_second,
            ..self
        }
    }

    /// The values of a later answer. An answer may lack values that an earlier one had, and never has the portfolio.
    #[must_use]
    pub fn updated(self, later: Self) -> Self {
        let merged = Self {
            display_phone_number: later.display_phone_number.or(self.display_phone_number),
            verified_name: later.verified_name.or(self.verified_name),
            name_status: later.name_status.or(self.name_status),
            status: later.status.or(self.status),
            quality_rating: later.quality_rating.or(self.quality_rating),
            throughput: later.throughput.or(self.throughput),
            max_messages_per_second: None,
            messaging_limit: later.messaging_limit.or(self.messaging_limit),
            on_business_app: later.on_business_app.or(self.on_business_app),
            portfolio_id: later.portfolio_id.or(self.portfolio_id),
        };
        merged.with_max_rate()
    }

    pub fn is_connected(&self) -> bool {
        self.status.as_deref() == Some("connected")
    }
}

/// How many messages a second WhatsApp accepts from a number. None if it is not known.
pub fn max_messages_per_second(on_business_app: Option<bool>, throughput: Option<&str>) -> Option<i32> {
    match (on_business_app, throughput) {
        (Some(true), _) => Some(BUSINESS_APP_RATE),
        (_, Some("standard")) => Some(STANDARD_RATE),
        (_, Some("high")) => Some(HIGH_RATE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_rate_follows_business_app_then_throughput() {
        for (on_business_app, throughput, expected) in [
            (None, None, None),
            (None, Some("standard"), Some(80)),
            (Some(false), Some("high"), Some(1000)),
            (Some(true), Some("high"), Some(20)),
            (Some(true), None, Some(20)),
            (Some(false), Some("not_applicable"), None),
            (None, Some("turbo"), None),
        ] {
            assert_eq!(max_messages_per_second(on_business_app, throughput), expected);
        }
    }

    #[test]
    fn later_answer_keeps_what_it_lacks() {
        let earlier = NumberFacts {
            verified_name: Some("Loja".into()),
            throughput: Some("standard".into()),
            portfolio_id: Some("5".into()),
            ..NumberFacts::default()
        };
        let later = NumberFacts {
            throughput: Some("high".into()),
            status: Some("connected".into()),
            ..NumberFacts::default()
        };
        let now = earlier.updated(later);
        assert!(now.is_connected());
        assert_eq!(
            (
                now.verified_name.as_deref(),
                now.portfolio_id.as_deref(),
                now.max_messages_per_second
            ),
            (Some("Loja"), Some("5"), Some(1000))
        );
    }
}
