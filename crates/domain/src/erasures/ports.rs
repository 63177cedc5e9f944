//! Ports of erasures: the receipts, and the queue of their worker.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Erasure, ErasureStep, PersonMarks};
use crate::media::MessageFilePath;
use crate::retention::StoredArchive;
use crate::shared::{AccountId, Audit, CampaignId, ContactId, CursorPage, CursorQuery, ErasureId, StoreError};

/// A request to erase a contact.
#[derive(Clone, PartialEq)]
pub struct ErasureRequest {
    pub id: ErasureId,
    pub contact_id: ContactId,
    pub reason: Option<String>,
    pub requested_at: OffsetDateTime,
    /// The hashes of an opt-out that an earlier erasure of the contact stored. A restored backup may not know it.
    pub opt_outs: Vec<Vec<u8>>,
    /// Stored with a new receipt.
    pub audit: Audit,
}

crate::shared::redacted_debug!(ErasureRequest { id, contact_id });

/// The receipts of an account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ErasureStore: Send + Sync {
    /// Erases the contact's row, deleted or not, and stores the receipt, in one transaction with the audit entry and the
    /// event `contact.erased`. From then on the contact is in no list. Returns the first receipt if the contact has one.
    /// None: the account has no such contact.
    ///
    /// It MUST store the opt-out of the person as hashes, or delete those of a person who has opted in since. A contact that was
    /// deleted before deletes none.
    async fn request(&self, account: AccountId, request: &ErasureRequest) -> Result<Option<Erasure>, StoreError>;

    async fn find(&self, account: AccountId, id: ErasureId) -> Result<Option<Erasure>, StoreError>;

    /// The receipts, newest first.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Erasure>, StoreError>;
}

/// An erasure that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasureClaim {
    pub account_id: AccountId,
    pub id: ErasureId,
    pub contact_id: ContactId,
    /// Fencing token.
    pub claim: Uuid,
    /// The step that is next.
    pub step: ErasureStep,
    pub requested_at: OffsetDateTime,
    pub marks: PersonMarks,
}

/// How a batch of a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// The step may have more rows.
    More,
    /// The step has no more rows.
    Done,
    /// What began before the request has not ended.
    Wait,
    /// Another worker has the erasure.
    Lost,
}

/// Files of a step, by the row that names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasedFile {
    pub id: Uuid,
    pub paths: Vec<MessageFilePath>,
}

/// The erasures of all accounts, for their worker. The database's clock decides when a lease expires.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ErasureQueue: Send + Sync {
    /// Claims the erasure that has been due longest.
    async fn claim(&self, claim: Uuid, lease: Duration) -> Result<Option<ErasureClaim>, StoreError>;

    /// Takes a batch of at most `limit` rows of a step, in one transaction with its count, its position and the renewed
    /// lease.
    async fn run_batch(
        &self,
        claim: &ErasureClaim,
        step: ErasureStep,
        limit: i64,
        lease: Duration,
    ) -> Result<BatchEnd, StoreError>;

    /// Releases at most `limit` files of a step: their rows say first that they are no longer stored. A file stays among
    /// them until [`record_deleted`](Self::record_deleted). `Done`: there are none.
    async fn release_files(
        &self,
        claim: &ErasureClaim,
        step: ErasureStep,
        limit: i64,
        lease: Duration,
    ) -> Result<(BatchEnd, Vec<ErasedFile>), StoreError>;

    /// Records that the bytes of released files were deleted.
    async fn record_deleted(
        &self,
        claim: &ErasureClaim,
        step: ErasureStep,
        files: &[ErasedFile],
    ) -> Result<(), StoreError>;

    /// Stores the next step. None: everything is removed; the receipt is done. Returns false if the claim is not current
    /// any more.
    async fn advance(&self, claim: &ErasureClaim, next: Option<ErasureStep>) -> Result<bool, StoreError>;

    /// Ends the claim: the erasure is due again after `delay`.
    async fn postpone(&self, claim: &ErasureClaim, delay: Duration) -> Result<(), StoreError>;
}

/// An archive of a campaign that may have sends to an erased contact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasedArchive {
    pub campaign_id: CampaignId,
    pub path: MessageFilePath,
    pub stored: StoredArchive,
    /// The number of its lines.
    pub sends: i64,
    /// The keys of other files, whose bytes may be stored.
    pub abandoned: Vec<Uuid>,
}

/// A file that replaces an archive. It was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveReplacement {
    pub key: Uuid,
    pub stored: StoredArchive,
    /// The lines that do not name the contact any more.
    pub lines: i64,
}

/// What a worker does about archives next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveClaim {
    Archive(ErasedArchive),
    /// No archive is left, or none can be taken now.
    End(BatchEnd),
}

/// The archives of an account, for the worker of erasures. One erasure of an account rewrites them at a time: from its
/// first archive until it is done, the others MUST get [`BatchEnd::Wait`].
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ErasureArchives: Send + Sync {
    /// The archive after those that are recorded. `key` of the file that may replace it MUST stay stored until
    /// [`record_archive`](Self::record_archive).
    ///
    /// Before it returns the first one, it MUST make the attempts in progress that may have read sends to the contact
    /// begin again: no file of theirs is verified.
    async fn next_archive(&self, claim: &ErasureClaim, key: Uuid, lease: Duration) -> Result<ArchiveClaim, StoreError>;

    /// Extends the lease. Returns false if the claim is not current any more.
    async fn renew(&self, claim: &ErasureClaim, lease: Duration) -> Result<bool, StoreError>;

    /// Whether this is still the file of the archive.
    async fn has_file(&self, campaign: CampaignId, path: &MessageFilePath) -> Result<bool, StoreError>;

    /// Replaces the file of an archive, with the count of the lines, in one transaction. The key of the file before it
    /// MUST stay stored until it is recorded. Returns false if the claim is not current any more, if the archive has
    /// another file, or if it was returned again since, with another key.
    async fn replace_archive(
        &self,
        claim: &ErasureClaim,
        archive: &ErasedArchive,
        replacement: ArchiveReplacement,
        lease: Duration,
    ) -> Result<bool, StoreError>;

    /// Records that the file of the archive does not name the contact, and that its other files are deleted. Records
    /// nothing if the archive has another file than `file_key`: it is the next one again. Returns false if the
    /// claim is not current any more.
    async fn record_archive(
        &self,
        claim: &ErasureClaim,
        campaign: CampaignId,
        file_key: Uuid,
        lease: Duration,
    ) -> Result<bool, StoreError>;
}
