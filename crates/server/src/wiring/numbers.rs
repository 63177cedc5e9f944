//! The verification of WhatsApp numbers, and what depends on it.

use std::sync::Arc;

use recado_domain::callbacks::{HeldMessages, HeldStores};
use recado_domain::campaigns::ReviewingGateway;
use recado_domain::whatsapp::ObservedGateway;
use recado_gateways::whatsapp::ERROR_CODES;
use recado_postgres::{PgHeldMessages, PgProfiles, PgVerifications};

use super::{Shared, Stores};

impl Stores {
    pub fn verification_store(&self) -> PgVerifications {
        PgVerifications::new(self.tenant.clone(), self.owner.clone())
    }

    /// Inbound events that wait for a profile to be verified.
    pub fn held_messages(&self, shared: &Shared) -> HeldMessages {
        let stores = HeldStores {
            holders: Arc::new(self.verification_store()),
            held: Arc::new(PgHeldMessages::new(self.owner.clone())),
            inbox: Arc::new(self.inbox(shared)),
            profiles: Arc::new(PgProfiles::new(self.tenant.clone())),
        };
        HeldMessages::new(stores, shared.cipher.clone(), shared.ids.clone())
    }

    /// The client of WhatsApp that acts on what WhatsApp answers about a number or a user id.
    pub fn whatsapp(&self, shared: &Shared) -> ObservedGateway {
        ObservedGateway::new(
            shared.clients.whatsapp.clone(),
            Arc::new(self.verification_store()),
            Arc::new(PgProfiles::new(self.tenant.clone())),
            Arc::new(shared.reports.clone()),
            shared.clock.clone(),
            ERROR_CODES,
        )
    }

    /// The same for messages outside of runs. It also stores that WhatsApp paused or disabled their template.
    pub fn whatsapp_outside_runs(&self, shared: &Shared) -> ReviewingGateway {
        ReviewingGateway {
            gateway: Arc::new(self.whatsapp(shared)),
            templates: Arc::new(self.templates()),
            runs: Arc::new(self.runs()),
            report: Arc::new(shared.reports.clone()),
            clock: shared.clock.clone(),
        }
    }
}
