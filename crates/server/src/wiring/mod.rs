//! Wires the adapters to the ports. Every HTTP thread has its own services and its own connections to PostgreSQL and
//! Redis; the threads share the clients of other systems (`clients.rs`).

use std::sync::Arc;

use anyhow::Context as _;
use recado_domain::accounts::SessionVerifier;
use recado_domain::billing::{Billing, GatewayEvents, SubscriptionReconciler};
use recado_domain::callbacks::{CallbackStores, Callbacks};
use recado_domain::campaigns::{Campaigns, TestSends};
use recado_domain::contacts::IdentifierHasher;
use recado_domain::direct_messages::DirectMessages;
use recado_domain::limits::{InProcessRateLimiter, RateLimiter};
use recado_domain::links::PendingClicks;
use recado_domain::mail::{MailSender, Mailer};
use recado_domain::media::{Media, MediaAddress, MessageMedia};
use recado_domain::shared::{Cipher, Clock, Ids, Resealer as _, Secrets};
use recado_domain::whatsapp::{ContentFiles, FileFetcher, MessageFiles};
use recado_gateways::http::Http;
use recado_gateways::whatsapp::{CloudCallbackReader, ERROR_CODES};
use recado_postgres::{
    OwnerPool, PgBillingWork, PgCallbacks, PgCampaigns, PgContacts, PgConversations, PgDirectMessageQueues,
    PgDirectMessages, PgFileIds, PgGatewayEvents, PgIdempotency, PgInbox, PgMailQueue, PgMessageFiles, PgProfiles,
    PgRuns, PgSendSlots, PgStatusUpdates, PgSubscriptions, PgTemplates, PgTestSends, PoolConfig, PoolRegistry,
    TenantPool,
};
use recado_redis::RedisRateLimiter;
use secrecy::ExposeSecret as _;

use crate::config::Config;
use crate::identifier_hash::AppIdentifierHasher;
use crate::sealing::AppCipher;
use crate::telemetry::Reports;
use recado_api::payment_event_buffer::PaymentEventBuffer;
use recado_api::readiness::Readiness;
use recado_api::streams::Streams;
use recado_api::system::{SystemClock, SystemIds, SystemSecrets};
use recado_api::web::auth_cache::AuthCache;
use recado_api::web::callback::CallbackMemory;
use recado_api::web::key_cache::KeyCache;
use recado_api::web::session_cache::SessionCache;
use recado_api::web::shares::Shares;
use recado_api::web::target_cache::TargetCache;
use recado_api::worker_handles::{RunSubmitter, WorkerSignals};

mod administration;
mod analytics;
mod brand;
mod clients;
mod identity;
mod numbers;
mod pools;
mod process_stats;
mod retention;
mod services;
mod settings;
mod startup;
mod verification;
mod webhooks;

use clients::Clients;
pub use services::Services;

/// The state that all threads of the process share.
#[derive(Clone)]
pub struct Shared {
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub secrets: Arc<dyn Secrets>,
    /// Encryption at rest.
    pub cipher: Arc<dyn Cipher>,
    /// Hashes identifiers of erased people.
    identifier_hasher: Arc<dyn IdentifierHasher>,
    /// Begins the values that are sealed under the current key.
    sealing_marker: Vec<u8>,
    clients: Clients,
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
    pub signals: WorkerSignals,
    /// Gateway events that wait until the database can store them.
    pub payment_event_buffer: PaymentEventBuffer,
    pub reports: Reports,
    pool_registry: PoolRegistry,
}

