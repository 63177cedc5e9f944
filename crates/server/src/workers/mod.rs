//! Background workers: runs, callbacks, billing, outbox relays, webhooks, mail, retention. Every loop survives a
//! failing iteration and backs off. All loops end when the server stops.

mod administration;
mod api_keys;
mod billing;
mod clicks;
mod contact_exports;
mod direct_messages;
mod erasures;
mod held_messages;
mod mail;
mod message_files;
mod partitions;
mod relays;
mod retention;
mod rfm;
mod run_executor;
mod segment_counts;
mod send_rate_limiter;
mod verification;
mod webhooks;
mod worker_loop;

use std::sync::Arc;
use std::time::Duration;

use recado_domain::campaigns::{Dispatcher, RunSweepStore, Worker};
use recado_domain::conversations::ConversationStore;
use recado_domain::idempotency::IdempotencyStore as _;
use recado_domain::shared::WorkOutcome;
use recado_postgres::PgStatistics;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use clicks::start_clicks;
pub use send_rate_limiter::TokioSendRateLimiter;

use crate::wiring::{Shared, Stores};
use recado_api::system::{SystemClock, SystemShutdown, SystemTimer};
use worker_loop::{SWEEP_BATCH, SWEEP_INTERVAL, UNKNOWN_BATCH, unknown_interval};

/// Connections of all workers together, in each of the two pools.
const CONNECTIONS: usize = 4;

/// The maximum number of scheduled campaigns that one iteration enqueues.
const DUE_BATCH: i64 = 100;

/// The maximum number of recipient and retry batches that one iteration prepares. A run prepares the batches that it
/// needs itself, so this worker is not urgent.
const MATERIALIZE_BATCH: usize = 4;

/// The maximum number of campaigns whose counters one iteration folds.
const FOLD_BATCH: i64 = 100;

/// How long each kind of worker waits after an iteration without work.
const SCHEDULE_INTERVAL: Duration = Duration::from_millis(500);
const CALLBACKS_INTERVAL: Duration = Duration::from_secs(1);
const MATERIALIZE_INTERVAL: Duration = Duration::from_millis(500);
const STATISTICS_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum number of tables that one iteration analyzes.
const ANALYZE_BATCH: usize = 8;

/// Starts what a server without workers needs: requests wait for runs that other processes execute, and gateway events
/// wait for the database.
pub fn start_without_workers(shared: &Shared, stop: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let stores = shared.stores(2, 2)?;
    run_executor::start_without_workers(&shared.run_submitter, Arc::new(stores.runs()), stop, tasks);
    billing::start_payment_event_buffer(shared, &stores, stop, tasks);
    Ok(())
}

/// Starts all workers on the current runtime. They end after `stop` is cancelled; `tasks` tracks their end.
pub fn start(shared: &Shared, stop: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let stores = shared.stores(CONNECTIONS, CONNECTIONS)?;
    let runs = Arc::new(stores.runs());
    let limiter = Arc::new(TokioSendRateLimiter::new(Arc::new(stores.send_slots())));
    let yield_request = Arc::new(run_executor::YieldRequest::default());
    let (id, delay) = (Uuid::now_v7(), shared.config.message_delay);
    let dispatcher = Arc::new(Dispatcher {
        starts: runs.clone(),
        queue: runs.clone(),
        runs: runs.clone(),
        sends: runs.clone(),
        templates: Arc::new(stores.templates()),
        gateway: Arc::new(stores.whatsapp(shared)),
        files: stores.message_files(shared),
        cipher: shared.cipher.clone(),
        limiter: limiter.clone(),
        time_slices: yield_request.clone(),
        timer: Arc::new(SystemTimer),
        clock: Arc::new(SystemClock),
        shutdown: Arc::new(SystemShutdown(stop.clone())),
        worker: Worker { id, delay },
    });
    run_executor::start(
        &shared.run_submitter,
        dispatcher,
        yield_request,
        shared.config.runs,
        stop,
        tasks,
    );

    direct_messages::start(shared, &stores, limiter, stop, tasks);
    contact_exports::start(shared, &stores, stop, tasks);
    erasures::start(shared, &stores, stop, tasks);
    let campaigns = Arc::new(stores.campaigns(shared));
    worker_loop::spawn(tasks, stop, "schedule", SCHEDULE_INTERVAL, move || {
        let campaigns = campaigns.clone();
        async move {
            let enqueued = campaigns.enqueue_due_starts(DUE_BATCH).await;
            let retried = campaigns.start_due_retries(DUE_BATCH).await?;
            Ok(enqueued? + retried > 0)
        }
    });

    let callbacks = Arc::new(stores.callbacks(shared));
    worker_loop::spawn(tasks, stop, "callbacks", CALLBACKS_INTERVAL, move || {
        let callbacks = callbacks.clone();
        async move { callbacks.process_next().await }
    });
    sweep_idempotency_keys(&stores, stop, tasks);
    billing::start(shared, &stores, stop, tasks)?;
    administration::start(shared, &stores, stop, tasks)?;
    api_keys::start(shared, &stores, stop, tasks);
    held_messages::start(shared, &stores, stop, tasks);
    mail::start(shared, &stores, stop, tasks);
    message_files::start(shared, &stores, stop, tasks);
    partitions::start(shared, &stores, stop, tasks);
    verification::start(shared, &stores, stop, tasks)?;
    relays::start(&shared.signals, &stores, stop, tasks);
    retention::start(shared, &stores, stop, tasks);
    rfm::start(shared, stop, tasks)?;
    segment_counts::start(&stores, stop, tasks);
    materialize_sends(runs.clone(), stop, tasks);
    sweep_queue(runs.clone(), stop, tasks);
    analyze_tables(PgStatistics::new(stores.owner.clone()), stop, tasks);
    webhooks::start(shared, &stores, stop, tasks)?;
    fail_unknown(shared, runs, Arc::new(stores.conversations()), stop, tasks);
    Ok(())
}

