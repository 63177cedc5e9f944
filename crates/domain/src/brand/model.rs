//! The brand context.

use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;
use url::Url;

use crate::egress;
use crate::shared::{FieldErrors, StoreError};

/// The longest value of a field, in characters.
const FIELD_CHARS: usize = 5000;

/// The fields that are filled from a page.
pub const FACTS: [&str; 6] = [
    "company_name",
    "description",
    "products_services",
    "tone_of_voice",
    "target_audience",
    "brand_values",
];

const WEBSITE_URL: &str = "website_url";

/// The description of an account's business.
#[derive(Clone, Debug, PartialEq)]
pub struct BrandContext {
    pub facts: BrandFacts,
    /// The http or https URL of the website. Null if none is set.
    pub website_url: Option<String>,
    /// The source of the last extraction: URL and title of the page, size and hash of its text, the AI model and its
    /// usage. Null before the first extraction.
    pub raw_scrape_data: Option<Value>,
    /// When the website was last read. Null before the first time.
    pub last_scraped_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// The facts about a business.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrandFacts {
    /// The name of the business.
    pub company_name: Option<String>,
    /// A description of the business.
    pub description: Option<String>,
    /// The products and services that it offers.
    pub products_services: Option<String>,
    /// The tone in which it writes to its customers.
    pub tone_of_voice: Option<String>,
    /// The people whom it addresses.
    pub target_audience: Option<String>,
    /// The values that it stands for.
    pub brand_values: Option<String>,
}

impl BrandFacts {
    /// Builds the facts by the names of [`FACTS`]. A value is trimmed, loses control characters except line breaks,
    /// and is cut to the maximum length. An empty value becomes none.
    pub fn new(mut value: impl FnMut(&str) -> Option<String>) -> Self {
        let mut fact = |name| value(name).and_then(|text| cut(&text));
        Self {
            company_name: fact("company_name"),
            description: fact("description"),
            products_services: fact("products_services"),
            tone_of_voice: fact("tone_of_voice"),
            target_audience: fact("target_audience"),
            brand_values: fact("brand_values"),
        }
    }
}

fn cut(text: &str) -> Option<String> {
    let plain: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let cut: String = plain.trim().chars().take(FIELD_CHARS).collect();
    Some(cut.trim_end().to_owned()).filter(|text| !text.is_empty())
}

/// Unchecked input. An absent field is unchanged and `Some(None)` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrandInput {
    pub company_name: Option<Option<String>>,
    pub description: Option<Option<String>>,
    pub products_services: Option<Option<String>>,
    pub tone_of_voice: Option<Option<String>>,
    pub target_audience: Option<Option<String>>,
    pub brand_values: Option<Option<String>>,
    pub website_url: Option<Option<String>>,
}

impl BrandInput {
    /// Every field with its input.
    pub fn fields(&self) -> [(&'static str, &Option<Option<String>>); 7] {
        [
            ("company_name", &self.company_name),
            ("description", &self.description),
            ("products_services", &self.products_services),
            ("tone_of_voice", &self.tone_of_voice),
            ("target_audience", &self.target_audience),
            ("brand_values", &self.brand_values),
            (WEBSITE_URL, &self.website_url),
        ]
    }

    pub(super) fn check(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        for (name, value) in self.fields() {
            let Some(Some(text)) = value else { continue };
            if text.chars().count() > FIELD_CHARS {
                errors.add(name, format!("must have at most {FIELD_CHARS} characters"));
            } else if name == WEBSITE_URL && !is_web_address(text) {
                errors.add(name, "must be an http or https URL");
            }
        }
        errors.into_result()
    }
}

fn is_web_address(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// An extraction from a website, to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    pub facts: BrandFacts,
    /// The URL as the caller gave it.
    pub website_url: String,
    /// The source of the extraction, as published.
    pub raw_scrape_data: Value,
    pub scraped_at: OffsetDateTime,
}

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

#[derive(Debug, Error)]
pub enum BrandError {
    /// The input is invalid, or the URL leads to no page.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// No facts were extracted from the page.
    #[error(transparent)]
    Extractor(#[from] ExtractError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PageRefusal> for BrandError {
    fn from(refusal: PageRefusal) -> Self {
        Self::Invalid(FieldErrors::one("url", refusal.to_string()))
    }
}
