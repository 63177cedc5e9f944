//! Ports of the files of messages: their rows, and their bytes.

use std::ops::Range;

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{FetchDecision, FetchFacts, FileState, MessageFile, MessageFilePath, StoredFile};
use crate::media::{MediaStoreError, MediaStream, MediaWrite};
use crate::shared::{AccountId, ConversationId, Event, MediaId, MessageId, ProfileId, StoreError, redacted_debug};

/// The bytes of the files of messages. A file becomes visible, as a whole, when [`MediaWrite::commit`] succeeds.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MessageFileStorage: Send + Sync {
    /// Starts to write a file. It MUST hold at most one part of 5 MiB in memory.
    async fn begin_file(&self, path: &MessageFilePath) -> Result<Box<dyn MediaWrite>, MediaStoreError>;

    /// These bytes of a file, or none if it does not exist. They MUST be streamed. The range is not empty, and within
    /// the file.
    async fn read_file(
        &self,
        path: &MessageFilePath,
        range: Range<u64>,
    ) -> Result<Option<MediaStream>, MediaStoreError>;

    /// Deletes a file. A missing file is not an error.
    async fn delete_file(&self, path: &MessageFilePath) -> Result<(), MediaStoreError>;
}

/// A row of a file, as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundFile {
    Ready(StoredFile),
    /// Any state but `ready`.
    Unavailable(FileState),
}

/// A file that a worker has claimed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimedFile {
    pub account_id: AccountId,
    pub message_id: MessageId,
    pub conversation_id: ConversationId,
    /// The contact of the conversation, for the event.
    pub contact_id: Uuid,
    /// The profile whose number received the message.
    pub profile_id: ProfileId,
    pub wa_media_id: String,
    /// The hash that the callback reported.
    pub expected_sha256: Option<Vec<u8>>,
    pub facts: FetchFacts,
    /// The file as it is published.
    pub file: MessageFile,
    /// Fencing token of the claim, and the key of its bytes.
    pub claim: Uuid,
    /// The claims of workers that did not finish. Their bytes may be stored, and are not deleted yet.
    pub abandoned: Vec<Uuid>,
}

redacted_debug!(ClaimedFile {
    account_id,
    message_id,
    facts,
    file,
    claim
});

impl ClaimedFile {
    /// The key of the bytes that this claim writes.
    pub fn path(&self) -> MessageFilePath {
        self.path_of(self.claim)
    }

    pub fn path_of(&self, claim: Uuid) -> MessageFilePath {
        MessageFilePath {
            account_id: self.account_id,
            key: claim,
        }
    }
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileClaim {
    Claimed(Box<ClaimedFile>),
    /// The number of the first due file has had too many failed requests. Its files wait; others may be due.
    Postponed,
    /// No file is due.
    Idle,
}

/// An uploaded file, or the bytes of an expired one.
#[derive(Clone, PartialEq, Eq)]
pub struct NewUpload {
    pub file: StoredFile,
    pub expires_at: OffsetDateTime,
}

redacted_debug!(NewUpload { file });

/// The rows of files.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MessageFileStore: Send + Sync {
    /// A file of the account, or none if it does not exist. A file past its `expires_at` is `Expired`.
    async fn find(&self, account: AccountId, id: MediaId) -> Result<Option<FoundFile>, StoreError>;

    async fn insert_upload(&self, account: AccountId, upload: &NewUpload) -> Result<(), StoreError>;

    /// Claims the first due file for `lease`. Failed requests of a number within an hour and its claimed files together
    /// MUST stay below `MAX_FAILED_REQUESTS`. The request of a worker whose lease has expired counts as failed, because
    /// its outcome is unknown.
    async fn claim(&self, claim: Uuid, lease: Duration) -> Result<FileClaim, StoreError>;

    /// Extends the lease of a claim. Returns false if the claim is not current any more.
    async fn renew(&self, file: &ClaimedFile, lease: Duration) -> Result<bool, StoreError>;

    /// Records a decision, and appends the events in the same transaction. `failed_requests`: how many requests WhatsApp
    /// answered with an error. Those of `file.abandoned` stay known to the next claim. Returns false, and appends no
    /// events, if the claim is not current any more.
    async fn record(
        &self,
        file: &ClaimedFile,
        decision: &FetchDecision,
        failed_requests: u16,
        events: &[Event],
    ) -> Result<bool, StoreError>;

    /// Reports the files that were lost: for each account without such a report within `interval`, appends the event of
    /// the number of its files that are not reported yet, and marks them. Returns whether any was reported.
    async fn report_lost(&self, interval: Duration, event: fn(u64) -> Event) -> Result<bool, StoreError>;

    /// The stored bytes of at most `limit` files past their `expires_at`.
    async fn expired(&self, limit: i64) -> Result<Vec<(MediaId, MessageFilePath)>, StoreError>;

    /// Marks a file whose bytes were deleted as expired.
    async fn set_expired(&self, account: AccountId, id: MediaId) -> Result<(), StoreError>;
}

/// So many failed requests of a number within an hour end its requests for that hour: WhatsApp blocks at five.
pub const MAX_FAILED_REQUESTS: i64 = 4;
