//! Ports of retention: the terms, the rows that leave, and the archives of sends.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{ArchiveFile, ArchivedSend, RetentionBounds, RetentionKind, RetentionTerms, StoredArchive};
use crate::campaigns::SendCounts;
use crate::media::{MediaStoreError, MediaStream, MessageFilePath};
use crate::shared::{AccountId, CampaignId, Event, MediaId, SendId, StoreError};

/// How many rows of each kind are over their term, by the stored value of the kind.
pub type RemovalCounts = BTreeMap<String, i64>;

/// The retention of an account, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionState {
    pub terms: RetentionTerms,
    /// Row version for optimistic locking; 0 before the first change.
    pub version: i64,
    pub last_run_at: Option<OffsetDateTime>,
    /// None: nothing is removed.
    pub next_run_at: Option<OffsetDateTime>,
    pub would_remove: RemovalCounts,
}

/// The terms of accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RetentionStore: Send + Sync {
    /// The retention of the account; the default before its first change.
    async fn find(&self, account: AccountId) -> Result<RetentionState, StoreError>;

    /// Stores the terms if the row still has this version, with the events, and sets the next run. Returns false if the
    /// row has another version.
    async fn update(
        &self,
        account: AccountId,
        terms: &RetentionTerms,
        version: i64,
        next_run_at: Option<OffsetDateTime>,
        events: &[Event],
    ) -> Result<bool, StoreError>;
}

/// A run of an account that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionClaim {
    pub account_id: AccountId,
    /// Fencing token.
    pub claim: Uuid,
    /// The version of the terms that the run uses.
    pub version: i64,
    pub terms: RetentionTerms,
    /// The database's time of the claim.
    pub now: OffsetDateTime,
}

/// Rows that a run removes from one table, with what belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetainedRows {
    /// Messages of conversations. One whose file may have bytes stays.
    Messages,
    /// Direct messages that have ended. Their references stay.
    DirectMessages,
    MetricEvents,
    Orders,
    Notifications,
    /// Audit entries, with their counts.
    Audit,
}

/// The key of a row, by which a table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedRowKey {
    pub at: OffsetDateTime,
    pub id: Uuid,
}

/// Which rows a batch removes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBatch {
    /// The last row of the batch before. Rows before it stay.
    pub after: Option<RetainedRowKey>,
    pub limit: i64,
}

impl RowBatch {
    /// The first batch.
    pub fn first(limit: i64) -> Self {
        Self { after: None, limit }
    }
}

/// The rows that a batch has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedRows {
    pub count: i64,
    /// The last one, if rows that stay may be among those before it. None: the next batch begins anew.
    pub last: Option<RetainedRowKey>,
}

/// Files whose rows say that they are released. Their bytes may still be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedFile {
    pub id: MediaId,
    pub paths: Vec<MessageFilePath>,
}

/// Runs of retention, across accounts. The database's clock decides when a lease expires.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RetentionRuns: Send + Sync {
    /// Claims the account whose run has been due longest. With a forced term, accounts without terms of their own get
    /// runs, too.
    async fn claim(
        &self,
        claim: Uuid,
        lease: Duration,
        bounds: &RetentionBounds,
    ) -> Result<Option<RetentionClaim>, StoreError>;

    /// Extends the lease. Returns false if the claim or the terms are not current any more.
    async fn renew(&self, claim: &RetentionClaim, lease: Duration) -> Result<bool, StoreError>;

    /// Removes a batch of rows from before `horizon`, in one transaction with the record that earlier rows of the account
    /// may be missing. Sums stay as they were.
    async fn remove(
        &self,
        account: AccountId,
        rows: RetainedRows,
        horizon: OffsetDateTime,
        batch: RowBatch,
    ) -> Result<RemovedRows, StoreError>;

    /// Releases at most `limit` files of messages that were written before `horizon`: their rows say first that they
    /// are no longer stored. A file stays among them until [`record_deleted`](Self::record_deleted).
    async fn release_files(
        &self,
        account: AccountId,
        horizon: OffsetDateTime,
        limit: i64,
    ) -> Result<Vec<ReleasedFile>, StoreError>;

    /// Records that the bytes of released files were deleted.
    async fn record_deleted(&self, account: AccountId, files: &[ReleasedFile]) -> Result<(), StoreError>;

    /// Counts the rows of a kind from before `horizon`, at most a million.
    async fn count(&self, account: AccountId, kind: RetentionKind, horizon: OffsetDateTime) -> Result<i64, StoreError>;

    /// Ends the claim. With `counts` the run is over, and `next_run_at` is the next one, unless the terms were changed
    /// meanwhile: then the next run is now.
    async fn end(
        &self,
        claim: &RetentionClaim,
        next_run_at: Option<OffsetDateTime>,
        counts: Option<RemovalCounts>,
    ) -> Result<(), StoreError>;
}

