//! Stored prices, which have the same form in sends and messages.

use recado_domain::messaging::{Pricing, StatusPricing};
use recado_domain::shared::StoreError;
use serde_json::Value;

use crate::errors::corrupt;

/// Parses a stored price and the status that reported it.
pub(crate) fn stored(value: Option<&Value>) -> Result<Option<StatusPricing>, StoreError> {
    value.map(StatusPricing::from_stored).transpose().map_err(corrupt)
}

/// Returns the published form of a stored price.
pub(crate) fn published(value: Option<&Value>) -> Result<Option<Pricing>, StoreError> {
    Ok(stored(value)?.map(|stored| stored.pricing))
}
