//! `ArchiveStorage` as gzip files in the file store. A page of lines is compressed or expanded at a time, so memory does
//! not grow with the file.

use std::io::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use futures_util::StreamExt as _;
use recado_domain::media::{MediaStoreError, MediaStream, MediaWrite, MessageFilePath, MessageFileStorage};
use recado_domain::retention::{ArchiveRead, ArchiveStorage, ArchiveWrite, StoredArchive};
use sha2::{Digest as _, Sha256};

/// The compressed bytes that are expanded at once.
const READ_BYTES: usize = 16 * 1024;

/// The archives of campaigns in a file store.
#[derive(Clone)]
pub struct GzipArchives(Arc<dyn MessageFileStorage>);

impl GzipArchives {
    pub fn new(files: Arc<dyn MessageFileStorage>) -> Self {
        Self(files)
    }
}

fn failed(error: io::Error) -> MediaStoreError {
    MediaStoreError::Failed(error.into())
}

/// Size and hash of the compressed bytes so far.
#[derive(Clone, Default)]
struct Stored {
    size: u64,
    hash: Sha256,
}

impl Stored {
    fn add(&mut self, bytes: &[u8]) {
        self.size = self.size.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.hash.update(bytes);
    }

    fn finish(self) -> StoredArchive {
        StoredArchive {
            size: self.size,
            sha256: self.hash.finalize().into(),
        }
    }
}

struct GzipWrite {
    file: Box<dyn MediaWrite>,
    encoder: GzEncoder<Vec<u8>>,
    stored: Stored,
}

impl GzipWrite {
    async fn store(&mut self, compressed: Vec<u8>) -> Result<(), MediaStoreError> {
        if compressed.is_empty() {
            return Ok(());
        }
        self.stored.add(&compressed);
        self.file.write(compressed.into()).await
    }
}

#[async_trait]
impl ArchiveWrite for GzipWrite {
    async fn write(&mut self, lines: Bytes) -> Result<(), MediaStoreError> {
        self.encoder.write_all(&lines).map_err(failed)?;
        let compressed = std::mem::take(self.encoder.get_mut());
        self.store(compressed).await
    }

    async fn commit(mut self: Box<Self>) -> Result<StoredArchive, MediaStoreError> {
        self.encoder.try_finish().map_err(failed)?;
        let compressed = std::mem::take(self.encoder.get_mut());
        self.store(compressed).await?;
        self.file.commit().await?;
        Ok(self.stored.finish())
    }
}

struct GzipRead {
    content: MediaStream,
    /// Compressed bytes that are not expanded yet.
    pending: Bytes,
    decoder: MultiGzDecoder<Vec<u8>>,
    stored: Stored,
    is_complete: bool,
}

#[async_trait]
impl ArchiveRead for GzipRead {
    async fn next(&mut self) -> Result<Option<Bytes>, MediaStoreError> {
        while self.decoder.get_ref().is_empty() && !self.is_complete {
            if self.pending.is_empty() {
                match self.content.next().await.transpose()? {
                    Some(chunk) => self.pending = chunk,
                    None => {
                        // A file that was cut short fails here.
                        self.decoder.try_finish().map_err(failed)?;
                        self.is_complete = true;
                    }
                }
                continue;
            }
            let chunk = self.pending.split_to(self.pending.remaining().min(READ_BYTES));
            self.stored.add(&chunk);
            self.decoder.write_all(&chunk).map_err(failed)?;
            // The decoder keeps what it expanded until its next write.
            self.decoder.flush().map_err(failed)?;
        }
        let lines = std::mem::take(self.decoder.get_mut());
        Ok((!lines.is_empty()).then(|| lines.into()))
    }

    fn stored(&self) -> StoredArchive {
        self.stored.clone().finish()
    }
}

#[async_trait]
impl ArchiveStorage for GzipArchives {
    async fn begin(&self, path: &MessageFilePath) -> Result<Box<dyn ArchiveWrite>, MediaStoreError> {
        Ok(Box::new(GzipWrite {
            file: self.0.begin_file(path).await?,
            encoder: GzEncoder::new(Vec::new(), Compression::fast()),
            stored: Stored::default(),
        }))
    }

    async fn open(&self, path: &MessageFilePath, size: u64) -> Result<Option<Box<dyn ArchiveRead>>, MediaStoreError> {
        let content = self.0.read_file(path, 0..size).await?;
        Ok(content.map(|content| {
            let file: Box<dyn ArchiveRead> = Box::new(GzipRead {
                content,
                pending: Bytes::new(),
                decoder: MultiGzDecoder::new(Vec::new()),
                stored: Stored::default(),
                is_complete: false,
            });
            file
        }))
    }

    async fn read(&self, path: &MessageFilePath, range: Range<u64>) -> Result<Option<MediaStream>, MediaStoreError> {
        self.0.read_file(path, range).await
    }

    async fn delete(&self, path: &MessageFilePath) -> Result<(), MediaStoreError> {
        self.0.delete_file(path).await
    }
}

#[cfg(test)]
mod tests {
    use recado_domain::shared::AccountId;
    use uuid::Uuid;

    use super::*;
    use crate::media::ObjectMedia;

    fn path() -> MessageFilePath {
        MessageFilePath {
            account_id: AccountId(Uuid::from_u128(1)),
            key: Uuid::now_v7(),
        }
    }

    async fn read_lines(
        archives: &GzipArchives,
        path: &MessageFilePath,
        size: u64,
    ) -> Result<Vec<u8>, MediaStoreError> {
        let mut file = archives.open(path, size).await?.unwrap();
        let mut lines = vec![];
        while let Some(more) = file.next().await? {
            lines.extend_from_slice(&more);
        }
        assert_eq!(file.stored().size, size);
        Ok(lines)
    }

    #[tokio::test]
    async fn archive_is_read_back_as_it_was_written() {
        let directory = std::env::temp_dir().join(format!("recado-archives-{}", Uuid::now_v7()));
        let url = format!("file://{}", directory.display());
        let archives = GzipArchives::new(Arc::new(ObjectMedia::open(Some(&url), []).unwrap()));
        let path = path();
        assert!(archives.open(&path, 1).await.unwrap().is_none());
        let (mut file, mut written) = (archives.begin(&path).await.unwrap(), vec![]);
        for page in 0..50_u32 {
            // Lines that compress badly: several parts of the store.
            let lines: String = (0..1000_u32)
                .map(|line| format!("{}\n", hex::encode(Sha256::digest((page * 1000 + line).to_be_bytes()))))
                .collect();
            written.extend_from_slice(lines.as_bytes());
            file.write(lines.into()).await.unwrap();
        }
        let stored = file.commit().await.unwrap();
        assert!(read_lines(&archives, &path, stored.size).await.unwrap() == written);
        // Cut short: an error, not a smaller file.
        let cut = read_lines(&archives, &path, stored.size - 1).await;
        assert!(cut.is_err());
        archives.delete(&path).await.unwrap();
        assert!(archives.open(&path, 1).await.unwrap().is_none());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
