//! The servers of a simulation: use cases over its ports, and the workers that call them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use time::Duration;

use super::executor::{Scheduler, Wait};
use super::payments::SimulatedPayments;
use super::stores::Stores;
use super::webhook_stores::{DelivererTime, Receivers};
use super::whatsapp::{SimulatedLimiter, SimulatedWhatsapp};
use crate::billing::{Billing, GatewayEvents, SubscriptionReconciler};
use crate::campaigns::{Campaigns, Dispatcher, QueuedRun, Worker};
use crate::direct_messages::{DirectMessageQueue, DirectMessages, Messenger};
use crate::egress::AllowList;
use crate::media::tests::media;
use crate::media::{MockMessageFileStorage, MockMessageFileStore};
use crate::shared::{Cipher, Ids, SealContext, Sealed, Secrets, Shutdown, StoreError};
use crate::templates::MockTemplateStore;
use crate::webhooks::{Deliverer, Schedule, Webhooks};
use crate::whatsapp::{ContentFiles, MessageFiles, MockFileIdStore};

/// The workers of each server.
pub(super) const WORKERS: [&str; 9] = [
    "dispatcher 1",
    "dispatcher 2",
    "relay",
    "deliverer",
    "gateway events",
    "intents",
    "checks",
    "lapses",
    "unknown sends",
];

/// The workers of each server that send direct messages.
pub(super) const MESSENGERS: [&str; 2] = ["messenger", "unknown messages"];

/// How long the outcome of a send may be unknown.
pub(super) const UNKNOWN_TTL: Duration = Duration::hours(1);

/// A cipher without encryption.
pub(super) struct PlainCipher;

impl Cipher for PlainCipher {
    fn seal(&self, _: &SecretString, _: &SealContext) -> Sealed {
        Sealed(vec![])
    }

    fn open(&self, _: &Sealed, _: &SealContext) -> Option<SecretString> {
        Some(SecretString::from("aa"))
    }
}

struct SameSecret;

impl Secrets for SameSecret {
    fn token(&self, bytes: usize) -> SecretString {
        URL_SAFE_NO_PAD.encode(vec![0xab; bytes]).into()
    }
}

/// The use cases, which all servers share.
#[derive(Clone)]
pub(super) struct UseCases {
    stores: Arc<Stores>,
    pub(super) campaigns: Arc<Campaigns>,
    pub(super) billing: Arc<Billing>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) gateway_events: Arc<GatewayEvents>,
    pub(super) messages: Arc<DirectMessages>,
    reconciler: Arc<SubscriptionReconciler>,
    dispatcher: Dispatcher,
    messenger: Messenger,
}

impl UseCases {
    pub(super) fn new(stores: &Arc<Stores>, payments: &SimulatedPayments) -> Self {
        let clock: Arc<Scheduler> = Arc::new(stores.scheduler.clone());
        let limiter = Arc::new(SimulatedLimiter::new(stores.clone()));
        let payments = Arc::new(payments.clone());
        let webhooks = Webhooks {
            store: stores.clone(),
            logs: stores.webhooks.clone(),
            clock: clock.clone(),
            ids: clock.clone(),
            secrets: Arc::new(SameSecret),
            cipher: Arc::new(PlainCipher),
            allow: AllowList::default(),
            plain_http: false,
        };
        let dispatcher = Dispatcher {
            starts: stores.clone(),
            queue: stores.clone(),
            runs: stores.clone(),
            sends: stores.clone(),
            templates: Arc::new(MockTemplateStore::new()),
            gateway: Arc::new(SimulatedWhatsapp(stores.clone())),
            files: MessageFiles::new(media(&Arc::default()), Arc::new(MockFileIdStore::new())),
            cipher: Arc::new(PlainCipher),
            limiter: limiter.clone(),
            time_slices: limiter,
            timer: clock.clone(),
            clock: clock.clone(),
            shutdown: clock.clone(),
            worker: Worker {
                id: clock.next(),
                delay: Duration::milliseconds(200),
            },
        };
        let messenger = messenger(stores, &dispatcher);
        let (store, ids) = (stores.clone(), clock.clone());
        Self {
            stores: stores.clone(),
            campaigns: Arc::new(Campaigns::new(
                store.clone(),
                store.clone(),
                store.clone(),
                clock.clone(),
                ids,
            )),
            billing: Arc::new(Billing::new(
                store.clone(),
                store.clone(),
                payments.clone(),
                clock.clone(),
                clock.clone(),
            )),
            webhooks: Arc::new(webhooks),
            messages: Arc::new(DirectMessages::new(store.clone(), content_files(), clock.clone())),
            gateway_events: Arc::new(GatewayEvents::new(
                store.clone(),
                store.clone(),
                clock.clone(),
                clock.clone(),
            )),
            reconciler: Arc::new(SubscriptionReconciler::new(
                store.clone(),
                store,
                payments,
                clock.clone(),
                clock,
            )),
            dispatcher,
            messenger,
        }
    }

    /// A messenger with a new fencing token.
    fn messenger(&self) -> Messenger {
        let mut messenger = self.messenger.clone();
        messenger.worker.id = self.stores.scheduler.next();
        messenger
    }

    /// A dispatcher with a new fencing token. Some share one, which the status of each send has to make harmless.
    pub(super) fn dispatcher(&self) -> Dispatcher {
        let scheduler = &self.stores.scheduler;
        match scheduler.percent(20) {
            true => self.dispatcher.clone(),
            false => self.dispatcher.with_worker(scheduler.next()),
        }
    }

