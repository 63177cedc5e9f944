//! Files: where they lie, and how they are published.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use uuid::Uuid;

use super::MediaType;
use crate::shared::{AccountId, FieldErrors};

/// Where a file lies in the store: `{accountId}/{uuid}.{ext}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MediaPath {
    /// Whose it is.
    pub account_id: AccountId,
    /// Which one.
    pub id: Uuid,
    /// What it is.
    pub kind: MediaType,
}

impl fmt::Display for MediaPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.account_id, self.id, self.kind.extension())
    }
}

/// The text is no path of a file of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not the path of a stored file")]
pub struct NoMediaPath;

impl FromStr for MediaPath {
    type Err = NoMediaPath;

    /// Takes the one spelling that [`fmt::Display`] writes, and no other.
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

/// Where stored files are fetched from: `{base}/{accountId}/{uuid}.{ext}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaAddress(String);

impl MediaAddress {
    /// The address under which files are published; a slash at its end does not count.
    pub fn new(base: &str) -> Self {
        Self(base.trim_end_matches('/').to_owned())
    }

    /// The address of a file.
    pub fn url(&self, path: &MediaPath) -> String {
        format!("{}/{path}", self.0)
    }

    /// The file of ours that an address names; none for every other address.
    pub fn path(&self, url: &str) -> Option<MediaPath> {
        url.strip_prefix(&self.0)?.strip_prefix('/')?.parse().ok()
    }
}

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoredMedia {
    /// Where anybody can fetch it.
    #[schemars(
        example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
    )]
    pub url: String,
    /// What it is, by its first bytes, whatever its name says.
    #[serde(rename = "type")]
    pub kind: MediaType,
    /// How long it is, in bytes.
    #[schemars(example = 48213)]
    pub size: u64,
    /// What the caller called it: the last part of the name alone, at most 255 characters.
    #[schemars(example = "bolo.png")]
    pub name: String,
}

/// Why a store of files did not do as asked.
#[derive(Debug, Error)]
pub enum MediaStoreError {
    /// It has no address.
    #[error("the media store is not configured")]
    NotConfigured,
    /// It failed, or cannot be reached. The text is for the log.
    #[error("the media store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a file was not taken.
#[derive(Debug, Error)]
pub enum MediaError {
    /// It is not of a type, or of a size, that may be uploaded.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] MediaStoreError),
}
