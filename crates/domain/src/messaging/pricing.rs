//! The price of a message as WhatsApp reports it. It is published with the send or message, and a later status update
//! can correct it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::SendStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{Amount, ProfileId, TemplateId, string_enum, timestamp};

string_enum! {
    /// The source of an amount.
    PricingSource {
        /// WhatsApp's status update contains the amount.
        Platform = "platform",
        /// A rate card contains the amount.
        RateCard = "rate_card",
        /// No source supplied the amount: it is 0 for a free message, else unknown.
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
    /// The market of the recipient's country as the newest rate card names it; null while no rate card covers it.
    #[schemars(example = Value::Null)]
    pub market: Option<String>,
    /// The price with at most six decimals: 0 for a message that is free of charge, null where it is unknown.
    #[schemars(example = 0.0625)]
    pub amount: Option<Amount>,
    /// The currency of `amount` as an ISO 4217 code; null where it is unknown.
    #[schemars(example = &"USD")]
    pub currency: Option<String>,
    /// The source of `amount`: `platform` if WhatsApp's status update contains it, `rate_card` if the rate of a card
    /// applies, else `none`.
    pub source: PricingSource,
    /// The time of the status update that contains the price.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub priced_at: OffsetDateTime,
}

/// The price of a message, with what decides whether another status update corrects it. The stored price does not
/// depend on the order in which status updates arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPricing {
    /// The price of the latest status update that contains one.
    pub pricing: Pricing,
    /// The status of that update.
    pub status: SendStatus,
    /// The time of that update.
    pub reported_at: OffsetDateTime,
    /// The time of the earliest status update with a price: the rate of this time applies. None: a version stored the
    /// price that counted no costs.
    pub since: Option<OffsetDateTime>,
    /// The number that sent the message.
    pub profile_id: Option<ProfileId>,
    /// The template of the message.
    pub template_id: Option<TemplateId>,
    /// The creation time of the newest rate card that was in force for the recipient's country when the price got its
    /// rate. None: no card was.
    pub newest_card_at: Option<OffsetDateTime>,
    /// What the campaign's budget got back for the message.
    pub returned: Option<ReturnedReservation>,
}

/// A reservation that a campaign's budget got back for a message with a price. A correction of the price takes it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedReservation {
    pub amount: Amount,
    /// The currency of the budget at that time.
    pub currency: String,
}

/// What a status update changed in a stored price. A greater one includes the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriceChange {
    Nothing,
    /// Only the time or status of the latest update.
    Times,
    /// The time whose rate applies: an earlier update arrived late.
    RateTime,
    /// The price.
    Price,
}

/// The stored fields of a price that are not published.
#[derive(Serialize, Deserialize)]
struct Hidden {
    status: SendStatus,
    #[serde(default, with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    reported_at: Option<OffsetDateTime>,
    #[serde(default, with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    since: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile_id: Option<ProfileId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    template_id: Option<TemplateId>,
    #[serde(default, with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    newest_card_at: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    returned: Option<ReturnedReservation>,
}

impl Pricing {
    /// Whether WhatsApp reported the same: everything but what a rate card added.
    fn is_same_report(&self, other: &Self) -> bool {
        let price = |pricing: &Self| {
            (pricing.source == PricingSource::Platform).then_some((pricing.amount, pricing.currency.clone()))
        };
        self.billable == other.billable
            && self.model == other.model
            && self.kind == other.kind
            && self.category == other.category
            && price(self) == price(other)
    }
}

impl StatusPricing {
    /// The price in a status update.
    pub fn new(pricing: Pricing, status: SendStatus) -> Self {
        Self {
            status,
            reported_at: pricing.priced_at,
            since: Some(pricing.priced_at),
            pricing,
            profile_id: None,
            template_id: None,
            newest_card_at: None,
            returned: None,
        }
    }

    /// The time whose rate applies.
    pub fn rate_time(&self) -> OffsetDateTime {
        self.since.unwrap_or(self.pricing.priced_at)
    }

