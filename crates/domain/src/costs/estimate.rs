//! The expected cost of a campaign's run, by the rates that apply now.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::RateTable;
use crate::messaging::Category;
use crate::shared::Amount;

/// The market of recipients whose country is unknown.
pub const UNKNOWN_MARKET: &str = "unknown";

/// The recipients of a run in one country.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountryRecipients {
    /// The ISO code. None: the country is unknown.
    pub country: Option<String>,
    pub recipients: i64,
    /// Those to whom a service window is open.
    pub in_window: i64,
}

/// What decides on the expected cost of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostFacts {
    /// Whether there is a rate card.
    pub has_card: bool,
    pub rates: RateTable,
    pub recipients: Vec<CountryRecipients>,
}

/// The expected cost of a run, with the rates that apply now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CostEstimate {
    /// The currency of the estimate as an ISO 4217 code: that of the budget, else the one in which most recipients have a
    /// rate; null without a budget if no recipient has a rate.
    #[schemars(example = &"USD")]
    pub currency: Option<String>,
    /// The cost if every message that is free within an open service window costs nothing.
    #[schemars(example = 100.5)]
    pub low: Amount,
    /// The cost if no message is free.
    #[schemars(example = 115)]
    pub high: Amount,
    /// The recipients and the rate of each market, by the market's name.
    pub by_market: Vec<MarketEstimate>,
    /// The number of recipients without a rate in this currency. They are not part of `low` and `high`.
    #[schemars(example = 0)]
    pub unpriced: i64,
}

/// The recipients of one market.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MarketEstimate {
    /// The market as the rate card names it, else the ISO code of the country; `unknown` if that is unknown.
    #[schemars(example = &"BR")]
    pub market: String,
    /// The number of recipients.
    #[schemars(example = 1840)]
    pub recipients: i64,
    /// The price of one message; null if the market has no rate.
    #[schemars(example = 0.0625)]
    pub rate: Option<Amount>,
}

/// WhatsApp's name of a template's category, as rate cards have it.
pub fn category_word(category: Category) -> String {
    category.as_str().to_lowercase()
}

/// Within an open service window WhatsApp charges nothing for a utility template.
fn is_free_in_window(category: Category) -> bool {
    category == Category::Utility
}

/// The currency in which most recipients have a rate, the first in the alphabet among equals.
fn main_currency(facts: &CostFacts, category: &str, now: OffsetDateTime) -> Option<String> {
    let mut recipients: BTreeMap<&str, i64> = BTreeMap::new();
    for group in &facts.recipients {
        let rate = group
            .country
            .as_deref()
            .and_then(|country| facts.rates.rate(country, category, None, now));
        if let Some(rate) = rate {
            *recipients.entry(&rate.currency).or_default() += group.recipients;
        }
    }
    let most = recipients.iter().rev().max_by_key(|(_, count)| **count);
    most.map(|(currency, _)| (*currency).to_owned())
}

/// The expected cost of a run. None: there is no rate card. `currency`: that of the campaign's budget.
pub fn estimate(
    facts: &CostFacts,
    category: Category,
    currency: Option<&str>,
    now: OffsetDateTime,
) -> Option<CostEstimate> {
    if !facts.has_card {
        return None;
    }
    let word = category_word(category);
    let currency = currency.map(str::to_owned).or_else(|| main_currency(facts, &word, now));
    let mut markets: BTreeMap<(String, Option<Amount>), i64> = BTreeMap::new();
    let (mut low, mut high, mut unpriced) = (Amount::ZERO, Amount::ZERO, 0);
    for group in &facts.recipients {
        let country = group.country.as_deref();
        let market = country.map_or_else(|| UNKNOWN_MARKET.to_owned(), |country| facts.rates.market(country, now));
        let rate = country.and_then(|country| facts.rates.rate(country, &word, Some(currency.as_deref()?), now));
        let (market, rate) = rate.map_or((market, None), |rate| (rate.market.clone(), Some(rate.rate)));
        *markets.entry((market, rate)).or_default() += group.recipients;
        let Some(rate) = rate else {
            unpriced += group.recipients;
            continue;
        };
        let charged = if is_free_in_window(category) {
            group.recipients - group.in_window
        } else {
            group.recipients
        };
        low += rate * Amount::from(charged);
        high += rate * Amount::from(group.recipients);
    }
    let by_market = markets.into_iter().map(|((market, rate), recipients)| MarketEstimate {
        market,
        recipients,
        rate,
    });
    Some(CostEstimate {
        currency,
        low,
        high,
        by_market: by_market.collect(),
        unpriced,
    })
}

