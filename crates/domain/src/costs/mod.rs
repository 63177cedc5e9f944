//! Costs: rate cards, the prices of messages and their sums.
//!
//! This context owns the rate cards and the rollup of costs; `analytics` owns its report. WhatsApp's price of a message is a value of
//! `messaging`; `campaigns` owns budgets.

mod alerts;
mod country;
mod estimate;
mod ports;
mod rate_card;
mod rate_file;
mod rates;
mod rollup_delta;
mod service;

pub use alerts::{CostMonth, added_to_months, alert_events, passed};
pub use country::{COUNTRY_PREFIX, country_of, country_of_phone};
pub use estimate::{
    CampaignCost, CostAmount, CostEstimate, CostFacts, CountryRecipients, MarketEstimate, UNKNOWN_MARKET,
    category_word, estimate, markets_without_rate,
};
pub use ports::*;
pub use rate_card::{RateCard, RateCardDraft, RateRow};
pub use rate_file::{parse_rates, rates_csv};
pub use rates::{Rate, RateTable};
pub use rollup_delta::{CostEntry, CostKey, CostRollupDelta, CostSums};
pub use service::{RateCardError, RateCards};
