//! Ports of the brand context.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{BrandContext, BrandInput, ExtractError, Extraction, PageRefusal, PageText, Scrape};
use crate::shared::{AccountId, Event, StoreError};

/// Fetches web pages.
///
/// An implementation MUST end within 10 seconds, MUST use at most a few megabytes of memory, and MUST check every URL,
/// also of redirects, against the rules of [`crate::egress`].
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait PageFetcher: Send + Sync {
    async fn fetch(&self, url: &str) -> Result<PageText, PageRefusal>;
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
