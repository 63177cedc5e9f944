//! Links and their errors.

use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::{AccountId, CampaignId, ContactId, FieldErrors, LinkId, StoreError};

/// A short link that counts its clicks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub id: LinkId,
    /// The code in the link's URL.
    pub short_code: String,
    /// The short URL, for use in messages.
    pub short_url: String,
    /// The URL to which the link redirects.
    pub original_url: String,
    /// The campaign of the link, which orders through the link are also credited to.
    pub campaign_id: Option<CampaignId>,
    /// The contact to whom the link was given: its clicks are the contact's.
    pub contact_id: Option<ContactId>,
    /// The number of clicks. A click is counted within about a second.
    pub clicks: i64,
    pub created_at: OffsetDateTime,
}

/// The target of a code, and the link that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget {
    pub account_id: AccountId,
    pub link_id: LinkId,
    /// The URL to which the link redirects.
    pub original_url: String,
}

#[derive(Debug, Error)]
pub enum LinkError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for LinkError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
