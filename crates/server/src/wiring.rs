//! Which adapter serves which port. One set of services a worker thread, with connections of its own.
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use recado_domain::accounts::{Accounts, SessionVerifier};
use recado_domain::analytics::{Analytics, Exports, Insights, Rfm};
use recado_domain::api_keys::ApiKeys;
use recado_domain::audit::AuditLogs;
use recado_domain::automations::Automations;
use recado_domain::billing::{Billing, GatewayEvents, SubscriptionReconciler};
use recado_domain::brand::Brand;
use recado_domain::campaigns::{Campaigns, TestSends};
use recado_domain::contacts::{Contacts, Tags};
use recado_domain::conversations::Conversations;
use recado_domain::folders::Folders;
use recado_domain::idempotency::Idempotency;
use recado_domain::ingestion::Ingestion;
use recado_domain::limits::{InProcessRateLimiter, RateLimiter};
use recado_domain::links::{Links, PendingClicks};
use recado_domain::mail::{MailSender, Mailer};
use recado_domain::media::{Media, MediaAddress};
use recado_domain::notifications::Notifications;
use recado_domain::segments::Segments;
use recado_domain::shared::{Cipher, Clock, Ids, Secrets};
use recado_domain::team::{Invitations, Invites, Members};
use recado_domain::templates::Templates;
use recado_domain::webhooks::{InboundWebhooks, Webhooks};
use recado_domain::whatsapp::{CallbackStores, Callbacks, MessageFiles, Profiles};
use recado_gateways::http::Http;
use recado_gateways::media::ObjectMedia;
use recado_gateways::payment::PaymentApi;
use recado_gateways::whatsapp::CloudApi;
use recado_postgres::{
    OwnerPool, PgBillingWork, PgCallbacks, PgCampaigns, PgContacts, PgConversations, PgFileIds, PgFolders,
    PgGatewayEvents, PgIdempotency, PgInbox, PgInvites, PgMailQueue, PgMembers, PgNotificationFeed, PgProfiles, PgRuns,
    PgSegments, PgSendSlots, PgStatusUpdates, PgSubscriptions, PgTags, PgTemplates, PgTestSends, PoolConfig,
    PoolRegistry, TenantPool,
};
use recado_redis::RedisRateLimiter;
use secrecy::ExposeSecret as _;
use tokio::sync::{Notify, Semaphore};

mod administration;
mod analytics;
mod brand;
mod identity;
mod pools;
mod process_stats;
mod startup;
mod webhooks;

use crate::config::Config;
use crate::payment_event_buffer::PaymentEventBuffer;
use crate::readiness::Readiness;
use crate::streams::Streams;
use crate::system::{AppCipher, SystemClock, SystemIds, SystemSecrets};
use crate::telemetry::Reports;
use crate::web::auth::Authenticator;
use crate::web::auth_cache::AuthCache;
use crate::web::callback::CallbackMemory;
use crate::web::key_cache::KeyCache;
use crate::web::origin::{Origin, OwnOrigins};
use crate::web::shares::Shares;
use crate::web::target_cache::TargetCache;
use crate::workers::{Relays, RunSubmitter};
use administration::AdminServices;
use pools::readiness;

/// The minimum number of tenant connections of an HTTP thread.
const MIN_TENANT_CONNECTIONS: usize = 2;

/// The timeout of a call to WhatsApp. It is well below the lease of a run, so that a run does not lose its lease to one
/// hanging call.
const WHATSAPP_TIMEOUT: Duration = Duration::from_secs(15);

/// What all threads of the process have in common.
#[derive(Clone)]
pub struct Shared {
    /// What the server was told.
    pub config: Arc<Config>,
    /// The machine's clock.
    pub clock: Arc<dyn Clock>,
    /// UUIDs v7.
    pub ids: Arc<dyn Ids>,
    /// Random secrets.
    pub secrets: Arc<dyn Secrets>,
    /// Encryption at rest.
    pub cipher: Arc<dyn Cipher>,
    /// Where mail goes; none: nowhere.
    pub mailer: Option<Arc<dyn Mailer>>,
    /// Proved tokens and memberships.
    pub auth_cache: AuthCache,
    /// Proved API keys.
    keys: KeyCache,
    /// Where links lead.
    targets: TargetCache,
    /// Clicks on them that are not written yet.
    pub clicks: Arc<PendingClicks>,
    /// What one account or person holds of what all share.
    pub shares: Shares,
    /// What bodies of callbacks may take.
    pub callback_memory: CallbackMemory,
    /// Whether the database is ready.
    pub readiness: Readiness,
    /// Proves tokens.
    pub verifier: Arc<dyn SessionVerifier>,
    /// The counter, where it is in this process; one connection a thread otherwise.
    in_process: Arc<InProcessRateLimiter>,
    /// Where runs are carried out.
    pub run_submitter: RunSubmitter,
    /// Streams of notifications.
    pub streams: Streams,
    /// Wakes whoever carries mail out.
    pub mailed: Arc<Notify>,
    /// Wakes whoever calculates scores of customers.
    pub customers: Arc<Notify>,
    /// Woken after a change.
    pub relays: Relays,
    /// The payment gateway's events that the database could not take yet.
    pub payment_event_buffer: PaymentEventBuffer,
    /// What is reported instead of failing.
    pub reports: Reports,
    /// Every pool of the process.
    pool_registry: PoolRegistry,
}

