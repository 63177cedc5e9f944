//! Sends direct messages: claims the queues of numbers and works on several of them at a time.

use std::sync::Arc;
use std::time::Duration;

use recado_api::system::{SystemShutdown, SystemTimer};
use recado_domain::campaigns::{SendRateLimiter, Worker};
use recado_domain::direct_messages::{DirectMessageQueue, Messenger, NumberQueue};
use recado_domain::shared::StoreError;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::worker_loop::{self, Backoff, UNKNOWN_BATCH, unknown_interval};
use crate::wiring::{Shared, Stores};

/// The most queues that a process works on at a time.
const QUEUES: usize = 32;

/// How soon a message that another process stored is found.
const INTERVAL: Duration = Duration::from_millis(200);

/// How soon held messages are looked at again after a change of the account's settings, and how many together.
const HOLDS_INTERVAL: Duration = Duration::from_secs(5);
const HOLDS_BATCH: i64 = 1000;

/// The longest backoff while claiming queues fails.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// How long the release of a failed queue is retried. Its lease is no longer than this.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    limiter: Arc<dyn SendRateLimiter>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let queue = Arc::new(stores.direct_message_queues());
    let messenger = Messenger {
        queue: queue.clone(),
        gateway: Arc::new(stores.whatsapp_outside_runs(shared)),
        files: stores.message_files(shared),
        content_files: stores.content_files(shared),
        cipher: shared.cipher.clone(),
        limiter,
        timer: Arc::new(SystemTimer),
        shutdown: Arc::new(SystemShutdown(stop.clone())),
        worker: Worker {
            id: Uuid::now_v7(),
            delay: shared.config.message_delay,
        },
    };
    let claimer = Claimer {
        messenger,
        permits: Arc::new(Semaphore::new(QUEUES)),
        wake: shared.signals.messengers.clone(),
        stop: stop.clone(),
    };
    let backoff = Backoff {
        idle: INTERVAL,
        longest: MAX_BACKOFF,
    };
    let (wake, claimed_tasks) = (claimer.wake.clone(), tasks.clone());
    tasks.spawn(worker_loop::run(
        "direct_messages",
        backoff,
        stop.clone(),
        Some(wake),
        move || {
            let (claimer, tasks) = (claimer.clone(), claimed_tasks.clone());
            async move { claimer.claim_next(&tasks).await }
        },
    ));
    let held = queue.clone();
    worker_loop::spawn(tasks, stop, "message_holds", HOLDS_INTERVAL, move || {
        let queue = held.clone();
        async move {
            let released = queue.release_holds(HOLDS_BATCH).await?;
            Ok(released > 0)
        }
    });
    let ttl = shared.config.send_unknown_ttl;
    worker_loop::spawn(tasks, stop, "unknown_messages", unknown_interval(ttl), move || {
        let queue = queue.clone();
        async move {
            let failed = queue.fail_unknown(ttl, UNKNOWN_BATCH).await?;
            Ok(failed > 0)
        }
    });
}

#[derive(Clone)]
struct Claimer {
    messenger: Messenger,
    permits: Arc<Semaphore>,
    wake: Arc<Notify>,
    stop: CancellationToken,
}

impl Claimer {
    async fn claim_next(&self, tasks: &TaskTracker) -> Result<bool, StoreError> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            return Ok(false);
        };
        let mut messenger = self.messenger.clone();
        // A fencing token for this claim alone.
        messenger.worker.id = Uuid::now_v7();
        let Some(queue) = messenger.take().await? else {
            return Ok(false);
        };
        let claimer = self.clone();
        tasks.spawn(async move {
            if let Err(error) = messenger.run(queue).await {
                claimer.abandon(&messenger, queue, &error).await;
            }
            drop(permit);
            claimer.wake.notify_one();
        });
        Ok(true)
    }

    /// Releases a queue after an error, so that another worker can claim it. If that fails, its lease expires.
    async fn abandon(&self, messenger: &Messenger, queue: NumberQueue, error: &StoreError) {
        tracing::warn!(cause = %worker_loop::chain(error), account = %queue.account_id,
            "sending direct messages failed, their queue is released");
        let release = async {
            while let Err(error) = messenger.abandon(queue).await {
                tracing::debug!(cause = %worker_loop::chain(&error), account = %queue.account_id,
                    "a queue of direct messages cannot be released");
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            _ = tokio::time::timeout(RELEASE_TIMEOUT, release) => {}
        }
    }
}
