//! Costs: rate cards, the prices of messages, their sums, and the report.

mod alerts;
mod estimate;
mod pricing;
mod rate_cards;
mod rates;
mod report;
mod rollups;

pub(crate) use alerts::check_alerts;
pub(crate) use estimate::{CountryRow, country_recipients};
pub(crate) use pricing::{Priced, set_rates};
pub use rate_cards::PgRateCards;
pub(crate) use rates::{RatePeriod, has_card, rates};
pub use report::PgCosts;
pub(crate) use rollups::count_costs;
