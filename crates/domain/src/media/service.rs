//! The use cases of media: uploading and fetching files.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    MediaAddress, MediaError, MediaFile, MediaPath, MediaStore, MediaStoreError, MediaType, MediaWrite, SNIFFED_BYTES,
    StoredMedia,
};
use crate::shared::{AccountId, FieldErrors, Ids, Tenant};

/// The longest stored file name, in characters.
const NAME_CHARS: usize = 255;

/// Uploads and fetches files.
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

    /// Starts an upload. Nothing is written before the content's type is known.
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

    /// A stored file, for every caller: only those who were given its URL know it.
    pub async fn fetch(&self, path: MediaPath) -> Result<Option<MediaFile>, MediaStoreError> {
        MediaFile::find(&self.store, path).await
    }

    /// Whether a URL is one of a file in this store, whether or not the file exists.
    pub fn publishes(&self, url: &str) -> bool {
        self.address.path(url).is_some()
    }

    /// The account's own file at a URL. Nothing else is fetched: no file of another account, and nothing from another
    /// host.
    pub async fn own(&self, account: AccountId, url: &str) -> Result<Option<MediaFile>, MediaStoreError> {
        match self.address.path(url).filter(|path| path.account_id == account) {
            Some(path) => self.fetch(path).await,
            None => Ok(None),
        }
    }
}

/// An upload in progress. If it is dropped before it is finished, nothing of it is stored.
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

    /// Commits the file to the store.
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

    /// Removes what was written of a rejected file, and waits for it: after the response, nothing of the file exists.
    pub async fn discard(self) {
        if let Some((_, write)) = self.writing {
            write.discard().await;
        }
    }

    /// The file in the store. It is opened when its type is known.
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

/// The last segment of a path in Unix or Windows notation, without control characters. An empty name becomes `file`.
pub(super) fn base_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe: String = last.chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect();
    match safe.trim() {
        "" | "." | ".." => "file".to_owned(),
        name => name.to_owned(),
    }
}
