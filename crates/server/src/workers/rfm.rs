//! The rounds of RFM: accounts get their nights, and what is due is calculated.

use std::sync::Arc;
use std::time::Duration;

use recado_domain::analytics::{RfmClaim, RfmWork};
use recado_domain::shared::StoreError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::{Shared, Stores};

/// How long each kind of round rests when there was nothing to do.
const LOOK_FOR_ACCOUNTS: Duration = Duration::from_secs(300);
const LOOK_FOR_DUE: Duration = Duration::from_secs(2);

/// How often a calculation that goes on is kept from whoever looks for one.
const RENEWAL: Duration = Duration::from_secs(10);

/// Connections of its own, of each kind: a calculation keeps one for as long as it takes.
const CONNECTIONS: usize = 2;

pub(super) fn start(shared: &Shared, stop: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let stores: Stores = shared.stores(CONNECTIONS, 1)?;
    let work = Arc::new(stores.rfm_work(shared));
    let planning = work.clone();
    let plan = move || {
        let work = planning.clone();
        async move { work.plan().await }
    };
    worker_loop::spawn(tasks, stop, "rfm_schedule", LOOK_FOR_ACCOUNTS, plan);
    let (wake, stopping) = (Some(shared.customers.clone()), stop.clone());
    let calculate = move || {
        let (work, stop) = (work.clone(), stopping.clone());
        async move {
            let Some(claim) = work.claim().await? else {
                return Ok(false);
            };
            carry_out(&work, &claim, &stop).await?;
            Ok(true)
        }
    };
    let backoff = Backoff::idle(LOOK_FOR_DUE);
    tasks.spawn(worker_loop::run("rfm", backoff, stop.clone(), wake, calculate));
    Ok(())
}

/// Until it is done, lost, or the server stops: what is dropped in the middle leaves nothing behind, and comes again.
async fn carry_out(work: &RfmWork, claim: &RfmClaim, stop: &CancellationToken) -> Result<(), StoreError> {
    let kept = async {
        loop {
            tokio::time::sleep(RENEWAL).await;
            match work.renew(claim).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::warn!(cause = ?error, "a calculation could not be kept"),
            }
        }
    };
    tokio::select! {
        done = work.calculate(claim) => match done? {
            true => tracing::debug!(account = %claim.account_id, "customers were scored"),
            false => tracing::warn!(account = %claim.account_id, "somebody else scores these customers"),
        },
        () = kept => tracing::warn!(account = %claim.account_id, "somebody else scores these customers"),
        () = stop.cancelled() => work.give_back(claim).await?,
    }
    Ok(())
}
