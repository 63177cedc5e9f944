//! The services of the brand context.

use std::sync::Arc;

use recado_domain::brand::Brand;
use recado_gateways::ai::AiApi;
use recado_gateways::brand::PageClient;
use recado_gateways::http::Http;
use recado_postgres::PgBrand;

use super::{Shared, Stores};

impl Shared {
    /// The client of websites, with its own connections.
    fn pages(&self) -> Result<PageClient, String> {
        Ok(PageClient::new(self.egress()?))
    }

    /// The client of the AI service, with its own connections.
    fn ai(&self) -> Result<AiApi, String> {
        let ai = &self.config.ai;
        let (url, model) = (ai.url.as_deref(), ai.model.as_deref());
        Ok(AiApi::new(Http::new()?.counted("ai"), url, ai.key.as_ref(), model))
    }
}

impl Stores {
    pub(super) fn brand(&self, shared: &Shared) -> anyhow::Result<Brand> {
        let pages = shared.pages().map_err(anyhow::Error::msg)?;
        let ai = shared.ai().map_err(anyhow::Error::msg)?;
        let store = Arc::new(PgBrand::new(self.tenant.clone()));
        Ok(Brand::new(store, Arc::new(pages), Arc::new(ai), shared.clock.clone()))
    }
}
