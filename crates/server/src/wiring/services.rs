//! The use cases of an HTTP thread: each is application data of its own, so that a handler names what it uses.

use std::sync::Arc;

use actix_web::web::{Data, ServiceConfig};
use recado_domain::administration::PlatformAudit;
use recado_domain::contacts::{Contacts, Tags};
use recado_domain::conversations::Conversations;
use recado_domain::folders::Folders;
use recado_domain::idempotency::Idempotency;
use recado_domain::notifications::NotificationFeed;
use recado_domain::segments::Segments;
use recado_domain::team::{Invitations, Members};
use recado_domain::templates::Templates;
use recado_domain::whatsapp::Profiles;
use recado_gateways::payment::AsaasEventReader;
use recado_postgres::{
    OwnerPool, PgFolders, PgInvites, PgMembers, PgNotificationFeed, PgPlatformAudit, PgProfiles, PgSegments, PgTags,
};

use super::{Shared, Stores, identity};
use recado_api::origin::{Origin, OwnOrigins};
use recado_api::payment_event_buffer::PaymentEventReceiver;
use recado_api::streams::StreamChecks;
use recado_api::web::access::AccessChecks;
use recado_api::web::callback_secrets::{PaymentCallbackToken, WhatsappCallbackSecrets};
use recado_api::web::cookies::AccountCookies;
use recado_api::web::idempotency::StoredResponses;

/// The minimum number of tenant connections of an HTTP thread.
const MIN_TENANT_CONNECTIONS: usize = 2;

/// Registers a value as application data.
type Registration = Box<dyn FnOnce(&mut ServiceConfig)>;

/// The application data of one HTTP thread.
#[derive(Default)]
pub struct Services(Vec<Registration>);

impl Services {
    /// Creates the services of one of `threads` HTTP threads. Opens no connection yet.
    pub fn new(shared: &Shared, threads: usize) -> anyhow::Result<Self> {
        let connections = shared.config.database_pool_size / threads.max(1);
        let stores = shared.request_stores(connections.max(MIN_TENANT_CONNECTIONS))?;
        let anonymous = shared.anonymous()?;
        let mut services = Self::default();
        services.add_process(shared);
        services.add_identity(shared, &stores)?;
        services.add_contacts(shared, &stores)?;
        services.add_messaging(shared, &stores);
        services.add_reports(shared, &stores, &anonymous);
        services
            .add(stores.billing(shared))
            .add(PaymentCallbackToken::new(
                shared.config.payment_gateway_webhook_token.clone(),
            ))
            .add(PaymentEventReceiver {
                reader: Arc::new(AsaasEventReader),
                events: stores.gateway_events(shared),
                buffer: shared.payment_event_buffer.clone(),
                clock: shared.clock.clone(),
                signals: shared.signals.clone(),
            })
            .add(stores.brand(shared))
            .add(stores.settings(shared))
            .add(stores.retention(shared))
            .add(stores.archives(shared))
            .add(stores.contact_exports(shared))
            .add(stores.erasures(shared))
            .add(stores.inbound(shared, &anonymous))
            .add(stores.webhooks(shared))
            .add(stores.administration(shared)?)
            .add(stores.deletions(shared))
            .add(stores.support(shared))
            .add(stores.rate_cards(shared))
            .add(PlatformAudit::new(Arc::new(PgPlatformAudit::new(stores.owner.clone()))));
        Ok(services)
    }

    /// Registers all services.
    pub fn register(self, config: &mut ServiceConfig) {
        for registration in self.0 {
            registration(config);
        }
    }

