//! The use cases of media: an upload, and the fetching of what was uploaded.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    MediaAddress, MediaError, MediaFile, MediaPath, MediaStore, MediaStoreError, MediaType, MediaWrite, SNIFFED_BYTES,
    StoredMedia,
};
use crate::shared::{AccountId, FieldErrors, Ids, Tenant};

/// The longest name that is given back, in characters.
const NAME_CHARS: usize = 255;

/// The use cases of media.
#[derive(Clone)]
pub struct Media {
    store: Arc<dyn MediaStore>,
    address: MediaAddress,
    ids: Arc<dyn Ids>,
}

impl Media {
    pub fn new(store: Arc<dyn MediaStore>, address: MediaAddress, ids: Arc<dyn Ids>) -> Self {
        Self { store, address, ids }
    }

    /// Begins an upload. Nothing is written before the content told its type.
    pub fn upload(&self, tenant: &Tenant, file_name: Option<&str>) -> Upload {
        Upload {
            media: self.clone(),
            account_id: tenant.account_id,
            name: base_name(file_name.unwrap_or_default()),
            head: Vec::with_capacity(SNIFFED_BYTES),
            writing: None,
            size: 0,
        }
    }

    /// A stored file, whoever asks: its address is known to those alone whom it was given.
    pub async fn fetch(&self, path: MediaPath) -> Result<Option<MediaFile>, MediaStoreError> {
        MediaFile::find(&self.store, path).await
    }

    /// Whether an address is one of the files kept here, be it there or not.
    pub fn publishes(&self, url: &str) -> bool {
        self.address.path(url).is_some()
    }

    /// The account's own file that an address names. Nothing else is ever fetched: neither another account's file nor
    /// anything from another address.
    pub async fn own(&self, account: AccountId, url: &str) -> Result<Option<MediaFile>, MediaStoreError> {
        match self.address.path(url).filter(|path| path.account_id == account) {
            Some(path) => self.fetch(path).await,
            None => Ok(None),
        }
    }
}

/// A file on its way into the store. Dropped before it is finished, nothing of it is left.
pub struct Upload {
    media: Media,
    account_id: AccountId,
    name: String,
    head: Vec<u8>,
    writing: Option<(MediaPath, Box<dyn MediaWrite>)>,
    size: u64,
}

impl Upload {
    /// Adds the next chunk.
    pub async fn feed(&mut self, mut chunk: Bytes) -> Result<(), MediaError> {
        self.size = self.size.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if self.writing.is_none() {
            let missing = SNIFFED_BYTES.saturating_sub(self.head.len()).min(chunk.len());
            self.head.extend_from_slice(&chunk.split_to(missing));
            if self.head.len() < SNIFFED_BYTES {
                return Ok(());
            }
        }
        let size = self.size;
        let (path, write) = self.writing().await?;
        if size > path.kind.limit() {
            let message = format!("must have at most {} bytes ({})", path.kind.limit(), path.kind);
            return Err(FieldErrors::one("file", message).into());
        }
        if !chunk.is_empty() {
            write.write(chunk).await?;
        }
        Ok(())
    }

    /// The file is whole: it appears in the store.
    pub async fn finish(mut self) -> Result<StoredMedia, MediaError> {
        self.writing().await?;
        let Some((path, write)) = self.writing else {
            return Err(unknown_type().into());
        };
        write.commit().await?;
        Ok(StoredMedia {
            url: self.media.address.url(&path),
            kind: path.kind,
            size: self.size,
            name: self.name,
        })
    }

    /// Takes back what was written of a file that was refused: whoever is told so finds nothing of it.
    pub async fn discard(self) {
        if let Some((_, write)) = self.writing {
            write.discard().await;
        }
    }

    /// The open file; opened as soon as its type is known.
    async fn writing(&mut self) -> Result<&mut (MediaPath, Box<dyn MediaWrite>), MediaError> {
        let open = match self.writing.take() {
            Some(open) => open,
            None => {
                let path = MediaPath {
                    account_id: self.account_id,
                    id: self.media.ids.next(),
                    kind: MediaType::detect(&self.head).ok_or_else(unknown_type)?,
                };
                let mut write = self.media.store.begin(&path).await?;
                write.write(std::mem::take(&mut self.head).into()).await?;
                (path, write)
            }
        };
        Ok(self.writing.insert(open))
    }
}

fn unknown_type() -> FieldErrors {
    FieldErrors::one("file", "must be a JPEG, PNG or WebP image, an MP4 video or a PDF")
}

/// The last part of a path in any notation, without control characters; a name that is empty then is `file`.
fn base_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe: String = last.chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect();
    match safe.trim() {
        "" | "." | ".." => "file".to_owned(),
        name => name.to_owned(),
    }
}
