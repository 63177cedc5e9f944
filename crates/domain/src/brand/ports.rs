//! Ports of the brand context.

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use super::{BrandContext, BrandFacts, BrandInput, Scrape};
use crate::egress;
use crate::shared::{AccountId, Event, StoreError};

/// The text of a web page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageText {
    /// The URL after all redirects.
    pub url: String,
    /// The page's title.
    pub title: Option<String>,
    /// The visible text, preceded by the page's title and description. Not empty.
    pub text: String,
}

/// Why a page could not be fetched. The text is for the caller, after the field's name `url`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageRefusal {
    /// The URL may not be called.
    #[error("{0}")]
    Url(#[from] egress::TargetRefusal),
    /// A redirect leads to a URL that may not be called.
    #[error("redirects to an address that {0}")]
    Redirect(egress::TargetRefusal),
    /// The page redirects more often than allowed.
    #[error("redirects too often")]
    TooManyRedirects,
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
    #[error("is neither HTML nor plain text")]
    MediaType,
    /// The page is too large, compressed or decompressed.
    #[error("is larger than 1 MB")]
    TooLarge,
    /// The compression or character encoding is not supported.
    #[error("has an encoding that cannot be read")]
    Encoding,
    #[error("has no text")]
    Empty,
}

/// Fetches web pages.
///
/// An implementation MUST end within 10 seconds, MUST use at most a few megabytes of memory, and MUST check every URL,
/// also of redirects, against the rules of [`egress`].
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait PageFetcher: Send + Sync {
    async fn fetch(&self, url: &str) -> Result<PageText, PageRefusal>;
}

/// The facts that a model extracted from a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// The facts, cut to the maximum length of their fields.
    pub facts: BrandFacts,
    /// The model that extracted them.
    pub model: String,
    /// The usage in the model's own units.
    pub usage: Value,
}

/// Why no facts were extracted. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExtractError {
    #[error("the AI service is not configured")]
    NotConfigured,
    /// The service cannot be reached, rejects the call, or returns an invalid response.
    #[error("the AI service failed: {0}")]
    Failed(String),
}

/// Extracts facts from web pages.
///
/// An implementation MUST treat the page as data, never as instructions. It MUST fill only the six fields, send no
/// data of the account except the page, and end within a bounded time.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait BrandExtractor: Send + Sync {
    async fn extract(&self, page: &PageText) -> Result<Extraction, ExtractError>;
}

/// The brand context of each account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait BrandStore: Send + Sync {
    /// The account's brand context. None before the first write.
    async fn find(&self, account: AccountId) -> Result<Option<BrandContext>, StoreError>;

    /// Writes the given fields and commits the events with them. Creates the brand context if the account has none.
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
