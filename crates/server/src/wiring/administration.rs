//! What platform administrators use.

use std::sync::Arc;

use recado_domain::administration::{Administration, Deletions, Support};
use recado_postgres::{PgAdministration, PgDeletions, PgSubscriptions, PgSupport};

use super::{Shared, Stores, identity};

/// What platform administrators do.
pub struct AdminServices {
    /// Accounts from above.
    pub accounts: Administration,
    /// Accounts on their way out.
    pub deletions: Deletions,
    /// Administrators inside an account.
    pub support: Support,
}

impl AdminServices {
    /// With the connections of these stores.
    pub fn new(shared: &Shared, stores: &Stores) -> anyhow::Result<Self> {
        Ok(Self {
            accounts: stores.administration(shared),
            deletions: stores.deletions(shared)?,
            support: stores.support(shared),
        })
    }
}

impl Stores {
    fn administration(&self, shared: &Shared) -> Administration {
        let store = Arc::new(PgAdministration::new(self.owner.clone()));
        let subscriptions = Arc::new(PgSubscriptions::new(self.tenant.clone()));
        let invites = identity::invites(shared, self);
        Administration::new(store, subscriptions, shared.clock.clone(), shared.ids.clone(), invites)
    }

    /// Accounts on their way out.
    pub fn deletions(&self, shared: &Shared) -> anyhow::Result<Deletions> {
        let store = Arc::new(PgDeletions::new(self.owner.clone()));
        let media = Arc::new(shared.media_store()?);
        let gateway = Arc::new(shared.payment()?);
        let report = Arc::new(shared.reports.clone());
        Ok(Deletions::new(store, media, gateway, report, shared.clock.clone()))
    }

    /// Administrators inside an account.
    pub fn support(&self, shared: &Shared) -> Support {
        let store = Arc::new(PgSupport::new(self.owner.clone()));
        Support::new(store, shared.clock.clone())
    }
}
