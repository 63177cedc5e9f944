//! The services of webhooks.

use std::sync::Arc;

use anyhow::Context as _;
use recado_domain::contacts::Contacts;
use recado_domain::shared::Shutdown;
use recado_domain::webhooks::{Deliverer, DelivererReport, InboundWebhooks, Sweeper, Webhooks, WorkSignal};
use recado_gateways::webhooks::WebhookClient;
use recado_postgres::{OwnerPool, PgDeliveryQueue, PgInbound, PgWebhooks};

use super::{Shared, Stores};
use recado_api::system::{SystemJitter, SystemTimer};

/// Connections of the deliverer: one to claim, one to record results, one to release claims.
const DELIVERY_CONNECTIONS: usize = 3;

impl Stores {
    pub(super) fn webhooks(&self, shared: &Shared) -> Webhooks {
        let store = Arc::new(PgWebhooks::new(self.tenant.clone()));
        Webhooks {
            store: store.clone(),
            logs: store,
            clock: shared.clock.clone(),
            ids: shared.ids.clone(),
            secrets: shared.secrets.clone(),
            cipher: shared.cipher.clone(),
            allow: shared.config.egress_allow.clone(),
            plain_http: !shared.config.public_url.to_ascii_lowercase().starts_with("https://"),
        }
    }

    /// Looks up inbound endpoints on the connections of anonymous requests.
    pub(super) fn inbound(&self, shared: &Shared, anonymous: &OwnerPool) -> InboundWebhooks {
        let contacts = Arc::new(self.contacts(shared));
        InboundWebhooks {
            store: Arc::new(PgInbound::new(self.tenant.clone(), anonymous.clone())),
            ingestion: self.ingestion(shared),
            contacts: Contacts::new(contacts, shared.clock.clone(), shared.ids.clone()),
            cipher: shared.cipher.clone(),
            clock: shared.clock.clone(),
            ids: shared.ids.clone(),
        }
    }

    /// Purges old abandoned deliveries.
    pub fn webhook_sweeper(&self) -> Sweeper {
        Sweeper::new(Arc::new(PgDeliveryQueue::new(self.owner.clone())))
    }
}

impl Shared {
    /// The deliverer, with its own connections to the database.
    pub fn deliverer(
        &self,
        shutdown: Arc<dyn Shutdown>,
        signal: Arc<dyn WorkSignal>,
        report: Arc<dyn DelivererReport>,
    ) -> anyhow::Result<Deliverer> {
        let pool = OwnerPool::new(&self.pool("deliveries", DELIVERY_CONNECTIONS))
            .context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(Deliverer {
            queue: Arc::new(PgDeliveryQueue::new(pool)),
            gateway: Arc::new(WebhookClient::new(self.clients.egress.clone())),
            cipher: self.cipher.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            jitter: Arc::new(SystemJitter),
            timer: Arc::new(SystemTimer),
            shutdown,
            signal,
            report,
            schedule: self.config.webhook_retry_schedule.clone(),
        })
    }
}
