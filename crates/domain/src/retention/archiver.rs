//! Moves the sends of ended campaigns into files: write, read back, count, and only then remove rows.
//!
//! A send is in the table until its file was read back and has exactly the sends that the counters count. Killed at any
//! time, the next run writes the file again under another key, or goes on to remove rows. So a send is in the table or
//! in a verified file, at most in both.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::archive::ArchiveCount;
use super::{ArchiveFile, ArchiveStep, ArchiveStorage, ArchiveStore, ArchiveTask, StoredArchive};
use crate::media::{MediaStoreError, MessageFilePath};
use crate::shared::{AccountId, CampaignId, Event, Ids, NotificationDraft, NotificationKind, SendId, StoreError};

/// The sends of one page: read, compressed and written while nothing is locked.
const PAGE: i64 = 1000;

/// The sends that one transaction removes.
const BATCH: i64 = 1000;

/// The transactions of one step, so that other accounts are served between.
const BATCHES_PER_STEP: usize = 10;

/// How long after a refused file the next attempt begins.
const REFUSED_PAUSE: Duration = Duration::WEEK;

/// Writes, verifies and completes archives.
pub struct Archiver {
    pub archives: Arc<dyn ArchiveStore>,
    pub storage: Arc<dyn ArchiveStorage>,
    pub ids: Arc<dyn Ids>,
}

/// Whether the worker still has its lease. It is asked before each page and batch.
pub(super) trait Lease {
    fn renew(&self) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    Done,
    /// No archive has anything to do.
    Idle,
    /// The lease is lost: another worker goes on.
    Lost,
}

/// The file of an attempt.
enum Attempt {
    /// It was read back, and may have a defect.
    ReadBack(ArchiveFile, Option<Defect>),
    Lost,
}

/// Why a file does not replace its sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// The file store does not have what it had stored.
    Missing,
    /// It returns other bytes than were written, or they are no lines of sends.
    Damaged,
    CountsDiffer,
}

fn store_failed(error: MediaStoreError) -> StoreError {
    StoreError::Unavailable(error.into())
}

impl Archiver {
    /// One step: writes the file of one campaign, or removes the sends of one whose file was verified.
    pub(super) async fn step(
        &self,
        account: AccountId,
        horizon: Option<OffsetDateTime>,
        lease: &(impl Lease + Sync),
    ) -> Result<StepOutcome, StoreError> {
        match self.archives.next(account, horizon, self.ids.next()).await? {
            ArchiveStep::None => Ok(StepOutcome::Idle),
            ArchiveStep::Remove(campaign) => self.remove(account, campaign, lease).await,
            ArchiveStep::Write(task) => self.write(account, &task, lease).await,
        }
    }

    async fn write(
        &self,
        account: AccountId,
        task: &ArchiveTask,
        lease: &(impl Lease + Sync),
    ) -> Result<StepOutcome, StoreError> {
        for key in &task.abandoned {
            self.delete(account, *key).await?;
        }
        let (file, defect) = match self.attempt(account, task, lease).await? {
            Attempt::ReadBack(file, defect) => (file, defect),
            // No other attempt has this key, so none verifies the file.
            Attempt::Lost => {
                self.delete(account, task.key).await?;
                return Ok(StepOutcome::Lost);
            }
        };
        if let Some(defect) = defect {
            let refused = refused_event(task, file.sends, defect);
            self.archives.refuse(account, task, REFUSED_PAUSE, &refused).await?;
            self.delete(account, task.key).await?;
            return Ok(StepOutcome::Done);
        }
        if !self.archives.complete(account, task.campaign_id, &file).await? {
            self.delete(account, task.key).await?;
            return Ok(StepOutcome::Lost);
        }
        Ok(StepOutcome::Done)
    }

