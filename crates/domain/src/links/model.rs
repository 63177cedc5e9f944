//! Links, as stored and published.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, CampaignId, FieldErrors, LinkId, StoreError, timestamp};

/// A short link, whose clicks are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The link's id.
    pub id: LinkId,
    /// What stands in its address.
    #[schemars(example = &"Ab3dE9x_2")]
    pub short_code: String,
    /// Its address, for messages.
    #[schemars(example = "https://api.recado.example/r/Ab3dE9x_2")]
    pub short_url: String,
    /// Where it leads.
    #[schemars(example = "https://loja.example/bolos?de=whatsapp")]
    pub original_url: String,
    /// The campaign that it belongs to: orders that come by the link count for it, too. Null for none.
    pub campaign_id: Option<CampaignId>,
    /// How often it was followed; a click is counted within about a second.
    #[schemars(example = 212)]
    pub clicks: i64,
    /// When the link was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// Where a code leads, and whose link it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget {
    /// The account of the link.
    pub account_id: AccountId,
    /// The link.
    pub link_id: LinkId,
    /// Where it leads.
    pub original_url: String,
}

/// Why an operation on links did not happen.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No such link.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for LinkError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
