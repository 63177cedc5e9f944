//! Uploads of files to send.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use time::Duration;
use uuid::Uuid;

use super::{
    FileState, MessageFile, MessageFilePath, MessageFileType, MessageMedia, NewUpload, SNIFFED_FILE_BYTES, StoredFile,
};
use crate::media::service::base_name;
use crate::media::{MediaError, MediaWrite};
use crate::shared::{AccountId, FieldErrors, Tenant};

/// How long an upload is kept after its last use in a message.
pub const KEPT_FOR: Duration = Duration::days(30);

/// The longest file name, in characters: WhatsApp's limit of a document's name.
const NAME_CHARS: usize = 240;

/// An upload in progress. If it is dropped before it is finished, nothing of it is stored.
pub struct MessageUpload {
    media: MessageMedia,
    account_id: AccountId,
    key: Uuid,
    name: String,
    head: Vec<u8>,
    writing: Option<(MessageFileType, Box<dyn MediaWrite>)>,
    size: u64,
    hash: Sha256,
}

impl MessageMedia {
    /// Starts an upload.
    pub fn upload(&self, tenant: &Tenant, file_name: Option<&str>) -> MessageUpload {
        MessageUpload::new(self.clone(), tenant.account_id, file_name)
    }
}

impl MessageUpload {
    pub(super) fn new(media: MessageMedia, account_id: AccountId, file_name: Option<&str>) -> Self {
        let key = media.ids.next();
        Self {
            media,
            account_id,
            key,
            name: base_name(file_name.unwrap_or_default())
                .chars()
                .take(NAME_CHARS)
                .collect(),
            head: Vec::new(),
            writing: None,
            size: 0,
            hash: Sha256::new(),
        }
    }

    fn path(&self) -> MessageFilePath {
        MessageFilePath {
            account_id: self.account_id,
            key: self.key,
        }
    }

    /// Adds the next chunk. Nothing is written before the content's type is known.
    pub async fn feed(&mut self, mut chunk: Bytes) -> Result<(), MediaError> {
        self.size = self.size.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        self.hash.update(&chunk);
        if self.writing.is_none() {
            let missing = SNIFFED_FILE_BYTES.saturating_sub(self.head.len()).min(chunk.len());
            self.head.extend_from_slice(&chunk.split_to(missing));
            if self.head.len() < SNIFFED_FILE_BYTES {
                return Ok(());
            }
        }
        self.write(chunk).await
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), MediaError> {
        let (kind, mut write) = match self.writing.take() {
            Some(open) => open,
            None => {
                let kind = MessageFileType::detect(&self.head, &self.name).ok_or_else(unknown_type)?;
                let mut write = self.media.storage.begin_file(&self.path()).await?;
                write.write(std::mem::take(&mut self.head).into()).await?;
                (kind, write)
            }
        };
        let is_too_large = self.size > kind.limit();
        if !is_too_large && !chunk.is_empty() {
            write.write(chunk).await?;
        }
        self.writing = Some((kind, write));
        if is_too_large {
            let message = format!("must have at most {} bytes ({kind})", kind.limit());
            return Err(FieldErrors::one("file", message).into());
        }
        Ok(())
    }

    /// Commits the file, then its row.
    pub async fn finish(mut self) -> Result<MessageFile, MediaError> {
        self.write(Bytes::new()).await?;
        let path = self.path();
        let Some((content_type, write)) = self.writing.take() else {
            return Err(unknown_type().into());
        };
        write.commit().await?;
        let expires_at = self.media.clock.now().saturating_add(KEPT_FOR);
        let file = StoredFile {
            id: self.key.into(),
            kind: content_type.kind(),
            path,
            size: self.size,
            sha256: hex::encode(self.hash.finalize()),
            content_type: Some(content_type),
            mime_type: Some(content_type.to_string()),
            file_name: Some(self.name),
        };
        let published = MessageFile {
            id: file.id,
            kind: file.kind,
            mime_type: file.mime_type.clone(),
            file_name: file.file_name.clone(),
            size: Some(file.size),
            sha256: Some(file.sha256.clone()),
            state: FileState::Ready,
            reason: None,
            expires_at: Some(expires_at),
        };
        let upload = NewUpload { file, expires_at };
        if let Err(error) = self.media.files.insert_upload(self.account_id, &upload).await {
            // The row may exist if the outcome of the commit is unknown: then the file stays.
            if !matches!(error, crate::shared::StoreError::Unavailable(_)) {
                self.media.storage.delete_file(&path).await?;
            }
            return Err(error.into());
        }
        Ok(published)
    }

    /// Removes what was written of a rejected file, and waits for it.
    pub async fn discard(self) {
        if let Some((_, write)) = self.writing {
            write.discard().await;
        }
    }
}

fn unknown_type() -> FieldErrors {
    let message = "must be an image (JPEG, PNG), a video (MP4, 3GPP), audio (AAC, AMR, MP3, MP4, Ogg with Opus), a \
                   document (PDF, text, Word, Excel, PowerPoint) or a WebP sticker";
    FieldErrors::one("file", message)
}
