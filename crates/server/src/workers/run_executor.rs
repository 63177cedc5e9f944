//! Where runs are handed in and carried out: those a request waits for, and those found in the queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use recado_domain::campaigns::{CampaignError, CampaignStatus, Dispatcher, QueuedRun, RunEnd, RunReport, RunStore};
use recado_domain::shared::StoreError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::worker_loop::Backoff;
use super::{LOOK_FOR_RUNS, TokioSendRateLimiter, worker_loop};
use crate::telemetry::traces;

/// Runs handed in and not yet taken up.
const MAX_SUBMITTED_RUNS: usize = 256;

/// How often somebody who waits for a run elsewhere looks at it.
const LOOK_AT_RUN: Duration = Duration::from_millis(250);

/// The longest rest between looking for runs, while that fails.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// How long every run may go before one has to make room for one that waits.
const TIME_SLICE: Duration = Duration::from_secs(2);

/// How long a run that went wrong is tried to be given up. A lease is not longer.
const GIVE_UP: Duration = Duration::from_secs(30);

type Answer = oneshot::Sender<Result<Option<RunReport>, StoreError>>;
type SubmittedRun = (QueuedRun, Option<Uuid>, Answer);

/// The requests' side: hand in a run and wait for its end.
#[derive(Clone)]
pub struct RunSubmitter {
    has_workers: bool,
    stop: CancellationToken,
    sender: mpsc::Sender<SubmittedRun>,
    receiver: Arc<Mutex<Option<mpsc::Receiver<SubmittedRun>>>>,
}

impl RunSubmitter {
    /// `has_workers`: whether this process carries runs out itself, or leaves them to others.
    pub fn new(has_workers: bool, stop: CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_SUBMITTED_RUNS);
        Self {
            has_workers,
            stop,
            sender,
            receiver: Arc::new(Mutex::new(Some(receiver))),
        }
    }

    /// Names a worker of this process, if it has some: another one for every run.
    pub fn worker(&self) -> Option<Uuid> {
        self.has_workers.then(Uuid::now_v7)
    }

    /// Whether the server is about to stop.
    pub fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Hands a run in, held by this worker if it is held, and waits until it is over, or waits for somebody. The run goes
    /// on without whoever waits.
    pub async fn carry_out(&self, run: QueuedRun, worker: Option<Uuid>) -> Result<RunReport, CampaignError> {
        let (answer, end) = oneshot::channel();
        if self.sender.send((run, worker, answer)).await.is_err() {
            return Err(CampaignError::Interrupted);
        }
        match end.await {
            Ok(Ok(Some(report))) => Ok(report),
            Ok(Ok(None)) => Err(CampaignError::NotFound),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(CampaignError::Interrupted),
        }
    }
}

/// Starts the other side: takes what is handed in, and looks for runs that nobody holds.
pub(super) fn start(
    run_submitter: &RunSubmitter,
    dispatcher: Arc<Dispatcher>,
    limiter: Arc<TokioSendRateLimiter>,
    runs: Arc<dyn RunStore>,
    capacity: usize,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let executor = RunExecutor {
        dispatcher,
        limiter,
        runs,
        stop: stop.clone(),
        permits: Arc::new(Semaphore::new(capacity)),
        taken: Arc::new(Mutex::new(Instant::now())),
    };
    let receiver = run_submitter
        .receiver
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(receiver) = receiver {
        tasks.spawn(executor.clone().answer(receiver, tasks.clone()));
    }
    let (finder, spawned) = (executor, tasks.clone());
    tasks.spawn(worker_loop::run(
        "runs",
        // A database that is back finds its runs going on soon.
        Backoff {
            idle: LOOK_FOR_RUNS,
            longest: LONGEST_REST,
        },
        stop.clone(),
        None,
        move || {
            let (executor, tasks) = (finder.clone(), spawned.clone());
            async move { executor.take_one(&tasks).await }
        },
    ));
}

/// Waits, without workers of its own, for runs that others carry out.
pub(super) fn start_waiting(
    run_submitter: &RunSubmitter,
    runs: Arc<dyn RunStore>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let receiver = run_submitter
        .receiver
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(mut receiver) = receiver else { return };
    let (stop, spawned) = (stop.clone(), tasks.clone());
    tasks.spawn(async move {
        while let Some((run, _, answer)) = next(&mut receiver, &stop).await {
            let (runs, stop) = (runs.clone(), stop.clone());
            spawned.spawn(async move {
                if let Some(end) = wait_elsewhere(runs.as_ref(), run, &stop).await {
                    answer.send(end).ok();
                }
            });
        }
    });
}

