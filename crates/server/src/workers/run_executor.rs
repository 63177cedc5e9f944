//! Executes runs: those that a request submits and waits for, and those of the run queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use recado_domain::campaigns::{CampaignStatus, Dispatcher, QueuedRun, RunEnd, RunReport, RunStore, TimeSlices};
use recado_domain::shared::StoreError;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::worker_loop::{self, Backoff};
use crate::telemetry::traces;
use recado_api::worker_handles::{RunSubmitter, SubmittedRun};

/// The pause after an iteration that claimed no run.
const RUNS_INTERVAL: Duration = Duration::from_millis(500);

/// The interval at which a request polls a run that another worker executes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The longest backoff while claiming runs fails.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// How long runs keep their permits before one must yield to a waiting run.
const TIME_SLICE: Duration = Duration::from_secs(2);

/// How long the release of a failed run is retried. The lease of a run is no longer than this.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the executor: it executes submitted runs and claims runs from the queue.
pub(super) fn start(
    run_submitter: &RunSubmitter,
    dispatcher: Arc<Dispatcher>,
    yield_request: Arc<YieldRequest>,
    capacity: usize,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let executor = RunExecutor {
        dispatcher,
        yield_request,
        stop: stop.clone(),
        permits: Arc::new(Semaphore::new(capacity)),
        last_claim: Arc::new(Mutex::new(Instant::now())),
    };
    if let Some(receiver) = run_submitter.take_receiver() {
        tasks.spawn(executor.clone().execute_submitted(receiver, tasks.clone()));
    }
    let (claimer, claimed_tasks) = (executor, tasks.clone());
    tasks.spawn(worker_loop::run(
        "runs",
        // A short backoff, so that runs continue soon after a database outage.
        Backoff {
            idle: RUNS_INTERVAL,
            longest: MAX_BACKOFF,
        },
        stop.clone(),
        None,
        move || {
            let (executor, tasks) = (claimer.clone(), claimed_tasks.clone());
            async move { executor.claim_next(&tasks).await }
        },
    ));
}

/// Reports on submitted runs that the workers of other processes execute.
pub(super) fn start_without_workers(
    run_submitter: &RunSubmitter,
    runs: Arc<dyn RunStore>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let Some(mut receiver) = run_submitter.take_receiver() else {
        return;
    };
    let (stop, waiting_tasks) = (stop.clone(), tasks.clone());
    tasks.spawn(async move {
        while let Some((run, _, report_sender)) = next(&mut receiver, &stop).await {
            let (runs, stop) = (runs.clone(), stop.clone());
            waiting_tasks.spawn(async move {
                if let Some(end) = poll_report(runs.as_ref(), run, &stop).await {
                    report_sender.send(end).ok();
                }
            });
        }
    });
}

/// Asks one run to yield its permit, because another run waits for one.
#[derive(Default)]
pub(super) struct YieldRequest(AtomicBool);

