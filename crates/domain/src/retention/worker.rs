//! The worker of retention: it removes what is over its term, in batches, one account after the other.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::archiver::{Lease, StepOutcome};
use super::{
    Archiver, ReleasedFile, RemovalCounts, RetainedRows, RetentionBounds, RetentionClaim, RetentionKind, RetentionRuns,
    RowBatch,
};
use crate::media::MessageFileStorage;
use crate::shared::{Ids, StoreError};

/// How long a claimed account belongs to its worker. Every batch renews it.
const LEASE: Duration = Duration::minutes(2);

/// The most rows that one transaction removes, and the most files that are released at once.
const BATCH: i64 = 1000;

/// The batches and campaigns of one iteration. Then the next account is served.
const STEPS_PER_TURN: u32 = 50;

/// How often an account has a run.
const RUN_INTERVAL: Duration = Duration::DAY;

/// How long a run waits after a failure.
const FAILURE_PAUSE: Duration = Duration::minutes(5);

/// Removes the rows and files of accounts that are over their term.
pub struct RetentionWorker {
    pub runs: Arc<dyn RetentionRuns>,
    pub files: Arc<dyn MessageFileStorage>,
    /// None: there is no file store, so no send is archived, and none leaves its table.
    pub archiver: Option<Archiver>,
    pub bounds: RetentionBounds,
    pub ids: Arc<dyn Ids>,
}

/// How an iteration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Iteration {
    /// The run is over.
    Done,
    /// More rows may be over their term.
    More,
    /// Another worker has the account, or its terms were changed.
    Lost,
}

/// The steps that an iteration has left.
struct Budget<'a> {
    runs: &'a dyn RetentionRuns,
    claim: &'a RetentionClaim,
    steps: u32,
}

impl Lease for Budget<'_> {
    async fn renew(&self) -> Result<bool, StoreError> {
        self.runs.renew(self.claim, LEASE).await
    }
}

impl Budget<'_> {
    /// Takes a step. An end of the iteration is the error.
    async fn take(&mut self) -> Result<Result<(), Iteration>, StoreError> {
        if self.steps == 0 {
            return Ok(Err(Iteration::More));
        }
        self.steps = self.steps.saturating_sub(1);
        Ok(self.renew().await?.then_some(()).ok_or(Iteration::Lost))
    }
}

impl RetentionWorker {
    /// Serves the next account. Returns false if none is due.
    pub async fn run_next(&self) -> Result<bool, StoreError> {
        let Some(claim) = self.runs.claim(self.ids.next(), LEASE, &self.bounds).await? else {
            return Ok(false);
        };
        let ended = match self.iteration(&claim).await {
            Ok(Iteration::More | Iteration::Lost) => Ok((Some(claim.now), None)),
            Ok(Iteration::Done) => self.count(&claim).await.map(|counts| match counts {
                Some(counts) => (self.next_run(&claim), Some(counts)),
                None => (Some(claim.now), None),
            }),
            Err(error) => Err(error),
        };
        let (next, counts) = match &ended {
            Ok((next, counts)) => (*next, counts.clone()),
            Err(_) => (Some(claim.now.saturating_add(FAILURE_PAUSE)), None),
        };
        self.runs.end(&claim, next, counts).await?;
        ended.map(|_| true)
    }

    /// The next run: when a shorter term takes effect, or after `RUN_INTERVAL`. None: the account keeps everything.
    fn next_run(&self, claim: &RetentionClaim) -> Option<OffsetDateTime> {
        let next = claim.now.saturating_add(RUN_INTERVAL);
        let next = claim.terms.next_effect_at(claim.now).map_or(next, |at| next.min(at));
        claim.terms.remove_any(&self.bounds).then_some(next)
    }

