//! The handles by which requests reach the workers of the process.

use std::sync::{Arc, Mutex, PoisonError};

use recado_domain::campaigns::{CampaignError, QueuedRun, RunReport};
use recado_domain::shared::{EventKind, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The maximum number of submitted runs that wait to be started.
const MAX_SUBMITTED_RUNS: usize = 256;

type ReportSender = oneshot::Sender<Result<Option<RunReport>, StoreError>>;
pub type SubmittedRun = (QueuedRun, Option<Uuid>, ReportSender);

/// Wakes workers after a change.
#[derive(Clone, Default)]
pub struct WorkerSignals {
    audit: Arc<Notify>,
    notification: Arc<Notify>,
    webhook: Arc<Notify>,
    /// Wakes the deliverer of webhooks.
    pub deliveries: Arc<Notify>,
    /// Wakes the mail worker.
    pub mail: Arc<Notify>,
    /// Wakes the RFM worker.
    pub rfm: Arc<Notify>,
    /// Wakes the worker that sends direct messages.
    pub messengers: Arc<Notify>,
}

impl WorkerSignals {
    /// Wakes all relays after a change, which may have appended outbox events of any kind.
    pub fn wake_relays(&self) {
        for &kind in EventKind::ALL {
            self.of(kind).notify_one();
        }
    }

    /// Wakes the deliverer after deliveries were queued.
    pub fn wake_deliverer(&self) {
        self.deliveries.notify_one();
    }

    /// Wakes the mail worker after mail was queued.
    pub fn wake_mail(&self) {
        self.mail.notify_one();
    }

    /// Wakes the RFM worker after a calculation was requested.
    pub fn wake_rfm(&self) {
        self.rfm.notify_one();
    }

    /// Wakes the worker that sends direct messages after messages were stored.
    pub fn wake_messengers(&self) {
        self.messengers.notify_one();
    }

    pub fn of(&self, kind: EventKind) -> &Arc<Notify> {
        match kind {
            EventKind::Audit => &self.audit,
            EventKind::Notification => &self.notification,
            EventKind::Webhook => &self.webhook,
        }
    }
}

/// Submits runs of requests and waits for their end.
#[derive(Clone)]
pub struct RunSubmitter {
    has_workers: bool,
    stop: CancellationToken,
    sender: mpsc::Sender<SubmittedRun>,
    receiver: Arc<Mutex<Option<mpsc::Receiver<SubmittedRun>>>>,
}

impl RunSubmitter {
    /// `has_workers`: whether this process executes runs itself, or leaves them to other processes.
    pub fn new(has_workers: bool, stop: CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_SUBMITTED_RUNS);
        Self {
            has_workers,
            stop,
            sender,
            receiver: Arc::new(Mutex::new(Some(receiver))),
        }
    }

    /// A new worker id for a run that this process will execute. None: it executes no runs.
    pub fn worker(&self) -> Option<Uuid> {
        self.has_workers.then(Uuid::now_v7)
    }

    /// Whether the server is stopping.
    pub fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Submits a run, which `worker` has claimed if it is given, and waits until the run ends or pauses. The run
    /// continues if the caller stops waiting.
    pub async fn run_to_end(&self, run: QueuedRun, worker: Option<Uuid>) -> Result<RunReport, CampaignError> {
        let (report_sender, report) = oneshot::channel();
        if self.sender.send((run, worker, report_sender)).await.is_err() {
            return Err(CampaignError::Interrupted);
        }
        match report.await {
            Ok(Ok(Some(report))) => Ok(report),
            Ok(Ok(None)) => Err(CampaignError::NotFound),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(CampaignError::Interrupted),
        }
    }

    /// The submitted runs, for the one executor of the process. None: they are taken.
    pub fn take_receiver(&self) -> Option<mpsc::Receiver<SubmittedRun>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