fn sweep_idempotency_keys(stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let keys = stores.idempotency();
    worker_loop::spawn(tasks, stop, "idempotency_keys", SWEEP_INTERVAL, move || {
        let keys = keys.clone();
        async move { keys.sweep(SWEEP_BATCH).await.map(|swept| swept > 0) }
    });
}

/// Materializes the sends of large audiences and resets those of large retries.
fn materialize_sends(runs: Arc<dyn RunSweepStore>, stop: &CancellationToken, tasks: &TaskTracker) {
    let iteration = move || {
        let runs = runs.clone();
        async move {
            for _ in 0..MATERIALIZE_BATCH {
                if runs.materialize_sends().await? == WorkOutcome::Done {
                    break;
                }
            }
            Ok(false)
        }
    };
    worker_loop::spawn(tasks, stop, "recipient_batches", MATERIALIZE_INTERVAL, iteration);
}

/// Deletes queue rows that outlived their run, and folds the counters of ended campaigns.
fn sweep_queue(runs: Arc<dyn RunSweepStore>, stop: &CancellationToken, tasks: &TaskTracker) {
    let iteration = move || {
        let runs = runs.clone();
        async move {
            let swept = runs.sweep_queue(SWEEP_BATCH).await?;
            Ok(swept + runs.fold_counters(FOLD_BATCH).await? > 0)
        }
    };
    worker_loop::spawn(tasks, stop, "run_queue", SWEEP_INTERVAL, iteration);
}

/// Refreshes the planner statistics of tables that grew quickly.
fn analyze_tables(statistics: PgStatistics, stop: &CancellationToken, tasks: &TaskTracker) {
    let iteration = move || {
        let statistics = statistics.clone();
        async move {
            for _ in 0..ANALYZE_BATCH {
                if !statistics.refresh().await? {
                    break;
                }
            }
            Ok(false)
        }
    };
    worker_loop::spawn(tasks, stop, "statistics", STATISTICS_INTERVAL, iteration);
}

/// Fails sends and replies whose outcome stayed unknown for `SEND_UNKNOWN_TTL`.
fn fail_unknown(
    shared: &Shared,
    runs: Arc<dyn RunSweepStore>,
    conversations: Arc<dyn ConversationStore>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let ttl = shared.config.send_unknown_ttl;
    let interval = unknown_interval(ttl);
    let sends = move || {
        let runs = runs.clone();
        async move { runs.fail_unknown(ttl, UNKNOWN_BATCH).await.map(|failed| failed > 0) }
    };
    let replies = move || {
        let conversations = conversations.clone();
        async move {
            let failed = conversations.fail_unknown(ttl, UNKNOWN_BATCH).await?;
            Ok(failed > 0)
        }
    };
    worker_loop::spawn(tasks, stop, "unknown_sends", interval, sends);
    worker_loop::spawn(tasks, stop, "unknown_replies", interval, replies);
}
