//! A file that is uploaded to WhatsApp for messages.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use crate::media::{MediaFile, MediaStoreError, MediaStream};

/// The bytes of a file to upload.
#[async_trait]
pub trait UploadContent: Send + Sync {
    /// The content from byte `from`, which is within the file.
    async fn read(&self, from: u64) -> Result<MediaStream, MediaStoreError>;
}

#[async_trait]
impl UploadContent for MediaFile {
    async fn read(&self, from: u64) -> Result<MediaStream, MediaStoreError> {
        Self::read(self, from).await
    }
}

/// A file that is uploaded for the messages of a number.
#[derive(Clone)]
pub struct UploadFile {
    /// Names the file for WhatsApp, together with `extension`.
    pub id: Uuid,
    pub media_type: String,
    pub extension: &'static str,
    /// The length in bytes.
    pub size: u64,
    pub content: Arc<dyn UploadContent>,
}

impl From<&MediaFile> for UploadFile {
    fn from(file: &MediaFile) -> Self {
        Self {
            id: file.path.id,
            media_type: file.path.kind.to_string(),
            extension: file.path.kind.extension(),
            size: file.size,
            content: Arc::new(file.clone()),
        }
    }
}
