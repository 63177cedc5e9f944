//! What is recorded of an account's customers, and the reports about it.

use std::sync::Arc;

use recado_domain::analytics::{Analytics, Exports, Insights, Rfm, RfmWork};
use recado_domain::automations::Automations;
use recado_domain::ingestion::Ingestion;
use recado_domain::links::{LinkStore, Links};
use recado_postgres::{OwnerPool, PgAnalytics, PgAutomations, PgExports, PgIngestion, PgInsights, PgLinks, PgRfm};

use super::{Shared, Stores};
use crate::web::target_cache::CachedTargets;

impl Stores {
    /// What is told of customers.
    pub fn ingestion(&self, shared: &Shared) -> Ingestion {
        let store = Arc::new(PgIngestion::new(self.tenant.clone()));
        Ingestion::new(store, shared.clock.clone(), shared.ids.clone())
    }

    /// Short links, whose targets are looked up on the connections of anonymous requests.
    pub(super) fn links(&self, shared: &Shared, anonymous: &OwnerPool) -> Links {
        let store = CachedTargets {
            store: Arc::new(PgLinks::new(self.tenant.clone(), anonymous.clone())),
            cache: shared.targets.clone(),
        };
        Self::links_with_store(shared, Arc::new(store))
    }

    /// Writes their clicks.
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

    /// Automations.
    pub fn automations(&self, shared: &Shared) -> Automations {
        let store = Arc::new(PgAutomations::new(self.tenant.clone()));
        Automations::new(store, shared.clock.clone(), shared.ids.clone())
    }

    /// Reports.
    pub fn analytics(&self, shared: &Shared) -> Analytics {
        Analytics::new(Arc::new(PgAnalytics::new(self.tenant.clone())), shared.clock.clone())
    }
    /// How an account stands, and what became of its messages.
    pub fn insights(&self, shared: &Shared) -> Insights {
        Insights::new(Arc::new(PgInsights::new(self.tenant.clone())), shared.clock.clone())
    }

    /// Exports.
    pub fn exports(&self, shared: &Shared) -> Exports {
        Exports::new(Arc::new(PgExports::new(self.tenant.clone())), shared.clock.clone())
    }

    /// How good a customer somebody is.
    pub fn rfm(&self) -> Rfm {
        let store = PgRfm::new(self.tenant.clone(), self.owner.clone());
        Rfm::new(Arc::new(store))
    }

    /// Calculating that.
    pub fn rfm_work(&self, shared: &Shared) -> RfmWork {
        let store = PgRfm::new(self.tenant.clone(), self.owner.clone());
        let report = Arc::new(shared.reports.clone());
        RfmWork::new(Arc::new(store), report, shared.clock.clone(), shared.ids.clone())
    }
}