/// The markets with recipients that have no rate in a currency, sorted.
pub fn markets_without_rate(facts: &CostFacts, category: Category, currency: &str, now: OffsetDateTime) -> Vec<String> {
    let word = category_word(category);
    let without = facts
        .recipients
        .iter()
        .filter(|group| group.recipients > 0)
        .filter(|group| {
            let country = group.country.as_deref();
            country
                .and_then(|country| facts.rates.rate(country, &word, Some(currency), now))
                .is_none()
        });
    let mut markets: Vec<String> = without
        .map(|group| match &group.country {
            None => UNKNOWN_MARKET.to_owned(),
            Some(country) => facts.rates.market(country, now),
        })
        .collect();
    markets.sort_unstable();
    markets.dedup();
    markets
}

/// The cost of a campaign so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CampaignCost {
    /// The price, in `currency`, of the messages that were delivered or read; null while `currency` is null.
    #[schemars(example = 57.5)]
    pub amount: Option<Amount>,
    /// The currency of `amount` and `reserved` as an ISO 4217 code: that of the budget, else of reservations that a
    /// removed budget left, else the one with the largest amount; null while none is known.
    #[schemars(example = &"USD")]
    pub currency: Option<String>,
    /// The expected price of the messages that were started within a budget and have no price yet; null if there is
    /// neither a budget nor such a message.
    #[schemars(example = Value::Null)]
    pub reserved: Option<Amount>,
    /// The number of delivered messages that are not free and whose price is unknown.
    #[schemars(example = 0)]
    pub unpriced: i64,
}

/// The sums of a campaign in one currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostAmount {
    /// Empty: unknown.
    pub currency: String,
    pub amount: Amount,
    /// What a budget in this currency has reserved.
    pub reserved: Amount,
    pub unpriced: i64,
}

