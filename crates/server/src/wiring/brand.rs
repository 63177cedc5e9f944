//! The services of the brand context.

use std::sync::Arc;

use recado_domain::brand::Brand;
use recado_postgres::PgBrand;

use super::{Shared, Stores};

impl Stores {
    pub(super) fn brand(&self, shared: &Shared) -> Brand {
        let store = Arc::new(PgBrand::new(self.tenant.clone()));
        let (pages, ai) = (shared.clients.pages.clone(), shared.clients.ai.clone());
        Brand::new(store, pages, ai, shared.clock.clone())
    }
}
