//! The worker of erasures: it takes their steps, in batches, one erasure after the other.

use std::sync::Arc;

use time::Duration;

use super::steps::LEASE;
use super::{ArchiveEraser, BatchEnd, ErasureClaim, ErasureQueue, ErasureRecord, ErasureRecords, ErasureStep};
use crate::contacts::IdentifierHasher;
use crate::media::MessageFileStorage;
use crate::shared::{Ids, StoreError};

/// The most rows of a batch.
const BATCH: i64 = 500;

/// The most files that are released at once: their bytes are deleted within the lease.
const FILE_BATCH: i64 = 20;

/// The batches of one iteration. Then the next erasure is served.
const BATCHES_PER_ITERATION: u32 = 200;

/// The pause before what has not ended is looked at again.
const WAIT: Duration = Duration::seconds(1);

/// How long an erasure waits after a failure.
const FAILURE_PAUSE: Duration = Duration::seconds(30);

/// Removes what is stored of erased contacts.
pub struct ErasureWorker {
    pub queue: Arc<dyn ErasureQueue>,
    pub files: Arc<dyn MessageFileStorage>,
    pub archives: ArchiveEraser,
    /// None: there is no file store, so a restored backup has to be erased by hand.
    pub records: Option<Arc<dyn ErasureRecords>>,
    pub hasher: Arc<dyn IdentifierHasher>,
    pub ids: Arc<dyn Ids>,
}

impl ErasureWorker {
    /// Serves the next erasure. Returns false if none is due.
    pub async fn run_next(&self) -> Result<bool, StoreError> {
        let Some(claim) = self.queue.claim(self.ids.next(), LEASE).await? else {
            return Ok(false);
        };
        let ended = self.run(&claim).await;
        let delay = match &ended {
            Ok(BatchEnd::Done | BatchEnd::Lost) => return Ok(true),
            Ok(BatchEnd::More) => Duration::ZERO,
            Ok(BatchEnd::Wait) => WAIT,
            Err(_) => FAILURE_PAUSE,
        };
        self.queue.postpone(&claim, delay).await?;
        ended.map(|_| true)
    }

    /// Takes the steps that are left. `Done`: the receipt is done.
    async fn run(&self, claim: &ErasureClaim) -> Result<BatchEnd, StoreError> {
        let mut step = claim.step;
        for _ in 0..BATCHES_PER_ITERATION {
            match self.batch(claim, step).await? {
                BatchEnd::More => {}
                BatchEnd::Done => {
                    let next = step.next();
                    if !self.queue.advance(claim, next).await? {
                        return Ok(BatchEnd::Lost);
                    }
                    let Some(next) = next else { return Ok(BatchEnd::Done) };
                    step = next;
                }
                end @ (BatchEnd::Wait | BatchEnd::Lost) => return Ok(end),
            }
        }
        Ok(BatchEnd::More)
    }

    async fn batch(&self, claim: &ErasureClaim, step: ErasureStep) -> Result<BatchEnd, StoreError> {
        if step == ErasureStep::Record {
            return self.record(claim).await.map(|()| BatchEnd::Done);
        }
        if step == ErasureStep::ArchivedSends {
            return self.archives.step(claim).await;
        }
        if !step.has_files() {
            return self.queue.run_batch(claim, step, BATCH, LEASE).await;
        }
        let (end, released) = self.queue.release_files(claim, step, FILE_BATCH, LEASE).await?;
        for path in released.iter().flat_map(|file| &file.paths) {
            let deleted = self.files.delete_file(path).await;
            deleted.map_err(|error| StoreError::Unavailable(error.into()))?;
        }
        if !released.is_empty() {
            self.queue.record_deleted(claim, step, &released).await?;
        }
        Ok(end)
    }

    async fn record(&self, claim: &ErasureClaim) -> Result<(), StoreError> {
        let Some(records) = &self.records else {
            return Ok(());
        };
        let identifiers = claim.marks.opt_out_identifiers();
        let opted_out = identifiers.iter().filter(|_| claim.marks.has_opted_out);
        let hashes = opted_out.map(|identifier| hex::encode(self.hasher.hash(claim.account_id, identifier)));
        let record = ErasureRecord {
            account_id: claim.account_id,
            contact_id: claim.contact_id,
            requested_at: claim.requested_at,
            opt_outs: hashes.collect(),
        };
        let written = records.write(&record).await;
        written.map_err(|error| StoreError::Unavailable(error.into()))
    }
}