impl CampaignCost {
    /// The cost of a campaign. `budget_currency`: None without a budget.
    pub fn of(budget_currency: Option<&str>, sums: &[CostAmount]) -> Self {
        // A budget that was removed leaves the reservations of the messages that were started within it.
        let reserved_sum = sums.iter().find(|sum| sum.reserved > Amount::ZERO);
        let reserved_currency = reserved_sum.map(|sum| sum.currency.as_str());
        let budget_currency = budget_currency.or(reserved_currency.filter(|currency| !currency.is_empty()));
        let mut amounts: BTreeMap<&str, Amount> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| !sum.currency.is_empty()) {
            *amounts.entry(&sum.currency).or_default() += sum.amount;
        }
        let largest = amounts.iter().rev().max_by_key(|(_, amount)| **amount);
        let currency = budget_currency.or_else(|| largest.map(|(currency, _)| *currency));
        let amount = currency.map(|currency| amounts.get(currency).copied().unwrap_or_default());
        Self {
            amount,
            currency: currency.map(str::to_owned),
            reserved: budget_currency.map(|_| reserved_sum.map_or(Amount::ZERO, |sum| sum.reserved)),
            unpriced: sums.iter().map(|sum| sum.unpriced).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::tests::{JANUARY, rate};
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    fn recipients(country: Option<&str>, recipients: i64, in_window: i64) -> CountryRecipients {
        CountryRecipients {
            country: country.map(str::to_owned),
            recipients,
            in_window,
        }
    }

    fn facts() -> CostFacts {
        CostFacts {
            has_card: true,
            rates: RateTable(vec![
                rate(1, "BR", "USD", "marketing", "0.0625"),
                rate(1, "BR", "USD", "utility", "0.008"),
                rate(1, "Europe", "USD", "utility", "0.02"),
                rate(1, "Europe", "EUR", "marketing", "0.1"),
            ]),
            recipients: vec![
                recipients(Some("BR"), 10, 4),
                recipients(Some("ES"), 1, 0),
                recipients(Some("PT"), 2, 1),
                recipients(Some("FR"), 3, 0),
                recipients(None, 1, 0),
            ],
        }
    }

    #[test]
    fn estimate_is_null_without_a_card_only() {
        let none = CostFacts {
            has_card: false,
            ..facts()
        };
        assert_eq!(estimate(&none, Category::Utility, None, JANUARY), None);
        let no_rates = CostFacts {
            rates: RateTable::default(),
            ..facts()
        };
        let found = estimate(&no_rates, Category::Utility, None, JANUARY).unwrap();
        assert_eq!((found.currency, found.high, found.unpriced), (None, Amount::ZERO, 17));
    }

    #[test]
    fn estimate_is_lower_by_what_is_free_in_a_window() {
        let found = estimate(&facts(), Category::Utility, None, JANUARY).unwrap();
        assert_eq!(found.currency.as_deref(), Some("USD"));
        assert_eq!(found.high, amount("0.14"));
        assert_eq!(found.low, amount("0.088"));
        assert_eq!(found.unpriced, 4);
        let markets: Vec<(&str, i64)> = found
            .by_market
            .iter()
            .map(|market| (market.market.as_str(), market.recipients))
            .collect();
        assert_eq!(markets, [("BR", 10), ("Europe", 3), ("FR", 3), ("unknown", 1)]);
    }

    #[test]
    fn cost_of_a_campaign_has_one_currency() {
        let sum = |currency: &str, text: &str, unpriced| CostAmount {
            currency: currency.into(),
            amount: amount(text),
            reserved: Amount::ZERO,
            unpriced,
        };
        let sums = [sum("USD", "0.1", 0), sum("BRL", "0.5", 1), sum("", "0", 2)];
        let cost = CampaignCost::of(None, &sums);
        assert_eq!(
            (cost.amount, cost.currency.as_deref()),
            (Some(amount("0.5")), Some("BRL"))
        );
        assert_eq!((cost.reserved, cost.unpriced), (None, 3));
        let with_budget = CampaignCost::of(Some("EUR"), &sums);
        assert_eq!(with_budget.amount, Some(Amount::ZERO));
        assert_eq!(with_budget.reserved, Some(Amount::ZERO));
        let reserved = CostAmount {
            reserved: amount("0.2"),
            ..sum("USD", "0", 0)
        };
        let sums = [sums.to_vec(), vec![reserved]].concat();
        for budget in [Some("USD"), None] {
            let cost = CampaignCost::of(budget, &sums);
            assert_eq!((cost.amount, cost.reserved), (Some(amount("0.1")), Some(amount("0.2"))));
            assert_eq!(cost.currency.as_deref(), Some("USD"));
        }
        assert_eq!(CampaignCost::of(None, &[]), CampaignCost::default());
    }

    #[test]
    fn estimate_has_one_currency() {
        let found = estimate(&facts(), Category::Marketing, None, JANUARY).unwrap();
        assert_eq!((found.currency.as_deref(), found.high), (Some("USD"), amount("0.625")));
        assert_eq!((found.low, found.unpriced), (found.high, 7));
        let euro = estimate(&facts(), Category::Marketing, Some("EUR"), JANUARY).unwrap();
        assert_eq!((euro.high, euro.unpriced), (amount("0.3"), 14));
        let missing = markets_without_rate(&facts(), Category::Marketing, "EUR", JANUARY);
        assert_eq!(missing, ["BR", "FR", "unknown"]);
        assert_eq!(
            markets_without_rate(&facts(), Category::Marketing, "USD", JANUARY),
            ["Europe", "FR", "unknown"]
        );
    }
}
