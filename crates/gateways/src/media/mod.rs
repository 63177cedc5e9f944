//! Files of templates in a directory or in an S3 bucket, behind one port, by the crate `object_store`.

mod transport;

use std::future::Future;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt as _,
    PutMultipartOptions, PutOptions, RetryConfig,
};
use recado_domain::media::{MediaPath, MediaPieces, MediaStore, MediaStoreError, MediaWrite};
use recado_domain::shared::AccountId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use transport::Connector;

/// What is collected before it is written: for a bucket the least that it takes as a part, for a directory enough to
/// make few system calls. A file that is smaller is written in one call.
const BUCKET_PART: usize = 5 * 1024 * 1024;
const DIRECTORY_PART: usize = 256 * 1024;

/// How long a store may take over one step, and over the next piece of a file.
const STEP: Duration = Duration::from_secs(60);

/// How long a step that failed is tried again.
const RETRYING: Duration = Duration::from_secs(20);

/// The longest that whoever fetches a file may keep it: its content never changes under one path.
const CACHED: &str = "public, max-age=31536000, immutable";

/// Files in a directory or in a bucket. Unset, every call says so.
#[derive(Clone)]
pub struct ObjectMedia {
    location: Option<StoreLocation>,
}

#[derive(Clone)]
struct StoreLocation {
    store: Arc<dyn ObjectStore>,
    /// Before every path: empty, or ending in a slash.
    prefix: String,
    part: usize,
    /// Where it is a directory: which one.
    directory: Option<std::path::PathBuf>,
    /// Whether the store keeps what is told to those who fetch a file; a directory keeps bytes alone.
    keeps_headers: bool,
}

