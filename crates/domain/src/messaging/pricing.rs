//! The price of a message as WhatsApp reports it. It is published with the send or message, and a later status update
//! can correct it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::SendStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{Amount, string_enum, timestamp};

string_enum! {
    /// The source of an amount.
    PricingSource {
        /// WhatsApp's status update contains the amount.
        Platform = "platform",
        /// A rate card contains the amount.
        RateCard = "rate_card",
        /// The amount is unknown.
        None = "none",
    }
}

/// The price of a message, with WhatsApp's own values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pricing {
    /// Whether WhatsApp charges for the message.
    #[schemars(example = true)]
    pub billable: bool,
    /// WhatsApp's pricing model, for example `PMP` (a price for each message); null where it names none.
    #[schemars(example = &"PMP")]
    pub model: Option<String>,
    /// WhatsApp's type of price, for example `regular` or `free_customer_service`; null where it names none.
    #[schemars(example = &"regular")]
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The category that WhatsApp charges for, for example `marketing` or `utility`; null where it names none.
    #[schemars(example = &"marketing")]
    pub category: Option<String>,
    /// The market whose rate applies; null while no rate card applies.
    #[schemars(example = Value::Null)]
    pub market: Option<String>,
    /// The price with at most six decimals: 0 for a message that is free of charge, null where it is unknown.
    #[schemars(example = 0.0625)]
    pub amount: Option<Amount>,
    /// The currency of `amount` as an ISO 4217 code; null where it is unknown.
    #[schemars(example = &"USD")]
    pub currency: Option<String>,
    /// The source of `amount`: `platform` if WhatsApp's status update contains it, else `none`.
    pub source: PricingSource,
    /// The time of the status update that contains the price.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub priced_at: OffsetDateTime,
}

/// A price, and the status of the update that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPricing {
    pub pricing: Pricing,
    pub status: SendStatus,
}

/// A field of the stored price that is not published.
const STATUS: &str = "status";

impl StatusPricing {
    /// Whether this replaces the stored price: the price differs, and its status update is not older. Within one
    /// second, the more advanced status is the later one.
    fn corrects(&self, stored: &Self) -> bool {
        let (new, old) = (&self.pricing, &stored.pricing);
        let is_same = Pricing {
            priced_at: old.priced_at,
            ..new.clone()
        } == *old;
        let is_older = match new.priced_at.cmp(&old.priced_at) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.status.advance(stored.status).is_some(),
            std::cmp::Ordering::Greater => false,
        };
        !is_same && !is_older
    }

    /// Applies the price of a status update. Returns whether the stored price changed.
    pub fn set_if_corrected(stored: &mut Option<Self>, incoming: Option<Self>) -> bool {
        let Some(incoming) = incoming else { return false };
        let changes = stored.as_ref().is_none_or(|stored| incoming.corrects(stored));
        if changes {
            *stored = Some(incoming);
        }
        changes
    }

    /// The stored JSON: the published fields that are not null, and the status.
    pub fn to_stored(&self) -> Value {
        let mut stored = serde_json::json!(self.pricing);
        if let Some(fields) = stored.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
            fields.insert(STATUS.to_owned(), self.status.as_str().into());
        }
        stored
    }

    pub fn from_stored(stored: &Value) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Status {
            status: SendStatus,
        }
        Ok(Self {
            pricing: Pricing::deserialize(stored)?,
            status: Status::deserialize(stored)?.status,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    fn pricing_at(status: SendStatus, seconds: i64, category: &str) -> StatusPricing {
        let pricing = Pricing {
            billable: true,
            model: Some("PMP".into()),
            kind: Some("regular".into()),
            category: Some(category.into()),
            market: None,
            amount: Amount::parse("0.0075"),
            currency: Some("USD".into()),
            source: PricingSource::Platform,
            priced_at: datetime!(2026-03-01 12:00 UTC) + Duration::seconds(seconds),
        };
        StatusPricing { pricing, status }
    }

    #[test]
    fn pricing_is_stored_without_nulls_and_read_back() {
        let pricing = pricing_at(SendStatus::Read, 0, "marketing");
        let stored = pricing.to_stored();
        assert_eq!(
            stored,
            json!({ "billable": true, "model": "PMP", "type": "regular", "category": "marketing", "amount": 0.0075,
                "currency": "USD", "source": "platform", "priced_at": "2026-03-01T12:00:00.000Z", "status": "read" })
        );
        assert_eq!(StatusPricing::from_stored(&stored).unwrap(), pricing);
        assert_eq!(json!(pricing.pricing)["market"], Value::Null);
    }

    #[test]
    fn pricing_is_corrected_only_by_a_later_different_price() {
        use SendStatus::{Delivered, Sent};
        let stored = pricing_at(Delivered, 10, "marketing");
        for (incoming, corrects) in [
            (pricing_at(Sent, 9, "utility"), false),
            (pricing_at(Sent, 10, "utility"), false),
            (pricing_at(Delivered, 10, "utility"), true),
            (pricing_at(SendStatus::Read, 10, "utility"), true),
            (pricing_at(Sent, 11, "utility"), true),
            (pricing_at(Delivered, 11, "marketing"), false),
        ] {
            assert_eq!(incoming.corrects(&stored), corrects, "{incoming:?}");
        }
    }

    proptest! {
        /// After repeated status updates in any order, the stored price is that of the latest update.
        #[test]
        fn pricing_does_not_depend_on_the_order_of_updates(order in Just(vec![0_usize, 1, 2, 0, 1, 2]).prop_shuffle()) {
            let all = [
                pricing_at(SendStatus::Sent, 0, "marketing"),
                pricing_at(SendStatus::Delivered, 0, "utility"),
                pricing_at(SendStatus::Read, 5, "service"),
            ];
            let mut stored: Option<StatusPricing> = None;
            for position in order {
                StatusPricing::set_if_corrected(&mut stored, Some(all[position].clone()));
            }
            prop_assert_eq!(stored.as_ref(), Some(&all[2]));
        }
    }
}
