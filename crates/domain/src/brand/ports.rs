//! What the brand context needs from outside.

use async_trait::async_trait;
use thiserror::Error;

use crate::egress;

/// A page, reduced to its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
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
    Url(#[from] egress::Refusal),
    /// A redirect leads to where we do not go.
    #[error("redirects to an address that {0}")]
    Redirect(egress::Refusal),
    /// There is no end of redirects.
    #[error("redirects too often")]
    TooManyRedirects,
    /// The host has no address.
    #[error("has a host that does not resolve")]
    Resolution,
    /// There is no connection, or none that is encrypted as it has to be.
    #[error("could not be connected to")]
    Connection,
    /// It took too long.
    #[error("did not answer in time")]
    TimedOut,
    /// The answer is unreadable or cut.
    #[error("gave an answer that cannot be read")]
    Broken,
    /// The site says no.
    #[error("answered with status {0}")]
    Status(u16),
    /// It is no text.
    #[error("is neither HTML nor plain text")]
    MediaType,
    /// It is too large, as it comes or as it is unpacked.
    #[error("is larger than 1 MB")]
    TooLarge,
    /// It is packed in a way, or written in characters, that are not read here.
    #[error("is in an encoding that cannot be read")]
    Encoding,
    /// Nothing stands in it.
    #[error("holds no text")]
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
    async fn fetch(&self, url: &str) -> Result<Page, PageRefusal>;
}