impl YieldRequest {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl TimeSlices for YieldRequest {
    fn should_yield(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct RunExecutor {
    dispatcher: Arc<Dispatcher>,
    yield_request: Arc<YieldRequest>,
    stop: CancellationToken,
    permits: Arc<Semaphore>,
    last_claim: Arc<Mutex<Instant>>,
}

impl RunExecutor {
    /// The same executor with another worker id.
    fn with_worker(&self, worker: Uuid) -> Self {
        Self {
            dispatcher: Arc::new(self.dispatcher.with_worker(worker)),
            ..self.clone()
        }
    }

    async fn execute_submitted(self, mut receiver: mpsc::Receiver<SubmittedRun>, tasks: TaskTracker) {
        while let Some((run, worker, report_sender)) = next(&mut receiver, &self.stop).await {
            let executor = self.with_worker(worker.unwrap_or_else(Uuid::now_v7));
            tasks.spawn(async move {
                let end = match executor.dispatch(run).await {
                    // A run that stopped while `sending` counts as paused, for example if its account is suspended.
                    Ok(RunEnd::Over(report)) => Some(Ok(Some(RunReport {
                        paused: report.paused || (report.status == CampaignStatus::Sending && !report.is_waiting()),
                        ..report
                    }))),
                    Ok(RunEnd::Gone) => Some(Ok(None)),
                    Ok(RunEnd::HandedOver | RunEnd::Postponed { .. }) => {
                        poll_report(executor.dispatcher.runs.as_ref(), run, &executor.stop).await
                    }
                    Err(error) => {
                        executor.release(run, &error).await;
                        poll_report(executor.dispatcher.runs.as_ref(), run, &executor.stop).await
                    }
                };
                if let Some(end) = end {
                    report_sender.send(end).ok();
                }
            });
        }
    }

    async fn claim_next(&self, tasks: &TaskTracker) -> Result<bool, StoreError> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            // Time slices: a short run must not wait for the end of long runs. For one slice after the latest claim, no
            // run has to yield.
            if self.time_since_claim() > TIME_SLICE && self.dispatcher.queue.has_waiting().await? {
                self.yield_request.set();
            }
            return Ok(false);
        };
        let executor = self.with_worker(Uuid::now_v7());
        let Some(run) = executor.dispatcher.take().await? else {
            return Ok(false);
        };
        *self.last_claim.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        tasks.spawn(async move {
            if let Err(error) = executor.dispatch(run).await {
                executor.release(run, &error).await;
            }
            drop(permit);
        });
        Ok(true)
    }

    /// Sends messages of the run until it ends or another worker must continue it.
    async fn dispatch(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        let end = self.dispatcher.run(run).instrument(traces::dispatch(run)).await;
        if let Ok(RunEnd::Postponed { delay, reason }) = &end {
            tracing::warn!(%reason, %delay, campaign = %run.campaign_id, "postponed a run");
        }
        end
    }

    /// The time since the latest claim of a run.
    fn time_since_claim(&self) -> Duration {
        self.last_claim.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Releases a failed run, so that another worker can claim it. If that fails for `RELEASE_TIMEOUT`, the lease
    /// expires.
    async fn release(&self, run: QueuedRun, error: &StoreError) {
        tracing::warn!(cause = %worker_loop::chain(error), campaign = %run.campaign_id, "a run failed and is released");
        let release = async {
            while let Err(error) = self.dispatcher.abandon(run).await {
                tracing::debug!(cause = %worker_loop::chain(&error), campaign = %run.campaign_id,
                    "a run cannot be released");
                tokio::time::sleep(RUNS_INTERVAL).await;
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            result = tokio::time::timeout(RELEASE_TIMEOUT, release) => {
                if result.is_err() {
                    tracing::warn!(campaign = %run.campaign_id, "a run was not released, its lease will expire");
                }
            }
        }
    }
}

async fn next(receiver: &mut mpsc::Receiver<SubmittedRun>, stop: &CancellationToken) -> Option<SubmittedRun> {
    tokio::select! {
        () = stop.cancelled() => None,
        submitted = receiver.recv() => submitted,
    }
}

/// Polls a run that another worker executes until it ends, pauses or waits. None: this server stops first.
async fn poll_report(
    runs: &dyn RunStore,
    run: QueuedRun,
    stop: &CancellationToken,
) -> Option<Result<Option<RunReport>, StoreError>> {
    loop {
        match runs.report(run).await {
            Ok(Some(report)) if report.status == CampaignStatus::Sending && !report.paused && !report.is_waiting() => {}
            // Waits for the database to return: the run is durable.
            Err(StoreError::Unavailable(_)) => {}
            end => return Some(end),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yield_request_applies_to_one_run() {
        let request = YieldRequest::default();
        assert!(!request.should_yield());
        request.set();
        request.set();
        assert!(request.should_yield() && !request.should_yield());
    }
}
