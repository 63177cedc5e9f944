//! Wires the adapters to the ports. Every HTTP thread has its own set of services with its own connections.

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
use recado_domain::callbacks::{CallbackStores, Callbacks};
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
use recado_domain::shared::{Cipher, Clock, Ids, Resealer as _, Secrets};
use recado_domain::team::{Invitations, Invites, Members};
use recado_domain::templates::Templates;
use recado_domain::webhooks::{InboundWebhooks, Webhooks};
use recado_domain::whatsapp::verification::Verifications;
use recado_domain::whatsapp::{MessageFiles, Profiles};
use recado_gateways::http::Http;
use recado_gateways::media::ObjectMedia;
use recado_gateways::payment::PaymentApi;
use recado_gateways::whatsapp::{CloudApi, CloudCallbackReader, ERROR_CODES};
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
mod numbers;
mod pools;
mod process_stats;
mod startup;
mod verification;
mod webhooks;

use crate::config::Config;
use crate::origin::{Origin, OwnOrigins};
use crate::payment_event_buffer::PaymentEventBuffer;
use crate::readiness::Readiness;
use crate::sealing::AppCipher;
use crate::streams::Streams;
use crate::system::{SystemClock, SystemIds, SystemSecrets};
use crate::telemetry::Reports;
use crate::web::auth::Authenticator;
use crate::web::auth_cache::AuthCache;
use crate::web::callback::CallbackMemory;
use crate::web::key_cache::KeyCache;
use crate::web::session_cache::SessionCache;
use crate::web::shares::Shares;
use crate::web::target_cache::TargetCache;
use crate::worker_handles::{Relays, RunSubmitter};
use administration::AdminServices;
use pools::readiness;

/// The minimum number of tenant connections of an HTTP thread.
const MIN_TENANT_CONNECTIONS: usize = 2;

/// The timeout of a call to WhatsApp. It is well below the lease of a run, so that a run does not lose its lease to one
/// hanging call.
const WHATSAPP_TIMEOUT: Duration = Duration::from_secs(15);

/// The state that all threads of the process share.
#[derive(Clone)]
pub struct Shared {
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub secrets: Arc<dyn Secrets>,
    /// Encryption at rest.
    pub cipher: Arc<dyn Cipher>,
    /// Begins the values that are sealed under the current key.
    sealing_marker: Vec<u8>,
    /// None: `SMTP_URL` is not set, and no mail is sent.
    pub mailer: Option<Arc<dyn Mailer>>,
    pub auth_cache: AuthCache,
    /// When users ended their sessions.
    pub sessions: SessionCache,
    keys: KeyCache,
    targets: TargetCache,
    /// Clicks on links that are not written yet.
    pub clicks: Arc<PendingClicks>,
    /// The concurrency limits of accounts and users.
    pub shares: Shares,
    pub callback_memory: CallbackMemory,
    pub readiness: Readiness,
    pub verifier: Arc<dyn SessionVerifier>,
    /// The rate limiter without Redis. With Redis, every thread has its own connection.
    in_process: Arc<InProcessRateLimiter>,
    /// Executes runs, or waits for those that other processes execute.
    pub run_submitter: RunSubmitter,
    pub streams: Streams,
    /// Wakes the mail worker.
    pub mailed: Arc<Notify>,
    /// Wakes the RFM worker.
    pub customers: Arc<Notify>,
    /// Wakes the outbox relays.
    pub relays: Relays,
    /// Gateway events that wait until the database can store them.
    pub payment_event_buffer: PaymentEventBuffer,
    pub reports: Reports,
    pool_registry: PoolRegistry,
}

