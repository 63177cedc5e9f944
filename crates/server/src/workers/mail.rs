//! The mail worker. It runs only if `SMTP_URL` is set.

use std::sync::Arc;
use std::time::Duration;

use recado_domain::mail::MailOutcome;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::{Shared, Stores};

const INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let Some(sender) = stores.mail_sender(shared) else {
        return;
    };
    let sender = Arc::new(sender);
    let mailed = Some(shared.signals.mail.clone());
    tasks.spawn(worker_loop::run(
        "mail",
        Backoff::idle(INTERVAL),
        stop.clone(),
        mailed,
        move || {
            let sender = sender.clone();
            async move { sender.deliver_next().await.map(|outcome| log_outcome(&outcome)) }
        },
    ));
}

/// Logs failures. Returns whether there may be more mail.
fn log_outcome(outcome: &MailOutcome) -> bool {
    match outcome {
        MailOutcome::Nothing => return false,
        MailOutcome::Sent => {}
        MailOutcome::Deferred { id, cause, delay } => {
            tracing::warn!(mail = %id, %cause, retry_in = %delay, "a mail was not sent");
        }
        MailOutcome::GivenUp {
            id,
            account_id,
            attempts,
            cause,
        } => tracing::error!(mail = %id, account = %account_id, attempts, %cause, "a mail was abandoned"),
    }
    true
}
