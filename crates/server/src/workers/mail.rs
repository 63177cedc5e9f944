//! The round that carries mail out, where there is a mail server.

use std::sync::Arc;

use recado_domain::mail::Delivery;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rounds::Rest;
use super::{LOOK_FOR_MAIL, rounds};
use crate::wiring::{Shared, Stores};

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let Some(post) = stores.post(shared) else { return };
    let post = Arc::new(post);
    let mailed = Some(shared.mailed.clone());
    tasks.spawn(rounds::run(
        "mail",
        Rest::idle(LOOK_FOR_MAIL),
        stop.clone(),
        mailed,
        move || {
            let post = post.clone();
            async move { post.deliver_next().await.map(|delivery| tell(&delivery)) }
        },
    ));
}

/// Tells the log what did not go well. Returns whether there may be more to do.
fn tell(delivery: &Delivery) -> bool {
    match delivery {
        Delivery::Nothing => return false,
        Delivery::Sent => {}
        Delivery::Deferred { id, cause, delay } => {
            tracing::warn!(mail = %id, %cause, retry_in = %delay, "a mail was not sent");
        }
        Delivery::GivenUp {
            id,
            account_id,
            attempts,
            cause,
        } => tracing::error!(mail = %id, account = %account_id, attempts, %cause, "a mail was given up"),
    }
    true
}