    fn add<T: 'static>(&mut self, service: T) -> &mut Self {
        self.share(Arc::new(service))
    }

    fn share<T: ?Sized + 'static>(&mut self, service: Arc<T>) -> &mut Self {
        self.0.push(Box::new(|config| {
            config.app_data(Data::from(service));
        }));
        self
    }

    /// The state that all threads share.
    fn add_process(&mut self, shared: &Shared) {
        self.share(shared.ids.clone())
            .add(AccountCookies::new(shared.config.cookie_secure))
            .add(WhatsappCallbackSecrets {
                verify_token: shared.config.whatsapp_verify_token.clone(),
                app_secrets: shared.config.whatsapp_app_secrets.clone(),
            })
            .add(shared.signals.clone())
            .add(shared.auth_cache.clone())
            .add(shared.sessions.clone())
            .add(shared.shares.clone())
            .add(shared.callback_memory.clone())
            .add(shared.readiness.clone())
            .add(shared.run_submitter.clone())
            .add(shared.streams.clone());
    }

    fn add_identity(&mut self, shared: &Shared, stores: &Stores) -> anyhow::Result<()> {
        let accounts = identity::accounts(shared, stores);
        let api_keys = identity::api_keys(shared, stores, &shared.unseen_keys()?);
        let authenticator = identity::authenticator(shared, stores, accounts.clone(), api_keys.clone())?;
        let authenticator = Arc::new(authenticator);
        let rate_limiter = shared.rate_limiter()?;
        let responses = StoredResponses {
            idempotency: Idempotency::new(Arc::new(stores.idempotency()), shared.ids.clone()),
            cipher: shared.cipher.clone(),
            secrets: shared.secrets.clone(),
            app_secrets: shared.config.app_secrets.clone(),
        };
        self.add(AccessChecks {
            authenticator: authenticator.clone(),
            origins: OwnOrigins::new(Origin::of(&shared.config.public_url), &shared.config.cors_origins),
            rate_limiter: rate_limiter.clone(),
            requests_per_minute: shared.config.limits.requests_per_minute,
            responses: Arc::new(responses),
            row_locks: Arc::new(shared.row_locks()?),
            signals: shared.signals.clone(),
        })
        .share(authenticator)
        .share(rate_limiter)
        .share(accounts)
        .share(api_keys)
        .add(shared.audit()?)
        .add(Members::new(Arc::new(PgMembers::new(stores.owner.clone()))))
        .add(identity::invites(shared, stores)?)
        .add(Invitations::new(Arc::new(PgInvites::new(stores.owner.clone()))));
        Ok(())
    }

    fn add_contacts(&mut self, shared: &Shared, stores: &Stores) -> anyhow::Result<()> {
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        let contacts = stores.contacts(shared).with_search_index(stores.owner.clone());
        let segments = PgSegments::new(stores.tenant.clone());
        self.add(Contacts::new(Arc::new(contacts), clock.clone(), ids.clone()))
            .add(Tags::new(Arc::new(PgTags::new(stores.tenant.clone())), ids.clone()))
            .add(Segments::new(Arc::new(segments), clock, ids.clone()))
            .add(Folders::new(Arc::new(PgFolders::new(stores.tenant.clone())), ids))
            .add(shared.notifications(&stores.tenant)?)
            .share::<dyn NotificationFeed>(Arc::new(PgNotificationFeed::new(stores.owner.clone())))
            .add(StreamChecks::default());
        Ok(())
    }

    /// What sends or receives WhatsApp messages.
    fn add_messaging(&mut self, shared: &Shared, stores: &Stores) {
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        let profiles = Arc::new(PgProfiles::new(stores.tenant.clone()));
        let media = shared.media();
        self.add(Templates::new(
            Arc::new(stores.templates()),
            profiles.clone(),
            Arc::new(stores.whatsapp(shared)),
            media.clone(),
            shared.cipher.clone(),
            clock.clone(),
            ids.clone(),
        ))
        .add(media)
        .add(stores.message_media(shared))
        .add(stores.verifications(shared))
        .add(Profiles::new(profiles, shared.cipher.clone(), clock, ids.clone()))
        .add(stores.callbacks(shared))
        .add(Conversations {
            store: Arc::new(stores.conversations()),
            messages: Arc::new(stores.direct_message_store()),
            gateway: Arc::new(stores.whatsapp_outside_runs(shared)),
            files: stores.message_files(shared),
            content_files: stores.content_files(shared),
            cipher: shared.cipher.clone(),
            report: Arc::new(shared.reports.clone()),
            ids,
        })
        .add(stores.direct_messages(shared))
        .add(stores.campaigns(shared))
        .add(stores.test_sends(shared));
    }

    fn add_reports(&mut self, shared: &Shared, stores: &Stores, anonymous: &OwnerPool) {
        self.add(stores.ingestion(shared))
            .add(stores.links(shared, anonymous))
            .add(stores.automations(shared))
            .add(stores.analytics(shared))
            .add(stores.insights(shared))
            .add(stores.costs(shared))
            .add(stores.exports(shared))
            .add(stores.rfm());
    }
}