impl ObjectMedia {
    /// `url` is `file:///directory`, which is made, or `s3://bucket/prefix`; none: not configured. `environment` holds
    /// the `AWS_...` variables: credentials, region, `AWS_ENDPOINT_URL`. Connects to nothing. The error never holds a
    /// value.
    pub fn open(url: Option<&str>, environment: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let Some(url) = url else {
            return Ok(Self { location: None });
        };
        let location = if let Some(directory) = url.strip_prefix("file://") {
            directory_at(directory)?
        } else if let Some(bucket) = url.strip_prefix("s3://") {
            bucket_at(bucket, environment)?
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

fn directory_at(directory: &str) -> Result<StoreLocation, String> {
    let path = FilePath::new(directory);
    if !path.is_absolute() {
        return Err("must name an absolute directory (file:///directory)".to_owned());
    }
    std::fs::create_dir_all(path).map_err(|error| format!("the directory cannot be made: {error}"))?;
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| error.to_string())?;
    // What was acknowledged is on the disk, as what the database says of it is.
    let store = store.with_fsync(true);
    Ok(StoreLocation {
        store: Arc::new(store),
        prefix: String::new(),
        part: DIRECTORY_PART,
        directory: Some(path.to_owned()),
        keeps_headers: false,
    })
}

fn bucket_at(bucket: &str, environment: impl IntoIterator<Item = (String, String)>) -> Result<StoreLocation, String> {
    let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
    let prefix = prefix.trim_matches('/');
    Path::parse(prefix).map_err(|_| "has a prefix that no key can begin with".to_owned())?;
    if bucket.is_empty() {
        return Err("must name a bucket (s3://bucket/prefix)".to_owned());
    }
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment {
        let key = name.to_ascii_lowercase();
        let key = key
            .starts_with("aws_")
            .then(|| key.parse::<AmazonS3ConfigKey>().ok())
            .flatten();
        if let Some(key) = key {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::Endpoint)
        .unwrap_or_default();
    if transport::is_loopback(&endpoint) {
        builder = builder.with_allow_http(true);
    }
    let retry = RetryConfig {
        max_retries: 4,
        retry_timeout: RETRYING,
        ..RetryConfig::default()
    };
    let store = builder
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_http_connector(Connector)
        .build();
    let prefix = if prefix.is_empty() {
        String::new()
    } else {
        format!("{prefix}/")
    };
    Ok(StoreLocation {
        store: Arc::new(store.map_err(|error| format!("cannot be used: {error}"))?),
        prefix,
        part: BUCKET_PART,
        directory: None,
        keeps_headers: true,
    })
}

impl StoreLocation {
    fn key(&self, path: &MediaPath) -> Path {
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
        // For a directory the crate makes and syncs directories where it is called, and other requests would wait.
        let (store, key, runtime) = (self.store.clone(), key.clone(), Handle::current());
        let begun = move || runtime.block_on(async { store.put_multipart_opts(&key, options).await });
        tokio::task::spawn_blocking(begun).await?
    }

    fn headers(&self, path: &MediaPath) -> Attributes {
        if !self.keeps_headers {
            return Attributes::new();
        }
        Attributes::from_iter([
            (Attribute::ContentType, path.kind.as_str()),
            (Attribute::ContentDisposition, "inline"),
            (Attribute::CacheControl, CACHED),
        ])
    }
}

/// A step of the store, within its time; none when the store says that there is no such file.
async fn step<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<Option<T>, MediaStoreError> {
    match tokio::time::timeout(STEP, work).await {
        Ok(Ok(done)) => Ok(Some(done)),
        Ok(Err(object_store::Error::NotFound { .. })) => Ok(None),
        Ok(Err(error)) => Err(MediaStoreError::Failed(error.into())),
        Err(_) => Err(late()),
    }
}

/// A step for which nothing has to be there.
async fn done<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, MediaStoreError> {
    let absent = || MediaStoreError::Failed("the store does not have what it was given".into());
    step(work).await?.ok_or_else(absent)
}

fn late() -> MediaStoreError {
    MediaStoreError::Failed(format!("the store did not answer within {STEP:?}").into())
}

#[async_trait]
impl MediaStore for ObjectMedia {
    async fn begin(&self, path: &MediaPath) -> Result<Box<dyn MediaWrite>, MediaStoreError> {
        let location = self.location()?.clone();
        Ok(Box::new(MediaUpload {
            key: location.key(path),
            headers: location.headers(path),
            location,
            pending: BytesMut::new(),
            spare: BytesMut::new(),
            upload: None,
            under_way: None,
        }))
    }

    async fn size(&self, path: &MediaPath) -> Result<Option<u64>, MediaStoreError> {
        let location = self.location()?;
        let found = step(location.store.head(&location.key(path))).await?;
        Ok(found.map(|found| found.size))
    }

    async fn read(&self, path: &MediaPath, from: u64) -> Result<Option<MediaPieces>, MediaStoreError> {
        let location = self.location()?;
        let options = GetOptions {
            range: (from > 0).then_some(GetRange::Offset(from)),
            ..GetOptions::default()
        };
        let found = step(location.store.get_opts(&location.key(path), options)).await?;
        Ok(found.map(|found| in_time(found.into_stream())))
    }

    async fn delete(&self, path: &MediaPath) -> Result<(), MediaStoreError> {
        let location = self.location()?;
        step(location.store.delete(&location.key(path))).await.map(drop)
    }

    async fn delete_account(&self, account: AccountId) -> Result<(), MediaStoreError> {
        let location = self.location()?;
        let own = Path::from(format!("{}{account}", location.prefix));
        // Listed anew until nothing is left: what is removed while it is listed may hide what comes after it.
        loop {
            let mut files = location.store.list(Some(&own));
            let mut seen = false;
            while let Some(file) = tokio::time::timeout(STEP, files.next()).await.map_err(|_| late())? {
                let file = file.map_err(|error| MediaStoreError::Failed(error.into()))?;
                step(location.store.delete(&file.location)).await?;
                seen = true;
            }
            if !seen {
                break;
            }
        }
        if let Some(directory) = &location.directory {
            // An upload that is being given up may still have a part there, and removes it itself.
            if let Err(error) = std::fs::remove_dir(directory.join(account.to_string()))
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::debug!(%error, "the directory of an account stays for now");
            }
        }
        Ok(())
    }
}

/// The pieces of a file, each within its time; the time that the reader takes does not count.
fn in_time(pieces: BoxStream<'static, object_store::Result<Bytes>>) -> MediaPieces {
    let next = |mut pieces: BoxStream<'static, object_store::Result<Bytes>>| async move {
        let piece = match tokio::time::timeout(STEP, pieces.next()).await {
            Ok(piece) => piece?.map_err(|error| MediaStoreError::Failed(error.into())),
            Err(_) => Err(late()),
        };
        Some((piece, pieces))
    };
    stream::unfold(pieces, next).boxed()
}

/// A part that is being written, while the next one is collected: answers its memory, which is taken again.
type Part = JoinHandle<Result<BytesMut, MediaStoreError>>;

/// A file on its way: what is smaller than a part goes in one call at the end, so that nothing of it is ever half
/// there; what is larger goes part by part, one after the other.
struct MediaUpload {
    location: StoreLocation,
    key: Path,
    headers: Attributes,
    /// What is collected. Copied, so that the memory of what was read from the network is free for what comes next, and
    /// stays in the processor's cache.
    pending: BytesMut,
    /// The memory of the part before.
    spare: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
    under_way: Option<Part>,
}

impl MediaUpload {
    async fn flush(&mut self) -> Result<(), MediaStoreError> {
        self.settle().await?;
        let part = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare)).freeze();
        let upload = match self.upload.take() {
            Some(upload) => self.upload.insert(upload),
            None => {
                let upload = done(self.location.begin_parts(&self.key, &self.headers)).await?;
                self.upload.insert(upload)
            }
        };
        let writing = done(upload.put_part(part.clone().into()));
        self.under_way = Some(tokio::spawn(async move {
            writing.await?;
            // A store that still holds on to it keeps it.
            let mut memory = part.try_into_mut().unwrap_or_default();
            memory.clear();
            Ok(memory)
        }));
        Ok(())
    }

    /// Waits for the part that is being written, if any. Whoever stops waiting leaves it under way, for [`abort`].
    async fn settle(&mut self) -> Result<(), MediaStoreError> {
        if let Some(part) = &mut self.under_way {
            let written = settled(part).await;
            self.under_way = None;
            self.spare = written?;
        }
        Ok(())
    }

    /// The last part, where there are parts.
    async fn collected(&mut self) -> Result<(), MediaStoreError> {
        if self.upload.is_some() && !self.pending.is_empty() {
            self.flush().await?;
        }
        self.settle().await
    }

    /// Makes the file appear, however long it takes.
    async fn appear(&mut self) -> Result<(), MediaStoreError> {
        let appeared = match self.upload.as_mut() {
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
        appeared.map_err(|error| MediaStoreError::Failed(error.into()))?;
        // It is there now: its parts are not to be taken back.
        self.upload = None;
        Ok(())
    }

    /// Takes the parts back, in a task of its own: whoever stops waiting for it does not stop it.
    fn take_back(&mut self) -> Option<JoinHandle<()>> {
        let upload = self.upload.take()?;
        let runtime = Handle::try_current().ok()?;
        let (part, key) = (self.under_way.take(), self.key.clone());
        Some(runtime.spawn(async move { abort(upload, part, &key).await }))
    }

    /// Takes everything back, also what appeared.
    async fn undo(&mut self) {
        ended(self.take_back()).await;
        if let Err(error) = step(self.location.store.delete(&self.key)).await {
            tracing::warn!(%error, key = %self.key, "a file that nobody knows of was left in the store");
        }
    }
}