    /// Whether the update of this price is later than the stored one. Within one second, the more advanced status is
    /// the later one.
    fn is_later(&self, stored: &Self) -> bool {
        match self.reported_at.cmp(&stored.reported_at) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => self.status.advance(stored.status).is_none(),
            std::cmp::Ordering::Greater => true,
        }
    }

    /// Applies the price of a status update: a later one replaces the stored price if it differs.
    pub fn apply(stored: &mut Option<Self>, incoming: Option<Self>) -> PriceChange {
        let Some(incoming) = incoming else {
            return PriceChange::Nothing;
        };
        let Some(price) = stored else {
            *stored = Some(incoming);
            return PriceChange::Price;
        };
        let mut change = PriceChange::Nothing;
        if incoming.is_later(price) {
            if (incoming.reported_at, incoming.status) != (price.reported_at, price.status) {
                change = PriceChange::Times;
            }
            if !incoming.pricing.is_same_report(&price.pricing) {
                price.pricing = incoming.pricing;
                change = PriceChange::Price;
            }
            (price.reported_at, price.status) = (incoming.reported_at, incoming.status);
        }
        let since = incoming.since.min(Some(price.rate_time()));
        if since != Some(price.rate_time()) {
            change = change.max(PriceChange::RateTime);
            price.since = since;
        }
        change
    }

    /// The stored JSON: the published fields that are not null, and the hidden ones.
    pub fn to_stored(&self) -> Value {
        let mut stored = serde_json::json!(self.pricing);
        let hidden = Hidden {
            status: self.status,
            reported_at: Some(self.reported_at).filter(|at| *at != self.pricing.priced_at),
            since: Some(self.rate_time()),
            profile_id: self.profile_id,
            template_id: self.template_id,
            newest_card_at: self.newest_card_at,
            returned: self.returned.clone(),
        };
        if let (Some(fields), Value::Object(hidden)) = (stored.as_object_mut(), serde_json::json!(hidden)) {
            fields.retain(|_, value| !value.is_null());
            fields.extend(hidden);
        }
        stored
    }

    pub fn from_stored(stored: &Value) -> Result<Self, serde_json::Error> {
        let pricing = Pricing::deserialize(stored)?;
        let hidden = Hidden::deserialize(stored)?;
        Ok(Self {
            status: hidden.status,
            reported_at: hidden.reported_at.unwrap_or(pricing.priced_at),
            since: hidden.since,
            profile_id: hidden.profile_id,
            template_id: hidden.template_id,
            newest_card_at: hidden.newest_card_at,
            returned: hidden.returned,
            pricing,
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
        StatusPricing::new(pricing, status)
    }

    #[test]
    fn pricing_is_stored_without_nulls_and_read_back() {
        let pricing = pricing_at(SendStatus::Read, 0, "marketing");
        let stored = pricing.to_stored();
        assert_eq!(
            stored,
            json!({ "billable": true, "model": "PMP", "type": "regular", "category": "marketing", "amount": 0.0075,
                "currency": "USD", "source": "platform", "priced_at": "2026-03-01T12:00:00.000Z", "status": "read",
                "since": "2026-03-01T12:00:00.000Z" })
        );
        assert_eq!(StatusPricing::from_stored(&stored).unwrap(), pricing);
        assert_eq!(json!(pricing.pricing)["market"], Value::Null);
        let with_rate = StatusPricing {
            newest_card_at: Some(datetime!(2026-01-01 0:00 UTC)),
            returned: Some(ReturnedReservation {
                amount: Amount::parse("0.0625").unwrap(),
                currency: "USD".into(),
            }),
            ..pricing
        };
        assert_eq!(StatusPricing::from_stored(&with_rate.to_stored()).unwrap(), with_rate);
    }

    #[test]
    fn pricing_is_corrected_only_by_a_later_different_price() {
        use PriceChange::{Nothing, Price, RateTime, Times};
        use SendStatus::{Delivered, Sent};
        let stored = pricing_at(Delivered, 10, "marketing");
        for (incoming, change, category) in [
            (pricing_at(Delivered, 10, "marketing"), Nothing, "marketing"),
            (pricing_at(Sent, 9, "utility"), RateTime, "marketing"),
            (pricing_at(Sent, 10, "utility"), Nothing, "marketing"),
            (pricing_at(Delivered, 10, "utility"), Price, "utility"),
            (pricing_at(SendStatus::Read, 10, "utility"), Price, "utility"),
            (pricing_at(Sent, 11, "utility"), Price, "utility"),
            (pricing_at(Delivered, 11, "marketing"), Times, "marketing"),
        ] {
            let mut price = Some(stored.clone());
            assert_eq!(
                StatusPricing::apply(&mut price, Some(incoming.clone())),
                change,
                "{incoming:?}"
            );
            let price = price.unwrap();
            assert_eq!(price.pricing.category.as_deref(), Some(category));
            assert_eq!(price.rate_time(), stored.reported_at.min(incoming.reported_at));
        }
    }

    #[test]
    fn amount_of_a_card_is_not_a_correction() {
        let mut with_rate = pricing_at(SendStatus::Sent, 0, "marketing");
        with_rate.pricing.source = PricingSource::RateCard;
        with_rate.pricing.market = Some("BR".into());
        let mut reported = with_rate.clone();
        reported.pricing = Pricing {
            market: None,
            amount: None,
            currency: None,
            source: PricingSource::None,
            ..reported.pricing
        };
        reported.reported_at += Duration::SECOND;
        let mut price = Some(with_rate.clone());
        assert_eq!(StatusPricing::apply(&mut price, Some(reported)), PriceChange::Times);
        assert_eq!(price.unwrap().pricing, with_rate.pricing);
    }

    proptest! {
        /// After repeated status updates in any order, the stored price is that of the latest update, and the rate that
        /// of the earliest one.
        #[test]
        fn pricing_does_not_depend_on_the_order_of_updates(
            order in Just(vec![0_usize, 1, 2, 3, 0, 1, 2, 3]).prop_shuffle(),
            words in proptest::collection::vec(prop::sample::select(vec!["marketing", "utility"]), 4),
        ) {
            let all = [
                pricing_at(SendStatus::Sent, 0, words[0]),
                pricing_at(SendStatus::Sent, 1, words[1]),
                pricing_at(SendStatus::Delivered, 1, words[2]),
                pricing_at(SendStatus::Read, 5, words[3]),
            ];
            let mut stored: Option<StatusPricing> = None;
            for position in order {
                StatusPricing::apply(&mut stored, Some(all[position].clone()));
                stored = stored.map(|price| StatusPricing::from_stored(&price.to_stored()).unwrap());
            }
            let stored = stored.unwrap();
            prop_assert!(stored.pricing.is_same_report(&all[3].pricing));
            prop_assert_eq!((stored.reported_at, stored.since), (all[3].reported_at, all[0].since));
        }
    }
}
