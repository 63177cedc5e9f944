//! Parses the price in a status update.

use recado_domain::messaging::{Pricing, PricingSource};
use recado_domain::shared::Amount;
use serde_json::Value;
use time::OffsetDateTime;

/// The longest stored value of a price field.
const WORD_CHARS: usize = 64;

/// The price in a status update, or none if it has no valid field.
pub(super) fn pricing(status: &Value, at: OffsetDateTime) -> Option<Pricing> {
    let given = status.get("pricing")?;
    let value = |field: &str| given.get(field).and_then(Value::as_str).and_then(valid_value);
    let (model, kind, category) = (value("pricing_model"), value("type"), value("category"));
    let billable = given.get("billable").and_then(Value::as_bool);
    if billable.is_none() && kind.is_none() && category.is_none() {
        return None;
    }
    // WhatsApp will remove `billable`. The type holds the same information.
    let is_free = kind.as_deref().is_some_and(|kind| kind.starts_with("free_")) || billable == Some(false);
    let price = price(given);
    let source = match price {
        Some(_) => PricingSource::Platform,
        None => PricingSource::None,
    };
    let (amount, currency) = price.unzip();
    Some(Pricing {
        billable: !is_free,
        model,
        kind,
        category,
        market: None,
        amount: if is_free { Some(Amount::ZERO) } else { amount },
        currency,
        source,
        priced_at: at,
    })
}

fn valid_value(text: &str) -> Option<String> {
    let fits = (1..=WORD_CHARS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned())
}

/// A price is valid only together with its currency.
fn price(given: &Value) -> Option<(Amount, String)> {
    let currency = given.get("currency")?.as_str()?;
    let is_code = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
    let amount = given.get("amount").or_else(|| given.get("price"))?;
    let amount: Amount = serde_json::from_value(amount.clone()).ok()?;
    Some((amount.price()?, currency.to_owned())).filter(|_| is_code)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(pricing: &Value) -> Option<Pricing> {
        super::pricing(&json!({ "pricing": pricing }), OffsetDateTime::UNIX_EPOCH)
    }

    #[test]
    fn price_without_currency_is_ignored() {
        let amount = |fields: Value| {
            let mut pricing = json!({ "billable": true, "type": "regular", "category": "marketing" });
            for (name, value) in fields.as_object().unwrap() {
                pricing[name] = value.clone();
            }
            let pricing = read(&pricing).unwrap();
            let amount = pricing.amount.map(|amount| amount.to_string());
            (amount, pricing.currency, pricing.source)
        };
        let expected = |amount: &str| (Some(amount.to_owned()), Some("USD".to_owned()), PricingSource::Platform);
        assert_eq!(
            amount(json!({ "currency": "USD", "price": 0.0075 })),
            expected("0.0075")
        );
        assert_eq!(
            amount(json!({ "currency": "USD", "amount": "0.1234567" })),
            expected("0.123457")
        );
        assert_eq!(
            amount(json!({ "currency": "USD", "amount": 0.000_001 })),
            expected("0.000001")
        );
        for odd in [
            json!({}),
            json!({ "price": 1 }),
            json!({ "currency": "USD" }),
            json!({ "currency": "dollars", "price": 1 }),
            json!({ "currency": "USD", "price": -1 }),
            json!({ "currency": "USD", "price": "much" }),
            json!({ "currency": "USD", "price": 1e20 }),
        ] {
            assert_eq!(amount(odd.clone()), (None, None, PricingSource::None), "{odd}");
        }
    }

    #[test]
    fn free_pricing_type_is_not_billable() {
        for (pricing, billable) in [
            (json!({ "billable": true, "type": "regular" }), true),
            (json!({ "type": "regular" }), true),
            (json!({ "category": "something_new" }), true),
            (json!({ "billable": false, "type": "regular" }), false),
            (json!({ "type": "free_entry_point" }), false),
            (json!({ "billable": true, "type": "free_customer_service" }), false),
        ] {
            let read = read(&pricing).unwrap();
            assert_eq!(read.billable, billable, "{pricing}");
            assert_eq!(read.amount, (!billable).then_some(Amount::ZERO), "{pricing}");
        }
    }

    #[test]
    fn pricing_without_valid_fields_is_none() {
        for odd in [
            json!(null),
            json!("x"),
            json!([1]),
            json!({}),
            json!({ "billable": "yes", "type": "", "category": "a b" }),
            json!({ "pricing_model": "PMP" }),
        ] {
            assert_eq!(read(&odd), None, "{odd}");
        }
        let odd = read(&json!({ "billable": true, "type": "x\u{0}", "category": "x".repeat(65) })).unwrap();
        assert_eq!((odd.kind, odd.category), (None, None));
    }
}