    pub(super) fn spawn_worker(&self, name: &'static str, server: usize) {
        let (scheduler, stores) = (self.stores.scheduler.clone(), self.stores.clone());
        let use_cases = self.clone();
        let (events, reconciler) = (self.gateway_events.clone(), self.reconciler.clone());
        match name {
            "dispatcher 1" | "dispatcher 2" => self.repeat(name, server, move || dispatch_next(use_cases.dispatcher())),
            "messenger" => self.repeat(name, server, move || send_next(use_cases.messenger())),
            "unknown messages" => self.repeat(name, server, move || {
                let stores = stores.clone();
                async move {
                    let failed = DirectMessageQueue::fail_unknown(stores.as_ref(), UNKNOWN_TTL, 100).await?;
                    Ok::<_, StoreError>(failed > 0)
                }
            }),
            "relay" => self.repeat(name, server, move || {
                let stores = stores.clone();
                async move {
                    let relayed = stores.relay().await?;
                    DelivererTime::wake_deliverers(&stores.scheduler);
                    Ok::<_, StoreError>(relayed)
                }
            }),
            "deliverer" => {
                let deliverer = self.deliverer();
                scheduler.spawn(name, server, async move { deliverer.run().await });
            }
            "gateway events" => self.repeat(name, server, move || {
                let events = events.clone();
                async move { events.apply_next().await }
            }),
            "intents" => self.repeat(name, server, move || {
                let reconciler = reconciler.clone();
                async move { reconciler.reconcile_next().await }
            }),
            "checks" => self.repeat(name, server, move || {
                let reconciler = reconciler.clone();
                async move { reconciler.check_next().await }
            }),
            "lapses" => self.repeat(name, server, move || {
                let reconciler = reconciler.clone();
                async move { reconciler.lapse_next().await }
            }),
            _ => self.repeat(name, server, move || {
                let stores = stores.clone();
                async move { stores.fail_unknown_sends(UNKNOWN_TTL).await.map(|failed| failed > 0) }
            }),
        }
    }

    /// Spawns a worker that repeats `iteration` until it is stopped, and pauses if there was no work.
    fn repeat<F, E>(&self, name: &'static str, server: usize, iteration: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<bool, E>> + Send + 'static,
        E: Send + 'static,
    {
        let scheduler = self.stores.scheduler.clone();
        self.stores.scheduler.spawn(name, server, async move {
            while !scheduler.is_stopping() {
                if !matches!(iteration().await, Ok(true)) {
                    let pause = Duration::seconds(i64::try_from(3 + scheduler.below(9)).unwrap());
                    scheduler.sleep_for(pause, Wait::Idle).await;
                }
            }
        });
    }

    fn deliverer(&self) -> Deliverer {
        let scheduler = self.stores.scheduler.clone();
        let time = Arc::new(DelivererTime(scheduler.clone()));
        Deliverer {
            queue: self.stores.clone(),
            gateway: Arc::new(Receivers(self.stores.clone())),
            cipher: Arc::new(PlainCipher),
            clock: Arc::new(scheduler.clone()),
            ids: Arc::new(scheduler.clone()),
            jitter: time.clone(),
            timer: time.clone(),
            shutdown: Arc::new(scheduler),
            signal: time.clone(),
            report: time,
            schedule: Schedule::default(),
        }
    }
}

/// Executes the run that has waited longest.
async fn dispatch_next(dispatcher: Dispatcher) -> Result<bool, StoreError> {
    let Some(run) = dispatcher.take().await? else {
        return Ok(false);
    };
    dispatch(&dispatcher, run).await;
    Ok(true)
}

/// Sends the messages of the queue that has waited longest, and releases it after an error.
async fn send_next(messenger: Messenger) -> Result<bool, StoreError> {
    let Some(queue) = messenger.take().await? else {
        return Ok(false);
    };
    if messenger.run(queue).await.is_err() {
        while messenger.abandon(queue).await.is_err() {
            messenger.timer.sleep(Duration::SECOND).await;
        }
    }
    Ok(true)
}

/// A messenger that calls WhatsApp as the dispatcher does.
fn messenger(stores: &Arc<Stores>, dispatcher: &Dispatcher) -> Messenger {
    Messenger {
        queue: stores.clone(),
        gateway: dispatcher.gateway.clone(),
        files: dispatcher.files.clone(),
        content_files: content_files(),
        cipher: dispatcher.cipher.clone(),
        limiter: dispatcher.limiter.clone(),
        timer: dispatcher.timer.clone(),
        shutdown: dispatcher.shutdown.clone(),
        worker: dispatcher.worker,
    }
}

/// No message has a file.
fn content_files() -> ContentFiles {
    let storage = Arc::new(MockMessageFileStorage::new());
    ContentFiles::new(
        Arc::new(MockMessageFileStore::new()),
        storage,
        Arc::new(MockFileIdStore::new()),
    )
}

/// Executes a run, and releases it after an error.
pub(super) async fn dispatch(dispatcher: &Dispatcher, run: QueuedRun) {
    if dispatcher.run(run).await.is_err() {
        while dispatcher.abandon(run).await.is_err() {
            dispatcher.timer.sleep(Duration::SECOND).await;
        }
    }
}