#[derive(Clone)]
struct RunExecutor {
    dispatcher: Arc<Dispatcher>,
    limiter: Arc<TokioSendRateLimiter>,
    runs: Arc<dyn RunStore>,
    stop: CancellationToken,
    permits: Arc<Semaphore>,
    taken: Arc<Mutex<Instant>>,
}

impl RunExecutor {
    /// The same with another worker.
    fn named(&self, worker: Uuid) -> Self {
        Self {
            dispatcher: Arc::new(self.dispatcher.named(worker)),
            ..self.clone()
        }
    }

    async fn answer(self, mut receiver: mpsc::Receiver<SubmittedRun>, tasks: TaskTracker) {
        while let Some((run, worker, answer)) = next(&mut receiver, &self.stop).await {
            let executor = self.named(worker.unwrap_or_else(Uuid::now_v7));
            tasks.spawn(async move {
                let end = match executor.dispatch(run).await {
                    // What stopped and is still sending waits for somebody, be it that its account is suspended.
                    Ok(RunEnd::Over(report)) => Some(Ok(Some(RunReport {
                        paused: report.paused || report.status == CampaignStatus::Sending,
                        ..report
                    }))),
                    Ok(RunEnd::Gone) => Some(Ok(None)),
                    Ok(RunEnd::HandedOver | RunEnd::Postponed { .. }) => {
                        wait_elsewhere(executor.runs.as_ref(), run, &executor.stop).await
                    }
                    Err(error) => {
                        executor.drop_run(run, &error).await;
                        wait_elsewhere(executor.runs.as_ref(), run, &executor.stop).await
                    }
                };
                if let Some(end) = end {
                    answer.send(end).ok();
                }
            });
        }
    }

    async fn take_one(&self, tasks: &TaskTracker) -> Result<bool, StoreError> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            // Time slices: a short run must not wait for the end of many long ones. Who has just begun is let be.
            if self.last_taken() > TIME_SLICE && self.runs.waiting().await? {
                self.limiter.request_yield();
            }
            return Ok(false);
        };
        let executor = self.named(Uuid::now_v7());
        let Some(run) = executor.dispatcher.take().await? else {
            return Ok(false);
        };
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        tasks.spawn(async move {
            if let Err(error) = executor.dispatch(run).await {
                executor.drop_run(run, &error).await;
            }
            drop(permit);
        });
        Ok(true)
    }

    /// This process's part in a run.
    async fn dispatch(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        let end = self.dispatcher.carry_out(run).instrument(traces::dispatch(run)).await;
        if let Ok(RunEnd::Postponed { delay, reason }) = &end {
            tracing::warn!(%reason, %delay, campaign = %run.campaign_id, "a run is postponed");
        }
        end
    }

    /// How long ago a run was taken up.
    fn last_taken(&self) -> Duration {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Gives a run up that went wrong, as soon as the store hears of it; at the latest its lease runs out.
    async fn drop_run(&self, run: QueuedRun, error: &StoreError) {
        tracing::warn!(cause = %worker_loop::chain(error), campaign = %run.campaign_id, "a run was dropped");
        let give_up = async {
            while let Err(error) = self.dispatcher.abandon(run).await {
                tracing::debug!(cause = %worker_loop::chain(&error), campaign = %run.campaign_id,
                    "a run cannot be given back");
                tokio::time::sleep(LOOK_FOR_RUNS).await;
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            done = tokio::time::timeout(GIVE_UP, give_up) => {
                if done.is_err() {
                    tracing::warn!(campaign = %run.campaign_id, "a run was not given back, its lease will expire");
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

/// Looks at a run that another worker holds until it is over. None: this server stops first.
async fn wait_elsewhere(
    runs: &dyn RunStore,
    run: QueuedRun,
    stop: &CancellationToken,
) -> Option<Result<Option<RunReport>, StoreError>> {
    loop {
        match runs.report(run).await {
            Ok(Some(report)) if report.status == CampaignStatus::Sending && !report.paused => {}
            // A database that is away comes back; the run is durable.
            Err(StoreError::Unavailable(_)) => {}
            end => return Some(end),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(LOOK_AT_RUN) => {}
        }
    }
}
