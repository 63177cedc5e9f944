//! What media need from the outside.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::{MediaPath, MediaStoreError};
use crate::shared::AccountId;

/// A file's content as a stream of chunks.
pub type MediaStream = BoxStream<'static, Result<Bytes, MediaStoreError>>;

/// Keeps files. What it was given is there, whole, from a successful [`MediaWrite::commit`] on and not before; nobody
/// sees a file that is still being written.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MediaStore: Send + Sync {
    /// Begins to write a file, whose exact type it also tells those who fetch it.
    async fn begin(&self, path: &MediaPath) -> Result<Box<dyn MediaWrite>, MediaStoreError>;

    /// A file's length in bytes; none when there is no such file.
    async fn size(&self, path: &MediaPath) -> Result<Option<u64>, MediaStoreError>;

    /// The file's content from byte `from`, or none if it does not exist. It MUST be streamed: memory does not grow
    /// with the file.
    async fn read(&self, path: &MediaPath, from: u64) -> Result<Option<MediaStream>, MediaStoreError>;

    /// Removes a file; no fault when there is none.
    async fn delete(&self, path: &MediaPath) -> Result<(), MediaStoreError>;

    /// Removes every file of an account, and nobody else's; no fault when there is none.
    async fn delete_account(&self, account: AccountId) -> Result<(), MediaStoreError>;
}

/// A file that is being written. Dropped before its commit, nothing of it is left behind, whatever the reason: a
/// refusal, a fault, a client that hung up.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MediaWrite: Send {
    /// Writes the next chunk. It MUST wait while the store is slower than the sender, so that memory stays bounded.
    async fn write(&mut self, chunk: Bytes) -> Result<(), MediaStoreError>;

    /// Makes the file appear. After an error, and when nobody waits for it any more, nothing of it is left, soon after.
    async fn commit(self: Box<Self>) -> Result<(), MediaStoreError>;

    /// Takes back what was written, and returns when that is done; dropping does the same in the background.
    async fn discard(self: Box<Self>);
}

/// A file that is in the store, for those who pass it on.
#[derive(Clone)]
pub struct MediaFile {
    /// Which one.
    pub path: MediaPath,
    /// How many bytes it has.
    pub size: u64,
    store: Arc<dyn MediaStore>,
}

impl MediaFile {
    /// The file, where the store has it.
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