impl Shared {
    /// Checks what can be checked without a connection.
    pub fn new(config: Config, run_submitter: RunSubmitter, streams: Streams) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let config = Arc::new(config);
        let pool_registry = PoolRegistry::default();
        Ok(Self {
            secrets: Arc::new(SystemSecrets),
            cipher: Arc::new(AppCipher::new(&config.app_secret)?),
            mailer: startup::mailer(&config)?,
            verifier: startup::verifier(&config, clock.clone())?,
            in_process: Arc::new(InProcessRateLimiter::new(clock.clone())),
            ids: Arc::new(SystemIds),
            auth_cache: AuthCache::default(),
            keys: KeyCache::default(),
            targets: TargetCache::default(),
            clicks: Arc::new(PendingClicks::new(SystemIds.next())),
            shares: Shares::default(),
            callback_memory: CallbackMemory::new(config.limits.callback_memory),
            readiness: readiness(&config, &pool_registry)?,
            mailed: Arc::default(),
            customers: Arc::default(),
            relays: Relays::default(),
            payment_event_buffer: PaymentEventBuffer::default(),
            reports: Reports::default(),
            pool_registry,
            config,
            clock,
            run_submitter,
            streams,
        })
    }

    /// The messaging platform, with connections of its own.
    pub fn whatsapp(&self) -> anyhow::Result<CloudApi> {
        let http = Http::new().map_err(anyhow::Error::msg)?;
        CloudApi::new(http.counted("whatsapp"), self.config.whatsapp_api_url.as_deref())
            .map(|api| api.timeout(WHATSAPP_TIMEOUT).app(self.config.whatsapp_app_id.clone()))
            .map_err(|error| anyhow::anyhow!("configuration: WHATSAPP_API_URL: {error}"))
    }

    /// The payment gateway, with connections of its own.
    pub fn payment(&self) -> anyhow::Result<PaymentApi> {
        let http = Http::new().map_err(anyhow::Error::msg)?;
        let config = &self.config;
        PaymentApi::new(
            http.counted("payment"),
            config.payment_gateway_url.as_deref(),
            config.payment_gateway_api_key.as_ref(),
        )
        .map_err(|error| anyhow::anyhow!("configuration: PAYMENT_GATEWAY_URL, PAYMENT_GATEWAY_API_KEY: {error}"))
    }

    /// Where files lie, with connections of its own.
    fn media_store(&self) -> anyhow::Result<ObjectMedia> {
        ObjectMedia::open(self.config.media_store_url.as_deref(), std::env::vars())
            .map_err(|error| anyhow::anyhow!("configuration: MEDIA_STORE_URL {error}"))
    }

    /// The files of templates.
    pub fn media(&self) -> anyhow::Result<Media> {
        let store = self.media_store()?;
        let address = MediaAddress::new(&self.config.media_public_url);
        Ok(Media::new(Arc::new(store), address, self.ids.clone()))
    }

    fn rate_limiter(&self) -> anyhow::Result<Arc<dyn RateLimiter>> {
        match &self.config.redis_url {
            None => Ok(self.in_process.clone()),
            Some(url) => {
                let rate_limiter = RedisRateLimiter::new(url.expose_secret());
                Ok(Arc::new(rate_limiter.map_err(|error| {
                    anyhow::anyhow!("configuration: REDIS_URL: {error}")
                })?))
            }
        }
    }
}

/// The two kinds of connections.
#[derive(Clone)]
pub struct Stores {
    /// Bound to one account a transaction.
    pub tenant: TenantPool,
    /// The owner's: for finding a tenant, and for what no tenant's connection may do.
    pub owner: OwnerPool,
}

impl Stores {
    fn new(tenant: &PoolConfig, owner: &PoolConfig) -> anyhow::Result<Self> {
        let tenant = TenantPool::new(tenant).context("DATABASE_URL is not a valid PostgreSQL URL")?;
        let owner = OwnerPool::new(owner).context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(Self { tenant, owner })
    }

