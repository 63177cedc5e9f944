//! The services that verify WhatsApp numbers.

use std::sync::Arc;

use recado_domain::whatsapp::verification::{BusinessUpdates, VerificationPorts, Verifications};
use recado_postgres::PgProfiles;

use super::{Shared, Stores};
use recado_api::system::SystemTimer;

impl Stores {
    pub fn verifications(&self, shared: &Shared) -> Verifications {
        Verifications::new(VerificationPorts {
            profiles: Arc::new(PgProfiles::new(self.tenant.clone())),
            store: Arc::new(self.verification_store().with_report(Arc::new(shared.reports.clone()))),
            gateway: shared.clients.whatsapp.clone(),
            cipher: shared.cipher.clone(),
            clock: shared.clock.clone(),
            timer: Arc::new(SystemTimer),
        })
    }

    /// Applies WhatsApp's updates of numbers.
    pub(super) fn business_updates(&self, shared: &Shared) -> Arc<BusinessUpdates> {
        let profiles = Arc::new(PgProfiles::new(self.tenant.clone()));
        let store = Arc::new(self.verification_store());
        Arc::new(BusinessUpdates::new(
            profiles,
            store.clone(),
            store,
            shared.clock.clone(),
        ))
    }
}
