//! What the brand context needs from outside.

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use super::{BrandContext, BrandFacts, BrandInput, Scrape};
use crate::egress;
use crate::shared::{AccountId, Event, StoreError};

/// A page, reduced to its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageText {
    /// Where it was found in the end.
    pub url: String,
    /// Its title.
    pub title: Option<String>,
    /// What a reader sees of it, with what it says of itself (title, description) first. Not empty.
    pub text: String,
}

/// Why there is no page. The texts are for whoever named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageRefusal {
    /// The URL may not be called.
    #[error("{0}")]
    Url(#[from] egress::TargetRefusal),
    /// A redirect leads to where we do not go.
    #[error("redirects to an address that {0}")]
    Redirect(egress::TargetRefusal),
    /// There is no end of redirects.
    #[error("redirects too often")]
    TooManyRedirects,
    /// The host has no address.
    #[error("has a host that does not resolve")]
    Resolution,
    /// No connection, or no valid TLS.
    #[error("could not be reached")]
    Connection,
    /// It took too long.
    #[error("did not respond in time")]
    TimedOut,
    /// The response is invalid or truncated.
    #[error("returned a response that cannot be read")]
    Broken,
    /// The site responded with an error status.
    #[error("responded with status {0}")]
    Status(u16),
    /// It is no text.
    #[error("is neither HTML nor plain text")]
    MediaType,
    /// It is too large, as it comes or as it is unpacked.
    #[error("is larger than 1 MB")]
    TooLarge,
    /// The compression or character encoding is not supported.
    #[error("has an encoding that cannot be read")]
    Encoding,
    #[error("has no text")]
    Empty,
}

/// Fetches pages.
///
/// Contract: ends within 10 seconds, whatever the site does; holds no more than a few megabytes meanwhile; every
/// address, of redirects too, is judged by the rules of [`egress`].
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait PageFetcher: Send + Sync {
    /// Fetches one page.
    async fn fetch(&self, url: &str) -> Result<PageText, PageRefusal>;
}

/// What was read in a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// What it says of the business, cut to what the fields hold.
    pub facts: BrandFacts,
    /// By which model.
    pub model: String,
    /// What that took, in the model's own units.
    pub usage: Value,
}

/// Why nobody read a page. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExtractError {
    /// There is nobody to ask.
    #[error("the AI service is not configured")]
    NotConfigured,
    /// It cannot be reached, refuses, or answers what cannot be read.
    #[error("the AI service failed: {0}")]
    Failed(String),
}

/// Reads pages.
///
/// Contract: the page is data, and nothing in it is an instruction; nothing of a page reaches more than the six fields;
/// no data of a tenant but the page is handed out; it ends within a bounded time.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait BrandExtractor: Send + Sync {
    /// Reads one page.
    async fn extract(&self, page: &PageText) -> Result<Extraction, ExtractError>;
}

/// The brand context of each account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait BrandStore: Send + Sync {
    /// None before anything was written.
    async fn find(&self, account: AccountId) -> Result<Option<BrandContext>, StoreError>;

    /// Writes the given fields, with the events, into the account's one brand context, which is made if there is none.
    async fn update(
        &self,
        account: AccountId,
        input: &BrandInput,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<BrandContext, StoreError>;

    /// Stores an extraction. It replaces all six facts; a fact that was not found becomes empty.
    async fn store_scrape(&self, account: AccountId, scrape: &Scrape) -> Result<BrandContext, StoreError>;
}