    /// One iteration. A failing kind does not keep the others from leaving; its error is returned at the end.
    async fn iteration(&self, claim: &RetentionClaim) -> Result<Iteration, StoreError> {
        let mut budget = Budget {
            runs: self.runs.as_ref(),
            claim,
            steps: STEPS_PER_TURN,
        };
        let mut failure = None;
        for part in PARTS {
            match self.part(claim, *part, &mut budget).await {
                Ok(Iteration::Done) => {}
                Ok(end @ (Iteration::More | Iteration::Lost)) => return failure.map_or(Ok(end), Err),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(Iteration::Done), Err)
    }

    async fn part(&self, claim: &RetentionClaim, part: Part, budget: &mut Budget<'_>) -> Result<Iteration, StoreError> {
        let horizon = |kind| claim.terms.horizon(kind, &self.bounds, claim.now);
        match part {
            Part::Files => {
                let latest = [RetentionKind::Media, RetentionKind::Messages].map(horizon);
                match latest.into_iter().flatten().max() {
                    Some(horizon) => self.remove_files(claim, horizon, budget).await,
                    None => Ok(Iteration::Done),
                }
            }
            Part::Rows(kind, rows) => match horizon(kind) {
                Some(horizon) => self.remove_rows(claim, rows, horizon, budget).await,
                None => Ok(Iteration::Done),
            },
            Part::Archives => self.archive(claim, horizon(RetentionKind::CampaignSends), budget).await,
        }
    }

    /// Removes files before their messages: a file never outlives its message. The row says first that the file is not
    /// kept, so that no reader finds a row without bytes.
    async fn remove_files(
        &self,
        claim: &RetentionClaim,
        horizon: OffsetDateTime,
        budget: &mut Budget<'_>,
    ) -> Result<Iteration, StoreError> {
        loop {
            if let Err(end) = budget.take().await? {
                return Ok(end);
            }
            let released = self.runs.release_files(claim.account_id, horizon, BATCH).await?;
            for path in released.iter().flat_map(|file: &ReleasedFile| &file.paths) {
                let deleted = self.files.delete_file(path).await;
                deleted.map_err(|error| StoreError::Unavailable(error.into()))?;
            }
            if released.is_empty() {
                return Ok(Iteration::Done);
            }
            self.runs.record_deleted(claim.account_id, &released).await?;
        }
    }

    async fn remove_rows(
        &self,
        claim: &RetentionClaim,
        rows: RetainedRows,
        horizon: OffsetDateTime,
        budget: &mut Budget<'_>,
    ) -> Result<Iteration, StoreError> {
        let mut batch = RowBatch::first(BATCH);
        loop {
            if let Err(end) = budget.take().await? {
                return Ok(end);
            }
            let removed = self.runs.remove(claim.account_id, rows, horizon, batch).await?;
            if removed.count < BATCH {
                return Ok(Iteration::Done);
            }
            batch.after = removed.last;
        }
    }

    async fn archive(
        &self,
        claim: &RetentionClaim,
        horizon: Option<OffsetDateTime>,
        budget: &mut Budget<'_>,
    ) -> Result<Iteration, StoreError> {
        let Some(archiver) = &self.archiver else {
            return Ok(Iteration::Done);
        };
        loop {
            if let Err(end) = budget.take().await? {
                return Ok(end);
            }
            match archiver.step(claim.account_id, horizon, &*budget).await? {
                StepOutcome::Done => {}
                StepOutcome::Idle => return Ok(Iteration::Done),
                StepOutcome::Lost => return Ok(Iteration::Lost),
            }
        }
    }

    /// Counts what the terms as they were set last would remove now: also those that take effect later. Renews the lease
    /// before each kind, because a count may take as long as a statement may. None: the claim is lost.
    async fn count(&self, claim: &RetentionClaim) -> Result<Option<RemovalCounts>, StoreError> {
        let mut counts = RemovalCounts::new();
        for kind in RetentionKind::ALL {
            if let Some(horizon) = claim.terms.set_horizon(*kind, &self.bounds, claim.now) {
                if !self.runs.renew(claim, LEASE).await? {
                    return Ok(None);
                }
                let count = self.runs.count(claim.account_id, *kind, horizon).await?;
                counts.insert(kind.as_str().to_owned(), count);
            }
        }
        Ok(Some(counts))
    }
}

/// What an iteration removes, in this order: files before their messages, archives last because they take longest.
#[derive(Clone, Copy)]
enum Part {
    Files,
    Rows(RetentionKind, RetainedRows),
    Archives,
}

const PARTS: &[Part] = &[
    Part::Files,
    Part::Rows(RetentionKind::Messages, RetainedRows::Messages),
    Part::Rows(RetentionKind::Messages, RetainedRows::DirectMessages),
    Part::Rows(RetentionKind::MetricEvents, RetainedRows::MetricEvents),
    Part::Rows(RetentionKind::Orders, RetainedRows::Orders),
    Part::Rows(RetentionKind::Notifications, RetainedRows::Notifications),
    Part::Rows(RetentionKind::Audit, RetainedRows::Audit),
    Part::Archives,
];
