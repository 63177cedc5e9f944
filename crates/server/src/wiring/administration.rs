//! The services of platform administrators.

use std::sync::Arc;

use recado_domain::administration::{Administration, Deletions, Support};
use recado_postgres::{PgAdministration, PgDeletions, PgSubscriptions, PgSupport};

use super::{Shared, Stores, identity};

impl Stores {
    pub(super) fn administration(&self, shared: &Shared) -> anyhow::Result<Administration> {
        let store = Arc::new(PgAdministration::new(self.owner.clone()));
        let subscriptions = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        let invites = identity::invites(shared, self)?;
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        Ok(Administration::new(
            store.clone(),
            store,
            subscriptions,
            clock,
            ids,
            invites,
        ))
    }

    pub fn deletions(&self, shared: &Shared) -> Deletions {
        let store = Arc::new(PgDeletions::new(self.owner.clone()));
        let clients = &shared.clients;
        let (media, gateway) = (clients.media.clone(), clients.payment.clone());
        let report = Arc::new(shared.reports.clone());
        Deletions::new(store, media, gateway, report, shared.clock.clone())
    }

    pub fn support(&self, shared: &Shared) -> Support {
        let store = Arc::new(PgSupport::new(self.owner.clone()));
        Support::new(store, shared.clock.clone())
    }
}
