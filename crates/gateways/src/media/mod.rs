//! `MediaStore` in a directory or an S3 bucket, by the crate `object_store`.

mod archives;
mod erasures;
mod location;
mod transport;

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt as _,
    PutMultipartOptions, PutOptions,
};
use recado_domain::media::{
    MediaPath, MediaStore, MediaStoreError, MediaStream, MediaWrite, MessageFilePath, MessageFileStorage,
};
use recado_domain::shared::AccountId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use archives::GzipArchives;
use location::{StoreLocation, open_bucket, open_directory};

/// Time limit of one operation of the store, and of the next chunk of a file.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// `Cache-Control` of a stored file: clients may cache it, since the content of a path never changes.
const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

/// `MediaStore` in a directory or a bucket. Without a location every call fails with `NotConfigured`.
#[derive(Clone)]
pub struct ObjectMedia {
    location: Option<StoreLocation>,
}

impl ObjectMedia {
    /// `url` is `file:///directory` (created if absent) or `s3://bucket/prefix`; `None` means not configured.
    /// `environment` holds the `AWS_...` variables: credentials, region, `AWS_ENDPOINT_URL`. Does not connect. The
    /// error never contains a value.
    pub fn open(url: Option<&str>, environment: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let Some(url) = url else {
            return Ok(Self { location: None });
        };
        let location = if let Some(directory) = url.strip_prefix("file://") {
            open_directory(directory)?
        } else if let Some(bucket) = url.strip_prefix("s3://") {
            open_bucket(bucket, environment)?
        } else {
            return Err("must begin with file:/// or s3://".to_owned());
        };
        Ok(Self {
            location: Some(location),
        })
    }

    fn location(&self) -> Result<&StoreLocation, MediaStoreError> {
        self.location.as_ref().ok_or(MediaStoreError::NotConfigured)
    }
}

impl StoreLocation {
    fn key(&self, path: &MediaPath) -> Path {
        Path::from(format!("{}{path}", self.prefix))
    }

    fn message_key(&self, path: &MessageFilePath) -> Path {
        Path::from(format!("{}{path}", self.prefix))
    }

    async fn begin_parts(&self, key: &Path, headers: &Attributes) -> object_store::Result<Box<dyn MultipartUpload>> {
        let options = PutMultipartOptions {
            attributes: headers.clone(),
            ..PutMultipartOptions::default()
        };
        if self.directory.is_none() {
            return self.store.put_multipart_opts(key, options).await;
        }
        // The crate creates and syncs directories on the calling thread, which would block other requests.
        let (store, key, runtime) = (self.store.clone(), key.clone(), Handle::current());
        let begin = move || runtime.block_on(async { store.put_multipart_opts(&key, options).await });
        tokio::task::spawn_blocking(begin).await?
    }

    /// The directory of the list of erasures.
    fn erasures(&self) -> Path {
        Path::from(format!("{}erasures", self.prefix))
    }

    fn erasures_of(&self, account: AccountId) -> Path {
        Path::from(format!("{}erasures/{account}", self.prefix))
    }

    /// Lists again until nothing is left: a deletion during a listing may hide later entries.
    async fn delete_below(&self, prefix: &Path) -> Result<(), MediaStoreError> {
        loop {
            let mut files = self.store.list(Some(prefix));
            let mut found_file = false;
            while let Some(file) = tokio::time::timeout(STEP_TIMEOUT, files.next())
                .await
                .map_err(|_| timed_out())?
            {
                let file = file.map_err(|error| MediaStoreError::Failed(error.into()))?;
                run_step(self.store.delete(&file.location)).await?;
                found_file = true;
            }
            if !found_file {
                return Ok(());
            }
        }
    }

    fn headers(&self, path: &MediaPath) -> Attributes {
        if !self.stores_headers {
            return Attributes::new();
        }
        Attributes::from_iter([
            (Attribute::ContentType, path.kind.as_str()),
            (Attribute::ContentDisposition, "inline"),
            (Attribute::CacheControl, CACHE_CONTROL),
        ])
    }
}

/// Runs an operation with `STEP_TIMEOUT`. `None` if the file does not exist.
async fn run_step<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<Option<T>, MediaStoreError> {
    match tokio::time::timeout(STEP_TIMEOUT, work).await {
        Ok(Ok(value)) => Ok(Some(value)),
        Ok(Err(object_store::Error::NotFound { .. })) => Ok(None),
        Ok(Err(error)) => Err(MediaStoreError::Failed(error.into())),
        Err(_) => Err(timed_out()),
    }
}

/// Runs an operation that requires no existing file.
async fn run_write_step<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, MediaStoreError> {
    let absent = || MediaStoreError::Failed("the store reports a missing file during a write".into());
    run_step(work).await?.ok_or_else(absent)
}

fn timed_out() -> MediaStoreError {
    MediaStoreError::Failed(format!("the store did not respond within {STEP_TIMEOUT:?}").into())
}

