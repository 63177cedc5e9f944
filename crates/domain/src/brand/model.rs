//! The brand context, as stored and published.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;
use url::Url;

use super::{ExtractError, PageRefusal};
use crate::shared::schema::Timestamp;
use crate::shared::{FieldErrors, StoreError, timestamp};

/// The longest value of a field, in characters.
const FIELD_CHARS: usize = 5000;

/// The fields that a page is read into.
pub const FACTS: [&str; 6] = [
    "company_name",
    "description",
    "products_services",
    "tone_of_voice",
    "target_audience",
    "brand_values",
];

const WEBSITE_URL: &str = "website_url";

/// What an account's business is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BrandContext {
    /// What is known of it.
    #[serde(flatten)]
    pub facts: BrandFacts,
    /// The address of its website, http or https; null when it is not known.
    #[schemars(example = &"https://example.com/")]
    pub website_url: Option<String>,
    /// What the last reading of the website found: its address and title, the size and hash of its text, the AI model
    /// and what it used. Null before the first reading.
    #[schemars(with = "Option<serde_json::Map<String, Value>>", example = serde_json::json!({ "url": "https://example.com/", "title": "Loja da Ana", "text_chars": 5120, "model": "example-model" }))]
    pub raw_scrape_data: Option<Value>,
    /// When the website was last read; null when it never was.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_scraped_at: Option<OffsetDateTime>,
    /// When the brand context was first written.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

/// What a page says of a business.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BrandFacts {
    /// The name of the business.
    #[schemars(example = &"Loja da Ana")]
    pub company_name: Option<String>,
    /// What the business is.
    #[schemars(example = &"A family shop for running shoes.")]
    pub description: Option<String>,
    /// What it offers.
    #[schemars(example = &"Running shoes, socks, gait analysis.")]
    pub products_services: Option<String>,
    /// How it speaks to its customers.
    #[schemars(example = &"Warm and direct, without jargon.")]
    pub tone_of_voice: Option<String>,
    /// Whom it speaks to.
    #[schemars(example = &"Amateur runners of 25 to 45 years.")]
    pub target_audience: Option<String>,
    /// What it stands for.
    #[schemars(example = &"Honest advice, fair prices.")]
    pub brand_values: Option<String>,
}

impl BrandFacts {
    /// By the names of the fields ([`FACTS`]). What somebody else made is cut to what a field holds: no control
    /// characters but line breaks, no blanks around it, not too long; nothing left is no value.
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

/// What a caller wrote: an absent field is kept, `Some(None)` clears.
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
    /// Every field with what was written in it.
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

    /// Checks what was written.
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

/// A reading of a website, to be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// What was found.
    pub facts: BrandFacts,
    /// The address as it was given.
    pub website_url: String,
    /// What was read, and by whom.
    pub raw_scrape_data: Value,
    /// When.
    pub scraped_at: OffsetDateTime,
}

/// Why a brand operation did not happen.
#[derive(Debug, Error)]
pub enum BrandError {
    /// The input is wrong, or leads to no page.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Nobody read the page.
    #[error(transparent)]
    Extractor(#[from] ExtractError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PageRefusal> for BrandError {
    fn from(refusal: PageRefusal) -> Self {
        Self::Invalid(FieldErrors::one("url", refusal.to_string()))
    }
}