/// The next step of an account's archives.
#[derive(Clone, Debug, PartialEq)]
pub enum ArchiveStep {
    /// Write the file of this campaign. From now on its sends do not change.
    Write(ArchiveTask),
    /// The file of this campaign was verified, and sends of it are in the table.
    Remove(CampaignId),
    /// Nothing to do.
    None,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchiveTask {
    pub campaign_id: CampaignId,
    pub campaign_name: String,
    /// The key of the file, and the fencing token of the attempt.
    pub key: Uuid,
    /// The keys of attempts that did not end.
    pub abandoned: Vec<Uuid>,
    /// The counters of the campaign, which the file must have.
    pub counts: SendCounts,
}

/// The rows of archives and of the sends that they have.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ArchiveStore: Send + Sync {
    /// The next step. `horizon`: a campaign that ended before it is written; without it, none is, and campaigns whose
    /// file was not verified are as before. The step of a crashed worker comes first. `key`: of a new attempt.
    async fn next(
        &self,
        account: AccountId,
        horizon: Option<OffsetDateTime>,
        key: Uuid,
    ) -> Result<ArchiveStep, StoreError>;

    /// The campaign's sends after an id, by id. A send to an erased contact MUST have neither the contact's id nor
    /// WhatsApp's message id.
    async fn sends(
        &self,
        account: AccountId,
        campaign: CampaignId,
        after: SendId,
        limit: i64,
    ) -> Result<Vec<ArchivedSend>, StoreError>;

    /// Records the verified file: from now on the campaign is archived. Returns false if another attempt has begun, and
    /// no row has the file.
    async fn complete(&self, account: AccountId, campaign: CampaignId, file: &ArchiveFile) -> Result<bool, StoreError>;

    /// Ends an attempt whose file disagrees with the counters: the campaign is as before, and the next attempt begins
    /// after `pause`. `event` is appended at the first time.
    async fn refuse(
        &self,
        account: AccountId,
        task: &ArchiveTask,
        pause: Duration,
        event: &Event,
    ) -> Result<(), StoreError>;

    /// Removes at most `limit` sends after an id, and returns the last id. None: no send is left, which is recorded.
    async fn remove_sends(
        &self,
        account: AccountId,
        campaign: CampaignId,
        after: SendId,
        limit: i64,
    ) -> Result<Option<SendId>, StoreError>;

    /// The verified file of a campaign that is not deleted.
    async fn find(
        &self,
        account: AccountId,
        campaign: CampaignId,
    ) -> Result<Option<(MessageFilePath, StoredArchive)>, StoreError>;
}

/// The compressed files of archives.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ArchiveStorage: Send + Sync {
    /// Starts to write a file. It becomes visible, as a whole, when [`ArchiveWrite::commit`] succeeds.
    async fn begin(&self, path: &MessageFilePath) -> Result<Box<dyn ArchiveWrite>, MediaStoreError>;

    /// Opens a file to read its lines. None: it does not exist.
    async fn open(&self, path: &MessageFilePath, size: u64) -> Result<Option<Box<dyn ArchiveRead>>, MediaStoreError>;

    /// These bytes of the compressed file. The range is not empty, and within the file.
    async fn read(&self, path: &MessageFilePath, range: Range<u64>) -> Result<Option<MediaStream>, MediaStoreError>;

    /// Deletes a file. A missing file is not an error.
    async fn delete(&self, path: &MessageFilePath) -> Result<(), MediaStoreError>;
}

/// A file that is being written. A drop before the commit removes what was written. Memory stays bounded.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ArchiveWrite: Send {
    async fn write(&mut self, lines: Bytes) -> Result<(), MediaStoreError>;

    async fn commit(self: Box<Self>) -> Result<StoredArchive, MediaStoreError>;
}

/// A file that is being read. Memory stays bounded.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ArchiveRead: Send {
    /// The next bytes of the lines. None at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, MediaStoreError>;

    /// The compressed bytes that were read so far.
    fn stored(&self) -> StoredArchive;
}