async fn settled(part: &mut Part) -> Result<BytesMut, MediaStoreError> {
    part.await.map_err(|error| MediaStoreError::Failed(error.into()))?
}

#[async_trait]
impl MediaWrite for MediaUpload {
    async fn write(&mut self, mut piece: Bytes) -> Result<(), MediaStoreError> {
        while !piece.is_empty() {
            let room = self.location.part.saturating_sub(self.pending.len());
            self.pending.extend_from_slice(&piece.split_to(room.min(piece.len())));
            if self.pending.len() >= self.location.part {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<(), MediaStoreError> {
        if let Err(error) = self.collected().await {
            self.discard().await;
            return Err(error);
        }
        let (tell, told) = oneshot::channel();
        // In a task of its own: what is given up may still succeed, and then nobody knows of the file.
        tokio::spawn(async move {
            let appeared = self.appear().await;
            if appeared.is_err() {
                self.undo().await;
            }
            if let Err(Ok(())) = tell.send(appeared) {
                self.undo().await;
            }
        });
        match tokio::time::timeout(STEP, told).await {
            Ok(appeared) => appeared.map_err(|error| MediaStoreError::Failed(error.into()))?,
            Err(_) => Err(late()),
        }
    }

    async fn discard(mut self: Box<Self>) {
        ended(self.take_back()).await;
    }
}

/// Waits until parts are taken back.
async fn ended(taking_back: Option<JoinHandle<()>>) {
    if let Some(task) = taking_back
        && let Err(error) = task.await
    {
        tracing::warn!(%error, "the parts of a refused file may have been left in the store");
    }
}

impl Drop for MediaUpload {
    fn drop(&mut self) {
        self.take_back();
    }
}

async fn abort(mut upload: Box<dyn MultipartUpload>, part: Option<Part>, key: &Path) {
    // A part that arrives after it would stay; what becomes of it counts no more.
    if let Some(mut part) = part {
        settled(&mut part).await.ok();
    }
    if let Err(error) = done(upload.abort()).await {
        tracing::warn!(%error, %key, "the parts of a refused file were left in the store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_told_to_put_files_on_the_disk() {
        // Nothing is written there.
        let location = directory_at(std::env::temp_dir().to_str().unwrap()).unwrap();
        let store = format!("{:?}", location.store);
        assert!(store.contains("fsync: true"), "{store}");
    }
}