impl Shared {
    /// Validates the configuration as far as possible without a connection.
    pub fn new(config: Config, run_submitter: RunSubmitter, streams: Streams) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let config = Arc::new(config);
        let pool_registry = PoolRegistry::default();
        let cipher = AppCipher::new(&config.app_secrets)?;
        Ok(Self {
            secrets: Arc::new(SystemSecrets),
            sealing_marker: cipher.current_marker(),
            cipher: Arc::new(cipher),
            mailer: startup::mailer(&config)?,
            verifier: startup::verifier(&config, clock.clone())?,
            in_process: Arc::new(InProcessRateLimiter::new(clock.clone())),
            ids: Arc::new(SystemIds),
            auth_cache: AuthCache::default(),
            sessions: SessionCache::default(),
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

    /// The client of WhatsApp, with its own connections.
    pub fn whatsapp(&self) -> anyhow::Result<CloudApi> {
        let http = Http::new().map_err(anyhow::Error::msg)?;
        CloudApi::new(http.counted("whatsapp"), self.config.whatsapp_api_url.as_deref())
            .map(|api| api.timeout(WHATSAPP_TIMEOUT).app(self.config.whatsapp_app_id.clone()))
            .map_err(|error| anyhow::anyhow!("configuration: WHATSAPP_API_URL: {error}"))
    }

    /// The client of the payment gateway, with its own connections.
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

    /// The store of uploaded files, with its own connections.
    fn media_store(&self) -> anyhow::Result<ObjectMedia> {
        // Whether the bucket may be called over plain HTTP is decided by the configuration alone (PLAINTEXT_HOSTS).
        let name = "AWS_ALLOW_HTTP";
        let others = std::env::vars().filter(|(other, _)| !other.eq_ignore_ascii_case(name));
        let is_plain = self.config.tls.targets.contains(&("storage", false));
        let allow_http = is_plain.then(|| (name.to_owned(), "true".to_owned()));
        ObjectMedia::open(self.config.media_store_url.as_deref(), others.chain(allow_http))
            .map_err(|error| anyhow::anyhow!("configuration: MEDIA_STORE_URL {error}"))
    }

    /// The uploaded files of templates.
    pub fn media(&self) -> anyhow::Result<Media> {
        let store = self.media_store()?;
        let address = MediaAddress::new(&self.config.media_public_url);
        Ok(Media::new(Arc::new(store), address, self.ids.clone()))
    }

    fn rate_limiter(&self) -> anyhow::Result<Arc<dyn RateLimiter>> {
        match &self.config.redis_url {
            None => Ok(self.in_process.clone()),
            Some(url) => {
                let rate_limiter =
                    RedisRateLimiter::trusting(url.expose_secret(), self.config.tls.authorities.to_pem());
                Ok(Arc::new(rate_limiter.map_err(|error| {
                    anyhow::anyhow!("configuration: REDIS_URL: {error}")
                })?))
            }
        }
    }
}

/// The two connection pools.
#[derive(Clone)]
pub struct Stores {
    /// Row-level security binds every transaction to one account.
    pub tenant: TenantPool,
    /// For finding the tenant of a request, and for queries across accounts.
    pub owner: OwnerPool,
}

impl Stores {
    fn new(tenant: &PoolConfig, owner: &PoolConfig) -> anyhow::Result<Self> {
        let tenant =
            TenantPool::new(tenant).context("DATABASE_URL or TENANT_DATABASE_URL is not a valid PostgreSQL URL")?;
        let owner = OwnerPool::new(owner).context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(Self { tenant, owner })
    }

    /// Processes WhatsApp's callbacks.
    pub fn callbacks(&self, shared: &Shared) -> Callbacks {
        let stores = CallbackStores {
            callbacks: Arc::new(PgCallbacks::new(self.owner.clone())),
            status_updates: Arc::new(PgStatusUpdates::new(self.tenant.clone(), ERROR_CODES)),
            inbox: Arc::new(PgInbox::new(self.tenant.clone())),
            verifications: Arc::new(self.verification_store()),
            templates: Arc::new(self.templates()),
            runs: Arc::new(self.runs()),
        };
        let report = Arc::new(shared.reports.clone());
        let held = self.held_messages(shared);
        let news = self.number_news(shared);
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        Callbacks::new(stores, held, Arc::new(CloudCallbackReader), report, clock, ids).with_news(news)
    }

    pub fn billing(&self, shared: &Shared) -> anyhow::Result<Billing> {
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        let gateway = Arc::new(shared.payment()?);
        Ok(Billing::new(store, gateway, shared.clock.clone(), shared.ids.clone()))
    }

    /// Receives and applies gateway events.
    pub fn gateway_events(&self, shared: &Shared) -> GatewayEvents {
        let events = Arc::new(PgGatewayEvents::new(self.owner.clone()));
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        GatewayEvents::new(events, store, shared.clock.clone(), shared.ids.clone())
    }

    /// Reconciles subscriptions with the payment gateway in the background.
    pub fn subscription_reconciler(&self, shared: &Shared) -> anyhow::Result<SubscriptionReconciler> {
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        let work = Arc::new(PgBillingWork::new(self.owner.clone()));
        let gateway = Arc::new(shared.payment()?);
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        Ok(SubscriptionReconciler::new(store, work, gateway, clock, ids))
    }

    pub fn idempotency(&self) -> PgIdempotency {
        PgIdempotency::new(self.owner.clone())
    }

    /// The files that messages send to WhatsApp.
    pub fn message_files(&self, shared: &Shared) -> anyhow::Result<MessageFiles> {
        let ids = Arc::new(PgFileIds::new(self.tenant.clone()));
        Ok(MessageFiles::new(shared.media()?, ids))
    }

    pub fn conversations(&self) -> PgConversations {
        PgConversations::new(self.tenant.clone(), self.owner.clone())
    }

    /// Sends queued mail. None: `SMTP_URL` is not set.
    pub fn mail_sender(&self, shared: &Shared) -> Option<MailSender> {
        let mailer = shared.mailer.clone()?;
        let queue = Arc::new(PgMailQueue::new(self.owner.clone()));
        Some(MailSender::new(queue, mailer, shared.cipher.clone()))
    }

    pub fn campaigns(&self, shared: &Shared) -> Campaigns {
        let (store, runs) = (
            Arc::new(PgCampaigns::new(self.tenant.clone(), ERROR_CODES)),
            Arc::new(self.runs()),
        );
        Campaigns::new(store, runs.clone(), runs, shared.clock.clone(), shared.ids.clone())
    }

    pub fn test_sends(&self, shared: &Shared) -> anyhow::Result<TestSends> {
        Ok(TestSends::new(
            Arc::new(PgTestSends::new(self.tenant.clone())),
            Arc::new(self.whatsapp(shared)?),
            self.message_files(shared)?,
            shared.cipher.clone(),
            Arc::new(shared.reports.clone()),
            shared.ids.clone(),
        ))
    }

    pub fn templates(&self) -> PgTemplates {
        PgTemplates::new(self.tenant.clone())
    }

    pub fn runs(&self) -> PgRuns {
        PgRuns::new(self.tenant.clone(), self.owner.clone(), ERROR_CODES)
    }

    /// The send slots of WhatsApp numbers.
    pub fn send_slots(&self) -> PgSendSlots {
        PgSendSlots::new(self.owner.clone())
    }
}

/// The services that the handlers of one thread use.
pub struct Services {
    pub authenticator: Authenticator,
    /// The sites whose pages may write with a session cookie.
    pub origins: OwnOrigins,
    pub rate_limiter: Arc<dyn RateLimiter>,
    pub idempotency: Idempotency,
    pub accounts: Arc<Accounts>,
    pub api_keys: Arc<ApiKeys>,
    pub audit: AuditLogs,
    pub contacts: Contacts,
    pub tags: Tags,
    pub segments: Segments,
    pub folders: Folders,
    pub templates: Templates,
    /// The files of templates.
    pub media: Media,
    /// Connected WhatsApp numbers.
    pub profiles: Profiles,
    /// Whether WhatsApp confirms the numbers.
    pub verifications: Verifications,
    /// WhatsApp's callbacks.
    pub callbacks: Callbacks,
    pub billing: Billing,
    pub gateway_events: GatewayEvents,
    pub brand: Brand,
    pub campaigns: Campaigns,
    pub test_sends: TestSends,
    /// Orders, carts and metric events.
    pub ingestion: Ingestion,
    pub links: Links,
    pub automations: Automations,
    pub analytics: Analytics,
    /// The dashboard and the message reports.
    pub insights: Insights,
    pub exports: Exports,
    pub rfm: Rfm,
    pub conversations: Conversations,
    pub notifications: Notifications,
    /// Returns the sequence number at which a new stream begins.
    pub feed: PgNotificationFeed,
    /// Lets one stream of the thread at a time check whether its caller still has access.
    pub stream_checks: Semaphore,
    pub members: Members,
    /// Management of an account's invites.
    pub invites: Invites,
    /// Acceptance of invites.
    pub invitations: Invitations,
    /// Calls to inbound webhook endpoints.
    pub inbound: InboundWebhooks,
    pub webhooks: Webhooks,
    /// The services of platform administrators.
    pub admin: AdminServices,
    pub shared: Shared,
}

impl Services {
    /// Creates the services of one of `threads` HTTP threads. Opens no connection yet.
    pub fn new(shared: &Shared, threads: usize) -> anyhow::Result<Self> {
        let connections = shared.config.database_pool_size / threads.max(1);
        let stores = shared.request_stores(connections.max(MIN_TENANT_CONNECTIONS))?;
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        let (accounts, anonymous) = (identity::accounts(shared, &stores), shared.anonymous()?);
        let api_keys = identity::api_keys(shared, &stores, &shared.unseen_keys()?);
        let profiles = Arc::new(PgProfiles::new(stores.tenant.clone()));
        let contacts = Arc::new(PgContacts::new(stores.tenant.clone()).with_search_index(stores.owner.clone()));
        let templates = Arc::new(stores.templates());
        let media = shared.media()?;
        Ok(Self {
            authenticator: identity::authenticator(shared, &stores, accounts.clone(), api_keys.clone())?,
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
                Arc::new(stores.whatsapp(shared)?),
                media.clone(),
                shared.cipher.clone(),
                clock.clone(),
                ids.clone(),
            ),
            media,
            verifications: stores.verifications(shared)?,
            profiles: Profiles::new(profiles, shared.cipher.clone(), clock, ids.clone()),
            callbacks: stores.callbacks(shared),
            billing: stores.billing(shared)?,
            gateway_events: stores.gateway_events(shared),
            brand: stores.brand(shared)?,
            conversations: Conversations::new(
                Arc::new(stores.conversations()),
                Arc::new(stores.whatsapp(shared)?),
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
            invites: identity::invites(shared, &stores)?,
            invitations: Invitations::new(Arc::new(PgInvites::new(stores.owner.clone()))),
            inbound: stores.inbound(shared, &anonymous),
            webhooks: stores.webhooks(shared),
            admin: AdminServices::new(shared, &stores)?,
            shared: shared.clone(),
        })
    }
}
