//! The loop of a worker: iterations without a pause while there is work, else a pause.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use recado_domain::shared::StoreError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) use recado_api::error_chain::chain;
use recado_api::telemetry::WorkerMetrics;

/// The pause after a panic of work that has its own loop.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of expired rows that one statement deletes.
pub(super) const SWEEP_BATCH: i64 = 1000;

/// How long a worker that deletes expired rows waits after an iteration without work.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of messages with an unknown outcome that one iteration fails.
pub(super) const UNKNOWN_BATCH: i64 = 1000;

/// How long a worker that fails unknown outcomes waits after an iteration without work.
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(5);

/// The pauses of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// The pause after an iteration without work.
    pub(super) idle: Duration,
    /// The maximum pause after consecutive failures.
    pub(super) longest: Duration,
}

impl Backoff {
    /// For work without a documented maximum delay after an outage.
    pub(super) fn idle(idle: Duration) -> Self {
        let longest = Duration::from_secs(30);
        Self { idle, longest }
    }
}

/// The interval at which outcomes are looked for that have been unknown for `ttl`.
pub(super) fn unknown_interval(ttl: time::Duration) -> Duration {
    UNKNOWN_INTERVAL
        .min(ttl.try_into().unwrap_or(UNKNOWN_INTERVAL))
        .max(Duration::from_millis(100))
}

/// Starts a worker that runs by its interval only.
pub(super) fn spawn<F, Fut>(
    tasks: &TaskTracker,
    stop: &CancellationToken,
    name: &'static str,
    idle: Duration,
    iteration: F,
) where
    F: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output = Result<bool, StoreError>> + Send + 'static,
{
    tasks.spawn(run(name, Backoff::idle(idle), stop.clone(), None, iteration));
}

/// Like [`spawn`], for work with errors other than `StoreError`.
pub(super) fn spawn_any<F, Fut, E>(
    tasks: &TaskTracker,
    stop: &CancellationToken,
    name: &'static str,
    backoff: Backoff,
    iteration: F,
) where
    F: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output = Result<bool, E>> + Send + 'static,
    E: std::error::Error + Send + 'static,
{
    tasks.spawn(run_any(name, backoff, stop.clone(), None, iteration));
}

/// Runs `iteration` until the server stops. `Ok(true)`: there may be more work, so the next iteration follows at once.
/// `Ok(false)`: no work, so the worker pauses until its interval ends or it is woken. An error or panic is logged, and
/// the pause doubles with every consecutive failure.
pub(super) async fn run<F, Fut>(
    name: &'static str,
    backoff: Backoff,
    stop: CancellationToken,
    wake: Option<Arc<Notify>>,
    iteration: F,
) where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool, StoreError>>,
{
    run_any(name, backoff, stop, wake, iteration).await;
}

async fn run_any<F, Fut, E>(
    name: &'static str,
    backoff: Backoff,
    stop: CancellationToken,
    wake: Option<Arc<Notify>>,
    mut iteration: F,
) where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool, E>>,
    E: std::error::Error,
{
    let metrics = WorkerMetrics::of(name);
    let mut failures: u32 = 0;
    while !stop.is_cancelled() {
        match AssertUnwindSafe(async { iteration().await }).catch_unwind().await {
            Ok(Ok(true)) => {
                metrics.worked();
                failures = 0;
                continue;
            }
            Ok(Ok(false)) => {
                metrics.idle();
                failures = 0;
            }
            Ok(Err(error)) => {
                metrics.failed();
                failures = failures.saturating_add(1);
                tracing::warn!(worker = name, cause = %chain(&error), failures, "an iteration failed");
            }
            Err(_) => {
                metrics.panicked();
                failures = failures.saturating_add(1);
                tracing::error!(worker = name, failures, "an iteration panicked");
            }
        }
        let pause = match failures {
            0 => backoff.idle,
            failures => backoff
                .idle
                .saturating_mul(2_u32.saturating_pow(failures.min(10)))
                .min(backoff.longest),
        };
        let woken = async {
            match &wake {
                Some(wake) if failures == 0 => wake.notified().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
            () = woken => {}
        }
    }
}

/// Runs work that has its own loop, and restarts it after a panic.
pub(super) async fn restart_on_panic<Fut: Future<Output = ()>>(
    name: &'static str,
    metrics: &WorkerMetrics,
    work: impl Fn() -> Fut,
) {
    while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
        metrics.panicked();
        tracing::error!(worker = name, "a worker panicked and is restarted");
        tokio::time::sleep(PANIC_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn worker_backs_off_after_failures_and_wakes_early() {
        let iterations = Arc::new(AtomicU32::new(0));
        let (stop, wake) = (CancellationToken::new(), Arc::new(Notify::new()));
        let counted = iterations.clone();
        let worker = run(
            "test",
            Backoff::idle(Duration::from_secs(1)),
            stop.clone(),
            Some(wake.clone()),
            move || {
                let iteration = counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    match iteration {
                        0 | 1 => Err(StoreError::Corrupt("x".into())),
                        2 => Ok(true),
                        _ => Ok(false),
                    }
                }
            },
        );
        let worker = tokio::spawn(worker);
        let after = async |milliseconds: u64| {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            iterations.load(Ordering::SeqCst)
        };
        assert_eq!(after(1000).await, 1);
        // Pauses: two seconds after the first failure, four after the second, none after work, one without work.
        assert_eq!(after(2000).await, 2);
        assert_eq!(after(3500).await, 4);
        wake.notify_one();
        tokio::task::yield_now().await;
        assert_eq!(iterations.load(Ordering::SeqCst), 5);
        stop.cancel();
        worker.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn panic_ends_an_iteration_and_not_the_worker() {
        let (stop, mut iterations) = (CancellationToken::new(), 0);
        let stopping = stop.clone();
        run("test", Backoff::idle(Duration::from_secs(1)), stop, None, move || {
            iterations += 1;
            let (iteration, stop) = (iterations, stopping.clone());
            async move {
                assert!(iteration > 2, "injected panic of an iteration");
                stop.cancel();
                Ok(false)
            }
        })
        .await;
        let tries = AtomicU32::new(0);
        restart_on_panic("test", &WorkerMetrics::of("test"), || async {
            assert!(tries.fetch_add(1, Ordering::SeqCst) > 1, "injected panic of the work");
        })
        .await;
        assert_eq!(tries.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_does_not_exceed_its_maximum() {
        let began = tokio::time::Instant::now();
        let stop = CancellationToken::new();
        let (stopping, mut iterations) = (stop.clone(), 0);
        let backoff = Backoff {
            idle: Duration::from_millis(500),
            longest: Duration::from_secs(1),
        };
        run("test", backoff, stop, None, move || {
            iterations += 1;
            if iterations == 21 {
                stopping.cancel();
            }
            async { Err(StoreError::Corrupt("x".into())) }
        })
        .await;
        assert_eq!(began.elapsed(), Duration::from_secs(20));
    }
}