#[async_trait]
impl MediaStore for ObjectMedia {
    async fn begin(&self, path: &MediaPath) -> Result<Box<dyn MediaWrite>, MediaStoreError> {
        let location = self.location()?.clone();
        let (key, headers) = (location.key(path), location.headers(path));
        Ok(Box::new(MediaUpload::new(location, key, headers)))
    }

    async fn size(&self, path: &MediaPath) -> Result<Option<u64>, MediaStoreError> {
        let location = self.location()?;
        let found = run_step(location.store.head(&location.key(path))).await?;
        Ok(found.map(|found| found.size))
    }

    async fn read(&self, path: &MediaPath, from: u64) -> Result<Option<MediaStream>, MediaStoreError> {
        let location = self.location()?;
        let options = GetOptions {
            range: (from > 0).then_some(GetRange::Offset(from)),
            ..GetOptions::default()
        };
        let found = run_step(location.store.get_opts(&location.key(path), options)).await?;
        Ok(found.map(|found| with_timeout(found.into_stream())))
    }

    async fn delete(&self, path: &MediaPath) -> Result<(), MediaStoreError> {
        let location = self.location()?;
        run_step(location.store.delete(&location.key(path))).await.map(drop)
    }

    async fn delete_account(&self, account: AccountId) -> Result<(), MediaStoreError> {
        let location = self.location()?;
        let account_prefix = Path::from(format!("{}{account}", location.prefix));
        for prefix in [account_prefix, location.erasures_of(account)] {
            location.delete_below(&prefix).await?;
        }
        if let Some(directory) = &location.directory {
            // An aborted upload may still have a part there, and deletes it itself.
            let account_directory = directory.join(account.to_string());
            // The directory of the files of messages, empty by now.
            let _ = std::fs::remove_dir(account_directory.join("messages"));
            if let Err(error) = std::fs::remove_dir(account_directory)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::debug!(%error, "the directory of a deleted account could not be removed");
            }
        }
        Ok(())
    }
}

#[async_trait]
impl MessageFileStorage for ObjectMedia {
    async fn begin_file(&self, path: &MessageFilePath) -> Result<Box<dyn MediaWrite>, MediaStoreError> {
        let location = self.location()?.clone();
        let key = location.message_key(path);
        let mut upload = MediaUpload::new(location, key, Attributes::new());
        upload.one_part = true;
        Ok(Box::new(upload))
    }

    async fn read_file(
        &self,
        path: &MessageFilePath,
        range: Range<u64>,
    ) -> Result<Option<MediaStream>, MediaStoreError> {
        let location = self.location()?;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let found = run_step(location.store.get_opts(&location.message_key(path), options)).await?;
        Ok(found.map(|found| with_timeout(found.into_stream())))
    }

    async fn delete_file(&self, path: &MessageFilePath) -> Result<(), MediaStoreError> {
        let location = self.location()?;
        run_step(location.store.delete(&location.message_key(path)))
            .await
            .map(drop)
    }
}

/// Applies `STEP_TIMEOUT` to each chunk of a file. The time that the reader takes between chunks does not count.
fn with_timeout(chunks: BoxStream<'static, object_store::Result<Bytes>>) -> MediaStream {
    let next = |mut chunks: BoxStream<'static, object_store::Result<Bytes>>| async move {
        let chunk = match tokio::time::timeout(STEP_TIMEOUT, chunks.next()).await {
            Ok(chunk) => chunk?.map_err(|error| MediaStoreError::Failed(error.into())),
            Err(_) => Err(timed_out()),
        };
        Some((chunk, chunks))
    };
    stream::unfold(chunks, next).boxed()
}

/// The task that writes one part while the next one is buffered. It returns the part's buffer for reuse.
type PartTask = JoinHandle<Result<BytesMut, MediaStoreError>>;

/// A file that is being uploaded. A file smaller than a part is written in one call at the end, so it is never half
/// stored. A larger file is a multipart upload, one part after the other.
struct MediaUpload {
    location: StoreLocation,
    key: Path,
    headers: Attributes,
    /// The buffered part. Chunks are copied, so that the network's read buffer is reused and stays in the CPU cache.
    pending: BytesMut,
    /// The buffer of the previous part.
    spare: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
    writing: Option<PartTask>,
    /// Whether the next part is buffered only after this one is written, so that one part is in memory.
    one_part: bool,
}

impl MediaUpload {
    fn new(location: StoreLocation, key: Path, headers: Attributes) -> Self {
        Self {
            location,
            key,
            headers,
            pending: BytesMut::new(),
            spare: BytesMut::new(),
            upload: None,
            writing: None,
            one_part: false,
        }
    }

