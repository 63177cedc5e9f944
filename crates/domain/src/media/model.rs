//! Files: their paths in the store and their URLs.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use uuid::Uuid;

use super::MediaType;
use crate::shared::{AccountId, FieldErrors, StoreError};

/// The path of a file in the store: `{accountId}/{uuid}.{ext}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MediaPath {
    pub account_id: AccountId,
    pub id: Uuid,
    pub kind: MediaType,
}

impl fmt::Display for MediaPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.account_id, self.id, self.kind.extension())
    }
}

/// The text is not the path of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not the path of a stored file")]
pub struct NoMediaPath;

impl FromStr for MediaPath {
    type Err = NoMediaPath;

    /// Accepts only the spelling that [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Self, NoMediaPath> {
        let read = || {
            let (account, file) = text.split_once('/')?;
            let (id, extension) = file.split_once('.')?;
            Some(Self {
                account_id: AccountId(Uuid::parse_str(account).ok()?),
                id: Uuid::parse_str(id).ok()?,
                kind: MediaType::from_extension(extension)?,
            })
        };
        read().filter(|path| path.to_string() == text).ok_or(NoMediaPath)
    }
}

/// The base of the URLs of stored files: `{base}/{accountId}/{uuid}.{ext}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaAddress(String);

impl MediaAddress {
    /// `base` with or without a trailing slash.
    pub fn new(base: &str) -> Self {
        Self(base.trim_end_matches('/').to_owned())
    }

    /// The URL of a file.
    pub fn url(&self, path: &MediaPath) -> String {
        format!("{}/{path}", self.0)
    }

    /// The stored file that a URL names, or none for every other URL.
    pub fn path(&self, url: &str) -> Option<MediaPath> {
        url.strip_prefix(&self.0)?.strip_prefix('/')?.parse().ok()
    }
}

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMedia {
    /// The public URL of the file.
    pub url: String,
    /// The file's type, detected from its first bytes. The name is not considered.
    pub kind: MediaType,
    pub size: u64,
    /// The name that the caller gave, without its path: at most 255 characters.
    pub name: String,
}

/// An error of the file store.
#[derive(Debug, Error)]
pub enum MediaStoreError {
    /// No store is configured.
    #[error("the media store is not configured")]
    NotConfigured,
    /// The store failed or cannot be reached. The text is for the log.
    #[error("the media store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, Error)]
pub enum MediaError {
    /// The type or size of the file is not allowed.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] MediaStoreError),
    /// The row of the file could not be stored.
    #[error(transparent)]
    Row(#[from] StoreError),
}
