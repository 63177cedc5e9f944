//! Links, as stored and published.

use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::{CampaignId, FieldErrors, LinkId, StoreError, timestamp};

/// A link, as published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Its id.
    pub id: LinkId,
    /// What stands in its address.
    pub short_code: String,
    /// Its address.
    pub short_url: String,
    /// Where it leads.
    pub original_url: String,
    /// Whose campaign it belongs to: orders that come by the link count for that, too.
    pub campaign_id: Option<CampaignId>,
    /// How often it was followed.
    pub clicks: i64,
    /// When it was made.
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
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
