//! RFM workers: one schedules the nightly calculation of each account, the other calculates what is due.

use std::sync::Arc;
use std::time::Duration;

use recado_domain::analytics::{RfmClaim, RfmWork};
use recado_domain::shared::{LeaseOutcome, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::{Shared, Stores};

/// How long each worker waits after an iteration without work.
const SCHEDULE_INTERVAL: Duration = Duration::from_secs(300);
const CALCULATION_INTERVAL: Duration = Duration::from_secs(2);

/// The interval at which a running calculation renews its lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// The tenant connections of these workers. A calculation occupies one until it ends.
const TENANT_CONNECTIONS: usize = 2;

pub(super) fn start(shared: &Shared, stop: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let stores: Stores = shared.stores(TENANT_CONNECTIONS, 1)?;
    let work = Arc::new(stores.rfm_work(shared));
    let planning = work.clone();
    let plan = move || {
        let work = planning.clone();
        async move { work.plan().await }
    };
    worker_loop::spawn(tasks, stop, "rfm_schedule", SCHEDULE_INTERVAL, plan);
    let (wake, stopping) = (Some(shared.signals.rfm.clone()), stop.clone());
    let calculate = move || {
        let (work, stop) = (work.clone(), stopping.clone());
        async move {
            let Some(claim) = work.claim().await? else {
                return Ok(false);
            };
            run_calculation(&work, &claim, &stop).await?;
            Ok(true)
        }
    };
    let backoff = Backoff::idle(CALCULATION_INTERVAL);
    tasks.spawn(worker_loop::run("rfm", backoff, stop.clone(), wake, calculate));
    Ok(())
}

/// Calculates until the end, the loss of the lease, or the stop of the server. A cancelled calculation stops
/// between two batches and is claimed again.
async fn run_calculation(work: &RfmWork, claim: &RfmClaim, stop: &CancellationToken) -> Result<(), StoreError> {
    let lease_lost = async {
        loop {
            tokio::time::sleep(RENEWAL_INTERVAL).await;
            match work.renew(claim).await {
                Ok(LeaseOutcome::Held) => {}
                Ok(LeaseOutcome::Lost) => return,
                Err(error) => tracing::warn!(cause = ?error, "the lease of an RFM calculation was not renewed"),
            }
        }
    };
    tokio::select! {
        done = work.calculate(claim) => match done? {
            LeaseOutcome::Held => tracing::debug!(account = %claim.account_id, "RFM scores calculated"),
            LeaseOutcome::Lost => tracing::warn!(account = %claim.account_id, "another worker took over the RFM calculation"),
        },
        () = lease_lost => tracing::warn!(account = %claim.account_id, "another worker took over the RFM calculation"),
        () = stop.cancelled() => work.give_back(claim).await?,
    }
    Ok(())
}
