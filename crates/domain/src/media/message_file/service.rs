//! Reading the files of messages, and removing what is no longer needed.

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::{FileState, FoundFile, MessageFileStorage, MessageFileStore, StoredFile, lost_files_event};
use crate::media::{MediaStoreError, MediaStream};
use crate::shared::{Clock, Ids, MediaId, StoreError, Tenant};
use time::Duration;

/// At most one notification an account in this time names lost files.
const REPORT_INTERVAL: Duration = Duration::HOUR;

/// Opens, uploads and removes the files of messages.
#[derive(Clone)]
pub struct MessageMedia {
    pub(super) files: Arc<dyn MessageFileStore>,
    pub(super) storage: Arc<dyn MessageFileStorage>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: Arc<dyn Ids>,
}

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum FileAccessError {
    /// The account has no such file, or the file will never be available. None: it does not exist.
    #[error("not found")]
    NotFound(Option<FileState>),
    /// The file is not fetched yet.
    #[error("pending")]
    Pending,
    #[error(transparent)]
    Media(#[from] MediaStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A ready file that can be read.
pub struct OpenFile {
    pub file: StoredFile,
    storage: Arc<dyn MessageFileStorage>,
}

impl OpenFile {
    /// These bytes of the file. An empty range reads nothing.
    pub async fn read(&self, range: Range<u64>) -> Result<MediaStream, FileAccessError> {
        let missing = || MediaStoreError::Failed(format!("{} does not exist", self.file.path).into());
        let content = self.storage.read_file(&self.file.path, range).await?;
        Ok(content.ok_or_else(missing)?)
    }
}

impl MessageMedia {
    pub fn new(
        files: Arc<dyn MessageFileStore>,
        storage: Arc<dyn MessageFileStorage>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            files,
            storage,
            clock,
            ids,
        }
    }

    /// A file of the account that is stored.
    pub async fn open(&self, tenant: &Tenant, id: MediaId) -> Result<OpenFile, FileAccessError> {
        match self.files.find(tenant.account_id, id).await? {
            Some(FoundFile::Ready(file)) => Ok(OpenFile {
                file,
                storage: self.storage.clone(),
            }),
            Some(FoundFile::Unavailable(FileState::Pending)) => Err(FileAccessError::Pending),
            Some(FoundFile::Unavailable(state)) => Err(FileAccessError::NotFound(Some(state))),
            None => Err(FileAccessError::NotFound(None)),
        }
    }

    /// Notifies accounts of lost files, at most once in `REPORT_INTERVAL`. Returns whether any was notified.
    pub async fn report_lost(&self) -> Result<bool, StoreError> {
        self.files.report_lost(REPORT_INTERVAL, lost_files_event).await
    }

    /// Removes at most `limit` files past their end: first the bytes, then the row says so. Returns whether more may
    /// wait. A file that cannot be removed is tried again by the next call.
    pub async fn purge(&self, limit: i64) -> Result<bool, StoreError> {
        let expired = self.files.expired(limit).await?;
        let mut removed = false;
        for (id, path) in expired {
            match self.storage.delete_file(&path).await {
                Ok(()) => {
                    self.files.set_expired(path.account_id, id).await?;
                    removed = true;
                }
                Err(error) => return Err(StoreError::Unavailable(error.into())),
            }
        }
        Ok(removed)
    }
}
