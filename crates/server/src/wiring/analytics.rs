//! Ingestion, links, automations and reports.

use std::sync::Arc;

use recado_domain::analytics::{Analytics, Costs, Exports, Insights, Rfm, RfmWork};
use recado_domain::automations::Automations;
use recado_domain::costs::RateCards;
use recado_domain::ingestion::Ingestion;
use recado_domain::links::{LinkStore, Links};
use recado_postgres::{
    OwnerPool, PgAnalytics, PgAutomations, PgCosts, PgExports, PgIngestion, PgInsights, PgLinks, PgRateCards, PgRfm,
};

use super::{Shared, Stores};
use recado_api::web::target_cache::CachedTargets;

impl Stores {
    pub fn ingestion(&self, shared: &Shared) -> Ingestion {
        let store = Arc::new(PgIngestion::new(self.tenant.clone()));
        Ingestion::new(store, shared.clock.clone(), shared.ids.clone())
    }

    /// Looks up the targets of short links on the connections of anonymous requests.
    pub(super) fn links(&self, shared: &Shared, anonymous: &OwnerPool) -> Links {
        let store = CachedTargets {
            store: Arc::new(PgLinks::new(self.tenant.clone(), anonymous.clone())),
            cache: shared.targets.clone(),
        };
        Self::links_with_store(shared, Arc::new(store))
    }

    /// Writes the clicks that are counted in memory.
    pub fn click_writer(&self, shared: &Shared) -> Links {
        let store = PgLinks::new(self.tenant.clone(), self.owner.clone());
        Self::links_with_store(shared, Arc::new(store))
    }

    fn links_with_store(shared: &Shared, store: Arc<dyn LinkStore>) -> Links {
        let (clock, ids, secrets) = (shared.clock.clone(), shared.ids.clone(), shared.secrets.clone());
        Links::new(
            store,
            shared.clicks.clone(),
            clock,
            ids,
            secrets,
            &shared.config.public_url,
        )
    }

    pub fn automations(&self, shared: &Shared) -> Automations {
        let store = Arc::new(PgAutomations::new(self.tenant.clone()));
        Automations::new(store, shared.clock.clone(), shared.ids.clone())
    }

    pub fn analytics(&self, shared: &Shared) -> Analytics {
        Analytics::new(Arc::new(PgAnalytics::new(self.tenant.clone())), shared.clock.clone())
    }

    pub fn insights(&self, shared: &Shared) -> Insights {
        Insights::new(Arc::new(PgInsights::new(self.tenant.clone())), shared.clock.clone())
    }

    pub fn costs(&self, shared: &Shared) -> Costs {
        Costs::new(Arc::new(PgCosts::new(self.tenant.clone())), shared.clock.clone())
    }

    pub fn rate_cards(&self, shared: &Shared) -> RateCards {
        let store = Arc::new(PgRateCards::new(self.owner.clone()));
        RateCards::new(store, shared.clock.clone(), shared.ids.clone())
    }

    pub fn exports(&self, shared: &Shared) -> Exports {
        Exports::new(Arc::new(PgExports::new(self.tenant.clone())), shared.clock.clone())
    }

    /// Reads RFM scores and segments.
    pub fn rfm(&self) -> Rfm {
        let store = PgRfm::new(self.tenant.clone(), self.owner.clone());
        Rfm::new(Arc::new(store))
    }

    /// Calculates RFM scores in the background.
    pub fn rfm_work(&self, shared: &Shared) -> RfmWork {
        let store = PgRfm::new(self.tenant.clone(), self.owner.clone());
        let report = Arc::new(shared.reports.clone());
        RfmWork::new(Arc::new(store), report, shared.clock.clone(), shared.ids.clone())
    }
}