    /// Processing of callbacks.
    pub fn callbacks(&self, shared: &Shared) -> Callbacks {
        let stores = CallbackStores {
            callbacks: Arc::new(PgCallbacks::new(self.owner.clone())),
            status_updates: Arc::new(PgStatusUpdates::new(self.tenant.clone())),
            inbox: Arc::new(PgInbox::new(self.tenant.clone())),
            templates: Arc::new(self.templates()),
            runs: Arc::new(self.runs()),
        };
        let report = Arc::new(shared.reports.clone());
        Callbacks::new(stores, report, shared.clock.clone(), shared.ids.clone())
    }

    /// Plans and subscriptions.
    pub fn billing(&self, shared: &Shared) -> anyhow::Result<Billing> {
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone()));
        let gateway = Arc::new(shared.payment()?);
        Ok(Billing::new(store, gateway, shared.clock.clone(), shared.ids.clone()))
    }

    /// The payment gateway's events.
    pub fn gateway_events(&self, shared: &Shared) -> GatewayEvents {
        let events = Arc::new(PgGatewayEvents::new(self.owner.clone()));
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone()));
        GatewayEvents::new(events, store, shared.clock.clone(), shared.ids.clone())
    }

    /// What billing does by itself.
    pub fn subscription_reconciler(&self, shared: &Shared) -> anyhow::Result<SubscriptionReconciler> {
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone()));
        let work = Arc::new(PgBillingWork::new(self.owner.clone()));
        let gateway = Arc::new(shared.payment()?);
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        Ok(SubscriptionReconciler::new(store, work, gateway, clock, ids))
    }

    /// Idempotency keys.
    pub fn idempotency(&self) -> PgIdempotency {
        PgIdempotency::new(self.owner.clone())
    }

    /// The files of messages.
    pub fn message_files(&self, shared: &Shared) -> anyhow::Result<MessageFiles> {
        let ids = Arc::new(PgFileIds::new(self.tenant.clone()));
        Ok(MessageFiles::new(shared.media()?, ids))
    }

    /// Conversations.
    pub fn conversations(&self) -> PgConversations {
        PgConversations::new(self.tenant.clone(), self.owner.clone())
    }

    /// Mail on its way out; none where there is no way out.
    pub fn mail_sender(&self, shared: &Shared) -> Option<MailSender> {
        let mailer = shared.mailer.clone()?;
        let queue = Arc::new(PgMailQueue::new(self.owner.clone()));
        Some(MailSender::new(queue, mailer, shared.cipher.clone()))
    }

    /// Campaigns.
    pub fn campaigns(&self, shared: &Shared) -> Campaigns {
        let store = Arc::new(PgCampaigns::new(self.tenant.clone()));
        Campaigns::new(store, Arc::new(self.runs()), shared.clock.clone(), shared.ids.clone())
    }

    /// Tests of campaigns.
    pub fn test_sends(&self, shared: &Shared) -> anyhow::Result<TestSends> {
        Ok(TestSends::new(
            Arc::new(PgTestSends::new(self.tenant.clone())),
            Arc::new(shared.whatsapp()?),
            self.message_files(shared)?,
            shared.cipher.clone(),
            Arc::new(shared.reports.clone()),
            shared.ids.clone(),
        ))
    }

    /// Templates.
    pub fn templates(&self) -> PgTemplates {
        PgTemplates::new(self.tenant.clone())
    }

    /// Runs.
    pub fn runs(&self) -> PgRuns {
        PgRuns::new(self.tenant.clone(), self.owner.clone())
    }

    /// The send slots of numbers.
    pub fn send_slots(&self) -> PgSendSlots {
        PgSendSlots::new(self.owner.clone())
    }
}

