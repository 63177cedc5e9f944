//! Background work: runs, callbacks left over, the outbox, sweeps. Every loop survives a failing round and backs off;
//! all of them end when the server stops.

mod desk;
mod pacer;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use recado_domain::campaigns::{Dispatcher, RunStore as _};
use recado_domain::idempotency::IdempotencyStore as _;
use recado_postgres::PgOutbox;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use desk::RunDesk;
pub use pacer::TokioPacer;

use crate::wiring::Shared;

/// Connections of all workers together, of each kind.
const CONNECTIONS: usize = 4;

/// Runs that one process carries out at the same time.
const RUNS: usize = 64;

/// Events moved in one transaction, and unknown sends failed in one round.
const RELAY_BATCH: i64 = 500;
const UNKNOWN_BATCH: i64 = 1000;

/// Old answers forgotten in one statement.
const SWEEP_BATCH: i64 = 1000;

/// How long each kind of worker rests when there was nothing to do.
const LOOK_FOR_RUNS: Duration = Duration::from_millis(500);
const LOOK_FOR_CALLBACKS: Duration = Duration::from_secs(1);
const LOOK_FOR_EVENTS: Duration = Duration::from_millis(500);
const SWEEP: Duration = Duration::from_secs(60);
const LOOK_FOR_UNKNOWN: Duration = Duration::from_secs(5);

/// For a server of routes alone: requests wait for runs that other processes carry out.
pub fn start_waiting(shared: &Shared, stop: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let stores = shared.stores(2, 2)?;
    desk::start_waiting(&shared.desk, Arc::new(stores.runs()), stop, tasks);
    Ok(())
}

/// Starts every worker on the current runtime. They end after `stop` is cancelled; `tasks` tells when.
pub fn start(shared: &Shared, stop: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let stores = shared.stores(CONNECTIONS, CONNECTIONS)?;
    let runs = Arc::new(stores.runs());
    let dispatcher = Arc::new(Dispatcher::new(
        runs.clone(),
        Arc::new(shared.whatsapp()?),
        stores.message_files(shared)?,
        shared.cipher.clone(),
        Arc::new(TokioPacer::new(stop.clone())),
        shared.desk.worker().unwrap_or_else(Uuid::now_v7),
        shared.config.message_delay,
    ));
    desk::start(&shared.desk, dispatcher, runs.clone(), RUNS, stop, tasks);

    let callbacks = Arc::new(stores.callbacks(shared));
    let stopping = stop.clone();
    tasks.spawn(rounds::run(
        "callbacks",
        LOOK_FOR_CALLBACKS,
        stopping,
        None,
        move || {
            let callbacks = callbacks.clone();
            async move { callbacks.process_next().await }
        },
    ));
    let outbox = PgOutbox::new(stores.platform.clone());
    let changed = Some(shared.changed.clone());
    tasks.spawn(rounds::run(
        "outbox",
        LOOK_FOR_EVENTS,
        stop.clone(),
        changed,
        move || {
            let outbox = outbox.clone();
            async move { outbox.relay(RELAY_BATCH).await.map(|moved| moved > 0) }
        },
    ));
    let keys = stores.idempotency();
    tasks.spawn(rounds::run("idempotency keys", SWEEP, stop.clone(), None, move || {
        let keys = keys.clone();
        async move { keys.sweep(SWEEP_BATCH).await.map(|swept| swept > 0) }
    }));
    let ttl = shared.config.send_unknown_ttl;
    let rest = LOOK_FOR_UNKNOWN
        .min(ttl.try_into().unwrap_or(LOOK_FOR_UNKNOWN))
        .max(Duration::from_millis(100));
    tasks.spawn(rounds::run("unknown sends", rest, stop.clone(), None, move || {
        let runs = runs.clone();
        async move { runs.fail_unknown(ttl, UNKNOWN_BATCH).await.map(|failed| failed > 0) }
    }));
    Ok(())
}
