//! The use cases of the brand context.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    BrandContext, BrandError, BrandExtractor, BrandInput, BrandStore, Extraction, PageFetcher, PageText, Scrape,
};
use crate::shared::{AuditAction, Clock, Event, Tenant};

/// The longest stored page title, in characters.
const TITLE_CHARS: usize = 500;

/// Reads, changes and extracts the brand context.
pub struct Brand {
    store: Arc<dyn BrandStore>,
    pages: Arc<dyn PageFetcher>,
    extractor: Arc<dyn BrandExtractor>,
    clock: Arc<dyn Clock>,
}

impl Brand {
    pub fn new(
        store: Arc<dyn BrandStore>,
        pages: Arc<dyn PageFetcher>,
        extractor: Arc<dyn BrandExtractor>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            pages,
            extractor,
            clock,
        }
    }

    /// The account's brand context. None before the first write.
    pub async fn get(&self, tenant: &Tenant) -> Result<Option<BrandContext>, BrandError> {
        Ok(self.store.find(tenant.account_id).await?)
    }

    pub async fn update(&self, tenant: &Tenant, input: &BrandInput) -> Result<BrandContext, BrandError> {
        input.check()?;
        let written = input.fields().into_iter().filter(|(_, value)| value.is_some());
        let names: Vec<&str> = written.map(|(name, _)| name).collect();
        let audit = tenant.audit(AuditAction::Update, "brand_context", tenant.account_id);
        let events = [Event::Audit(audit.with_changes(json!({ "fields": names })))];
        Ok(self
            .store
            .update(tenant.account_id, input, self.clock.now(), &events)
            .await?)
    }

    /// Extracts the six facts from a website. If fetching or extraction fails, nothing is stored.
    pub async fn scrape(&self, tenant: &Tenant, url: &str) -> Result<BrandContext, BrandError> {
        let url = url.trim();
        let page = self.pages.fetch(url).await?;
        let extraction = self.extractor.extract(&page).await?;
        let scrape = Scrape {
            raw_scrape_data: scrape_source(&page, &extraction),
            facts: extraction.facts,
            website_url: url.to_owned(),
            scraped_at: self.clock.now(),
        };
        Ok(self.store.store_scrape(tenant.account_id, &scrape).await?)
    }
}

/// The source of an extraction. Of the page it contains only URL, title, length and hash.
fn scrape_source(page: &PageText, extraction: &Extraction) -> Value {
    let title = page.title.as_ref();
    let title: Option<String> = title.map(|title| title.chars().take(TITLE_CHARS).collect());
    json!({
        "url": page.url,
        "title": title,
        "text_chars": page.text.chars().count(),
        "text_sha256": hex::encode(Sha256::digest(page.text.as_bytes())),
        "model": extraction.model,
        "usage": extraction.usage,
    })
}