    async fn flush(&mut self) -> Result<(), MediaStoreError> {
        self.wait_for_part().await?;
        let part = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare)).freeze();
        let upload = match self.upload.take() {
            Some(upload) => self.upload.insert(upload),
            None => {
                let upload = run_write_step(self.location.begin_parts(&self.key, &self.headers)).await?;
                self.upload.insert(upload)
            }
        };
        let put = run_write_step(upload.put_part(part.clone().into()));
        self.writing = Some(tokio::spawn(async move {
            put.await?;
            // If the store still holds a reference to the buffer, the next part gets a new one.
            let mut buffer = part.try_into_mut().unwrap_or_default();
            buffer.clear();
            Ok(buffer)
        }));
        if self.one_part {
            self.wait_for_part().await?;
        }
        Ok(())
    }

    /// Waits for the part that is being written, if any. If this future is dropped, the part stays there for [`abort`].
    async fn wait_for_part(&mut self) -> Result<(), MediaStoreError> {
        if let Some(part) = &mut self.writing {
            let written = join_part(part).await;
            self.writing = None;
            self.spare = written?;
        }
        Ok(())
    }

    /// Writes the last part of a multipart upload.
    async fn finish_parts(&mut self) -> Result<(), MediaStoreError> {
        if self.upload.is_some() && !self.pending.is_empty() {
            self.flush().await?;
        }
        self.wait_for_part().await
    }

    /// Makes the file visible, without a time limit.
    async fn publish(&mut self) -> Result<(), MediaStoreError> {
        let published = match self.upload.as_mut() {
            Some(upload) => upload.complete().await,
            None => {
                let payload = std::mem::take(&mut self.pending).freeze().into();
                let options = PutOptions {
                    attributes: self.headers.clone(),
                    ..PutOptions::default()
                };
                self.location.store.put_opts(&self.key, payload, options).await
            }
        };
        published.map_err(|error| MediaStoreError::Failed(error.into()))?;
        // The file is visible: a drop must not abort the upload.
        self.upload = None;
        Ok(())
    }

    /// Aborts the multipart upload in a separate task, which continues if its handle is dropped.
    fn spawn_abort(&mut self) -> Option<JoinHandle<()>> {
        let upload = self.upload.take()?;
        let runtime = Handle::try_current().ok()?;
        let (part, key) = (self.writing.take(), self.key.clone());
        Some(runtime.spawn(async move { abort(upload, part, &key).await }))
    }

    /// Aborts the upload and deletes the file if it is visible.
    async fn undo(&mut self) {
        wait_for_abort(self.spawn_abort()).await;
        if let Err(error) = run_step(self.location.store.delete(&self.key)).await {
            tracing::warn!(%error, key = %self.key, "an uncommitted file could not be deleted, delete it by hand");
        }
    }
}

async fn join_part(part: &mut PartTask) -> Result<BytesMut, MediaStoreError> {
    part.await.map_err(|error| MediaStoreError::Failed(error.into()))?
}

#[async_trait]
impl MediaWrite for MediaUpload {
    async fn write(&mut self, mut chunk: Bytes) -> Result<(), MediaStoreError> {
        while !chunk.is_empty() {
            let room = self.location.part_size.saturating_sub(self.pending.len());
            self.pending.extend_from_slice(&chunk.split_to(room.min(chunk.len())));
            if self.pending.len() >= self.location.part_size {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<(), MediaStoreError> {
        if let Err(error) = self.finish_parts().await {
            self.discard().await;
            return Err(error);
        }
        let (sender, receiver) = oneshot::channel();
        // In a separate task: after a timeout the call may still succeed, and then this task deletes the file.
        tokio::spawn(async move {
            let published = self.publish().await;
            if published.is_err() {
                self.undo().await;
            }
            if let Err(Ok(())) = sender.send(published) {
                self.undo().await;
            }
        });
        match tokio::time::timeout(STEP_TIMEOUT, receiver).await {
            Ok(published) => published.map_err(|error| MediaStoreError::Failed(error.into()))?,
            Err(_) => Err(timed_out()),
        }
    }

    async fn discard(mut self: Box<Self>) {
        wait_for_abort(self.spawn_abort()).await;
    }
}

async fn wait_for_abort(abort: Option<JoinHandle<()>>) {
    if let Some(task) = abort
        && let Err(error) = task.await
    {
        tracing::warn!(%error, "the parts of an aborted upload may still be in the store");
    }
}

impl Drop for MediaUpload {
    fn drop(&mut self) {
        self.spawn_abort();
    }
}

async fn abort(mut upload: Box<dyn MultipartUpload>, part: Option<PartTask>, key: &Path) {
    // Waits for the part in flight: S3 keeps a part that arrives after the abort. Its result does not matter.
    if let Some(mut part) = part {
        join_part(&mut part).await.ok();
    }
    if let Err(error) = run_write_step(upload.abort()).await {
        tracing::warn!(%error, %key, "the parts of an aborted upload are still in the store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_store_syncs_files_to_disk() {
        // Writes no file.
        let location = open_directory(std::env::temp_dir().to_str().unwrap()).unwrap();
        let store = format!("{:?}", location.store);
        assert!(store.contains("fsync: true"), "{store}");
    }
}
