//! The services that verify WhatsApp numbers.

use std::sync::Arc;

use recado_domain::whatsapp::verification::{NumberNews, VerificationPorts, Verifications};
use recado_postgres::PgProfiles;

use super::{Shared, Stores};
use crate::system::SystemTimer;

impl Stores {
    /// Verifies numbers, with its own connections to WhatsApp.
    pub fn verifications(&self, shared: &Shared) -> anyhow::Result<Verifications> {
        Ok(Verifications::new(VerificationPorts {
            profiles: Arc::new(PgProfiles::new(self.tenant.clone())),
            store: Arc::new(self.verification_store()),
            gateway: Arc::new(shared.whatsapp()?),
            cipher: shared.cipher.clone(),
            clock: shared.clock.clone(),
            timer: Arc::new(SystemTimer),
        }))
    }

    /// Applies WhatsApp's news of numbers.
    pub(super) fn number_news(&self, shared: &Shared) -> Arc<NumberNews> {
        let profiles = Arc::new(PgProfiles::new(self.tenant.clone()));
        let store = Arc::new(self.verification_store());
        Arc::new(NumberNews::new(profiles, store, shared.clock.clone()))
    }
}