impl Shared {
    /// Validates the configuration as far as possible without a connection. The connections to other systems live on
    /// the current runtime.
    pub fn new(config: Config, run_submitter: RunSubmitter, streams: Streams) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let config = Arc::new(config);
        let pool_registry = PoolRegistry::default();
        let cipher = AppCipher::new(&config.app_secrets)?;
        let http = Http::new().map_err(anyhow::Error::msg)?;
        Ok(Self {
            secrets: Arc::new(SystemSecrets),
            sealing_marker: cipher.current_marker(),
            cipher: Arc::new(cipher),
            identifier_hasher: Arc::new(AppIdentifierHasher::new(&config.app_secrets)?),
            mailer: startup::mailer(&config)?,
            clients: Clients::new(&config, &http)?,
            verifier: startup::verifier(&config, http, clock.clone())?,
            in_process: Arc::new(InProcessRateLimiter::new(clock.clone())),
            ids: Arc::new(SystemIds),
            auth_cache: AuthCache::default(),
            sessions: SessionCache::default(),
            keys: KeyCache::default(),
            targets: TargetCache::default(),
            clicks: Arc::new(PendingClicks::new(SystemIds.next())),
            shares: Shares::default(),
            callback_memory: CallbackMemory::new(config.limits.callback_memory),
            readiness: startup::readiness(&config, &pool_registry)?,
            signals: WorkerSignals::default(),
            payment_event_buffer: PaymentEventBuffer::default(),
            reports: Reports::default(),
            pool_registry,
            config,
            clock,
            run_submitter,
            streams,
        })
    }

    /// The uploaded files of templates.
    pub fn media(&self) -> Media {
        let address = MediaAddress::new(&self.config.media_public_url);
        Media::new(self.clients.media.clone(), address, self.ids.clone())
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
            inbox: Arc::new(self.inbox(shared)),
            holders: Arc::new(self.verification_store()),
            templates: Arc::new(self.templates()),
            runs: Arc::new(self.runs()),
        };
        let report = Arc::new(shared.reports.clone());
        let held = self.held_messages(shared);
        let updates = self.business_updates(shared);
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        Callbacks::new(stores, held, Arc::new(CloudCallbackReader), report, clock, ids).with_business_updates(updates)
    }

    pub fn billing(&self, shared: &Shared) -> Billing {
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        let gateway = shared.clients.payment.clone();
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        Billing::new(store.clone(), store, gateway, clock, ids)
    }

    /// Receives and applies gateway events.
    pub fn gateway_events(&self, shared: &Shared) -> GatewayEvents {
        let events = Arc::new(PgGatewayEvents::new(self.owner.clone()));
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        GatewayEvents::new(events, store, shared.clock.clone(), shared.ids.clone())
    }

    /// Reconciles subscriptions with the payment gateway in the background.
    pub fn subscription_reconciler(&self, shared: &Shared) -> SubscriptionReconciler {
        let store = Arc::new(PgSubscriptions::new(self.tenant.clone(), self.owner.clone()));
        let work = Arc::new(PgBillingWork::new(self.owner.clone()));
        let gateway = shared.clients.payment.clone();
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        SubscriptionReconciler::new(store, work, gateway, clock, ids)
    }

    pub fn idempotency(&self) -> PgIdempotency {
        PgIdempotency::new(self.owner.clone())
    }

    /// The files that messages send to WhatsApp.
    pub fn message_files(&self, shared: &Shared) -> MessageFiles {
        let ids = Arc::new(PgFileIds::new(self.tenant.clone()));
        MessageFiles::new(shared.media(), ids)
    }

    /// The rows of the files of messages.
    fn message_file_rows(&self) -> Arc<PgMessageFiles> {
        Arc::new(PgMessageFiles::new(self.tenant.clone(), self.owner.clone()))
    }

    /// Reads, uploads and removes the files of messages.
    pub fn message_media(&self, shared: &Shared) -> MessageMedia {
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        MessageMedia::new(self.message_file_rows(), shared.clients.media.clone(), clock, ids)
    }

    /// The files of free-form messages.
    pub fn content_files(&self, shared: &Shared) -> ContentFiles {
        let ids = Arc::new(PgFileIds::new(self.tenant.clone()));
        ContentFiles::new(self.message_file_rows(), shared.clients.media.clone(), ids)
    }

    /// Fetches the files of messages from WhatsApp.
    pub fn file_fetcher(&self, shared: &Shared) -> FileFetcher {
        FileFetcher {
            files: self.message_file_rows(),
            storage: shared.clients.media.clone(),
            gateway: shared.clients.files.clone(),
            profiles: Arc::new(PgProfiles::new(self.tenant.clone())),
            cipher: shared.cipher.clone(),
            clock: shared.clock.clone(),
            ids: shared.ids.clone(),
            max_bytes: shared.config.inbound_media.max_bytes,
        }
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

    pub fn test_sends(&self, shared: &Shared) -> TestSends {
        TestSends::new(
            Arc::new(PgTestSends::new(self.tenant.clone())),
            Arc::new(self.whatsapp_outside_runs(shared)),
            self.message_files(shared),
            shared.cipher.clone(),
            Arc::new(shared.reports.clone()),
            shared.ids.clone(),
        )
    }

    pub fn direct_messages(&self, shared: &Shared) -> DirectMessages {
        let store = self
            .direct_message_store()
            .with_erased_opt_outs(shared.erased_opt_outs());
        let store = Arc::new(store);
        DirectMessages::new(store, self.content_files(shared), shared.ids.clone())
    }

    /// Stores inbound events.
    fn inbox(&self, shared: &Shared) -> PgInbox {
        let inbox = PgInbox::new(self.tenant.clone(), Arc::new(shared.reports.clone()));
        inbox.with_erased_opt_outs(shared.erased_opt_outs())
    }

    fn contacts(&self, shared: &Shared) -> PgContacts {
        PgContacts::new(self.tenant.clone()).with_erased_opt_outs(shared.erased_opt_outs())
    }

    pub fn direct_message_store(&self) -> PgDirectMessages {
        PgDirectMessages::new(self.tenant.clone(), ERROR_CODES)
    }

    pub fn direct_message_queues(&self) -> PgDirectMessageQueues {
        PgDirectMessageQueues::new(self.tenant.clone(), self.owner.clone(), ERROR_CODES)
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