/// What the handlers of one thread use.
pub struct Services {
    /// Who asks.
    pub authenticator: Authenticator,
    /// Whose pages may act with a cookie.
    pub origins: OwnOrigins,
    /// How often.
    pub rate_limiter: Arc<dyn RateLimiter>,
    /// Requests that are sent again.
    pub idempotency: Idempotency,
    /// Accounts.
    pub accounts: Arc<Accounts>,
    /// API keys.
    pub api_keys: Arc<ApiKeys>,
    /// The audit log.
    pub audit: AuditLogs,
    /// Contacts.
    pub contacts: Contacts,
    /// Tags.
    pub tags: Tags,
    /// Segments.
    pub segments: Segments,
    /// Folders.
    pub folders: Folders,
    /// Templates.
    pub templates: Templates,
    /// Their files.
    pub media: Media,
    /// Connected numbers.
    pub profiles: Profiles,
    /// The platform's callbacks.
    pub callbacks: Callbacks,
    /// Plans and subscriptions.
    pub billing: Billing,
    /// The payment gateway's events.
    pub gateway_events: GatewayEvents,
    /// The brand context.
    pub brand: Brand,
    /// Campaigns.
    pub campaigns: Campaigns,
    /// Tests of campaigns.
    pub test_sends: TestSends,
    /// What is told of customers.
    pub ingestion: Ingestion,
    /// Short links.
    pub links: Links,
    /// Automations.
    pub automations: Automations,
    /// Reports.
    pub analytics: Analytics,
    /// How an account stands.
    pub insights: Insights,
    /// Exports.
    pub exports: Exports,
    /// Scores of customers.
    pub rfm: Rfm,
    /// Conversations.
    pub conversations: Conversations,
    /// Notifications.
    pub notifications: Notifications,
    /// Where streams begin.
    pub feed: PgNotificationFeed,
    /// Whose turn it is, of the thread's streams, to ask whether its caller may go on.
    pub stream_checks: Semaphore,
    /// Who is in an account.
    pub members: Members,
    /// Who is invited.
    pub invites: Invites,
    /// Who joins.
    pub invitations: Invitations,
    /// Calls to inbound webhook endpoints.
    pub inbound: InboundWebhooks,
    pub webhooks: Webhooks,
    /// What platform administrators do.
    pub admin: AdminServices,
    /// What all threads have in common.
    pub shared: Shared,
}

impl Services {
    /// The services of one of `threads` worker threads. Connects to nothing yet.
    pub fn new(shared: &Shared, threads: usize) -> anyhow::Result<Self> {
        let connections = shared.config.database_pool_size / threads.max(1);
        let stores = shared.request_stores(connections.max(MIN_TENANT_CONNECTIONS))?;
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        let accounts = identity::accounts(shared, &stores);
        let anonymous = shared.anonymous()?;
        let api_keys = identity::api_keys(shared, &stores, &shared.unseen_keys()?);
        let profiles = Arc::new(PgProfiles::new(stores.tenant.clone()));
        let contacts = Arc::new(PgContacts::new(stores.tenant.clone()));
        let templates = Arc::new(stores.templates());
        let media = shared.media()?;
        Ok(Self {
            authenticator: identity::authenticator(shared, accounts.clone(), api_keys.clone()),
            origins: OwnOrigins::new(Origin::of(&shared.config.public_url), &shared.config.cors_origins),
            rate_limiter: shared.rate_limiter()?,
            idempotency: Idempotency::new(Arc::new(stores.idempotency()), ids.clone()),
            accounts,
            api_keys,
            audit: shared.audit()?,
            contacts: Contacts::new(contacts, clock.clone(), ids.clone()),
            tags: Tags::new(Arc::new(PgTags::new(stores.tenant.clone())), ids.clone()),
            segments: Segments::new(
                Arc::new(PgSegments::new(stores.tenant.clone())),
                clock.clone(),
                ids.clone(),
            ),
            folders: Folders::new(Arc::new(PgFolders::new(stores.tenant.clone())), ids.clone()),
            templates: Templates::new(
                templates,
                profiles.clone(),
                Arc::new(shared.whatsapp()?),
                media.clone(),
                shared.cipher.clone(),
                clock.clone(),
                ids.clone(),
            ),
            media,
            profiles: Profiles::new(profiles, shared.cipher.clone(), clock, ids.clone()),
            callbacks: stores.callbacks(shared),
            billing: stores.billing(shared)?,
            gateway_events: stores.gateway_events(shared),
            brand: stores.brand(shared)?,
            conversations: Conversations::new(
                Arc::new(stores.conversations()),
                Arc::new(shared.whatsapp()?),
                shared.cipher.clone(),
                Arc::new(shared.reports.clone()),
                ids,
            ),
            notifications: shared.notifications(&stores.tenant)?,
            ingestion: stores.ingestion(shared),
            links: stores.links(shared, &anonymous),
            automations: stores.automations(shared),
            analytics: stores.analytics(shared),
            insights: stores.insights(shared),
            exports: stores.exports(shared),
            rfm: stores.rfm(),
            feed: PgNotificationFeed::new(stores.owner.clone()),
            stream_checks: Semaphore::new(1),
            campaigns: stores.campaigns(shared),
            test_sends: stores.test_sends(shared)?,
            members: Members::new(Arc::new(PgMembers::new(stores.owner.clone()))),
            invites: identity::invites(shared, &stores),
            invitations: Invitations::new(Arc::new(PgInvites::new(stores.owner.clone()))),
            inbound: stores.inbound(shared, &anonymous),
            webhooks: stores.webhooks(shared),
            admin: AdminServices::new(shared, &stores)?,
            shared: shared.clone(),
        })
    }
}