    /// Writes the file and reads it back. The counters are those of the rows that do not change any more.
    async fn attempt(
        &self,
        account: AccountId,
        task: &ArchiveTask,
        lease: &(impl Lease + Sync),
    ) -> Result<Attempt, StoreError> {
        let path = MessageFilePath {
            account_id: account,
            key: task.key,
        };
        let Some((written, months)) = self.write_file(&path, task.campaign_id, lease).await? else {
            return Ok(Attempt::Lost);
        };
        let mut count = ArchiveCount::default();
        let opened = self.storage.open(&path, written.size).await.map_err(store_failed)?;
        let mut read_back = None;
        if let Some(mut file) = opened {
            while let Some(lines) = file.next().await.map_err(store_failed)? {
                count.add(&lines);
                if !lease.renew().await? {
                    return Ok(Attempt::Lost);
                }
            }
            read_back = Some(file.stored());
        }
        let counts = count.finish();
        let defect = match (read_back, counts) {
            (None, _) => Some(Defect::Missing),
            (Some(read), Some(counts)) if read == written => (counts != task.counts).then_some(Defect::CountsDiffer),
            (Some(_), _) => Some(Defect::Damaged),
        };
        let file = ArchiveFile {
            key: task.key,
            stored: written,
            sends: counts.map_or(0, |counts| counts.total),
            months: months.into_iter().collect(),
        };
        Ok(Attempt::ReadBack(file, defect))
    }

    /// None: the lease is lost.
    async fn write_file(
        &self,
        path: &MessageFilePath,
        campaign: CampaignId,
        lease: &(impl Lease + Sync),
    ) -> Result<Option<(StoredArchive, BTreeSet<Date>)>, StoreError> {
        let mut file = self.storage.begin(path).await.map_err(store_failed)?;
        let (mut after, mut months) = (SendId(Uuid::nil()), BTreeSet::new());
        loop {
            if !lease.renew().await? {
                return Ok(None);
            }
            let sends = self.archives.sends(path.account_id, campaign, after, PAGE).await?;
            let Some(last) = sends.last() else { break };
            after = last.id;
            let mut lines = Vec::new();
            for send in &sends {
                send.write_line(&mut lines)
                    .map_err(|error| StoreError::Failed(error.into()))?;
                months.extend(send.quota_month);
            }
            file.write(lines.into()).await.map_err(store_failed)?;
        }
        let stored = file.commit().await.map_err(store_failed)?;
        Ok(Some((stored, months)))
    }

    /// Removes some sends of a campaign whose file was verified.
    async fn remove(
        &self,
        account: AccountId,
        campaign: CampaignId,
        lease: &(impl Lease + Sync),
    ) -> Result<StepOutcome, StoreError> {
        let mut after = SendId(Uuid::nil());
        for _ in 0..BATCHES_PER_STEP {
            match self.archives.remove_sends(account, campaign, after, BATCH).await? {
                Some(last) => after = last,
                None => break,
            }
            if !lease.renew().await? {
                return Ok(StepOutcome::Lost);
            }
        }
        Ok(StepOutcome::Done)
    }

    async fn delete(&self, account_id: AccountId, key: Uuid) -> Result<(), StoreError> {
        let path = MessageFilePath { account_id, key };
        self.storage.delete(&path).await.map_err(store_failed)
    }
}

/// The notification of a file that does not replace its sends.
fn refused_event(task: &ArchiveTask, found: i64, defect: Defect) -> Event {
    let (reason, cause) = match defect {
        Defect::Missing => (
            "file_missing",
            "The file store does not have its archive after writing it".to_owned(),
        ),
        Defect::Damaged => (
            "file_damaged",
            "The file store returns its archive with other content than was written".to_owned(),
        ),
        Defect::CountsDiffer => (
            "counts_differ",
            format!(
                "Its archive has {found} sends where its statistics count {}, or other statuses",
                task.counts.total
            ),
        ),
    };
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Error,
        title: format!("Campaign not archived: {}", task.campaign_name),
        message: format!("{cause}. No send was removed."),
        data: json!({ "campaign_id": task.campaign_id, "reason": reason }),
    })
}
