//! Opens the store of the files: a directory or a bucket.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};

use super::transport::{self, Connector};

/// Part size of an upload, in bytes: S3's smallest part. A smaller file is written in one call.
const BUCKET_PART_SIZE: usize = 5 * 1024 * 1024;

/// The same for a directory: large enough for few system calls.
const DIRECTORY_PART_SIZE: usize = 256 * 1024;

/// How long a failed request to the bucket is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) struct StoreLocation {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Prefix of every key: empty, or ends with a slash.
    pub(super) prefix: String,
    pub(super) part_size: usize,
    /// The directory; `None` for a bucket.
    pub(super) directory: Option<std::path::PathBuf>,
    /// Whether the store also stores response headers. A directory stores only bytes.
    pub(super) stores_headers: bool,
}

pub(super) fn open_directory(directory: &str) -> Result<StoreLocation, String> {
    let path = FilePath::new(directory);
    if !path.is_absolute() {
        return Err("must name an absolute directory (file:///directory)".to_owned());
    }
    std::fs::create_dir_all(path).map_err(|error| format!("the directory cannot be created: {error}"))?;
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| error.to_string())?;
    // An acknowledged file must be as durable as the database row that names it.
    let store = store.with_fsync(true);
    Ok(StoreLocation {
        store: Arc::new(store),
        prefix: String::new(),
        part_size: DIRECTORY_PART_SIZE,
        directory: Some(path.to_owned()),
        stores_headers: false,
    })
}

pub(super) fn open_bucket(
    bucket: &str,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<StoreLocation, String> {
    let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
    let prefix = prefix.trim_matches('/');
    Path::parse(prefix).map_err(|_| "has a prefix that is not valid in a key".to_owned())?;
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
        retry_timeout: RETRY_TIMEOUT,
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
        part_size: BUCKET_PART_SIZE,
        directory: None,
        stores_headers: true,
    })
}
