//! Ports of media: the file store and a file that is being written.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::{MediaPath, MediaStoreError};
use crate::shared::AccountId;

/// A file's content as a stream of chunks.
pub type MediaStream = BoxStream<'static, Result<Bytes, MediaStoreError>>;

/// The file store. A file becomes visible, as a whole, when [`MediaWrite::commit`] succeeds. An unfinished file MUST
/// NOT be visible.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MediaStore: Send + Sync {
    /// Starts to write a file. The store MUST serve the file with exactly the content type of its path.
    async fn begin(&self, path: &MediaPath) -> Result<Box<dyn MediaWrite>, MediaStoreError>;

    /// The file's length in bytes, or none if it does not exist.
    async fn size(&self, path: &MediaPath) -> Result<Option<u64>, MediaStoreError>;

    /// The file's content from byte `from`, or none if it does not exist. It MUST be streamed: memory does not grow
    /// with the file.
    async fn read(&self, path: &MediaPath, from: u64) -> Result<Option<MediaStream>, MediaStoreError>;

    /// Deletes a file. A missing file is not an error.
    async fn delete(&self, path: &MediaPath) -> Result<(), MediaStoreError>;

    /// Deletes all files of the account, and no others. No files is not an error.
    async fn delete_account(&self, account: AccountId) -> Result<(), MediaStoreError>;
}

/// A file that is being written. If it is dropped before its commit (after a rejection, an error or a disconnect), the
/// store MUST remove what was written.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MediaWrite: Send {
    /// Writes the next chunk. It MUST wait while the store is slower than the sender, so that memory stays bounded.
    async fn write(&mut self, chunk: Bytes) -> Result<(), MediaStoreError>;

    /// Makes the file visible. After an error, or if the future is dropped, the store removes what was written soon
    /// after.
    async fn commit(self: Box<Self>) -> Result<(), MediaStoreError>;

    /// Removes what was written and waits until that is done. A drop does the same in the background.
    async fn discard(self: Box<Self>);
}

/// A file in the store, with access to its content.
#[derive(Clone)]
pub struct MediaFile {
    pub path: MediaPath,
    /// The length in bytes.
    pub size: u64,
    store: Arc<dyn MediaStore>,
}

impl MediaFile {
    /// The file at `path`, or none if it does not exist.
    pub async fn find(store: &Arc<dyn MediaStore>, path: MediaPath) -> Result<Option<Self>, MediaStoreError> {
        let size = store.size(&path).await?;
        Ok(size.map(|size| Self {
            path,
            size,
            store: store.clone(),
        }))
    }

    /// The content from byte `from`. A file that was deleted meanwhile is an error of the store.
    pub async fn read(&self, from: u64) -> Result<MediaStream, MediaStoreError> {
        let missing = || MediaStoreError::Failed(format!("{} no longer exists", self.path).into());
        self.store.read(&self.path, from).await?.ok_or_else(missing)
    }
}

impl std::fmt::Debug for MediaFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.path, self.size)
    }
}

impl PartialEq for MediaFile {
    fn eq(&self, other: &Self) -> bool {
        (self.path, self.size) == (other.path, other.size)
    }
}
