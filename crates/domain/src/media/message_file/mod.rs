//! Files of messages: what contacts and the business's own app sent, and uploads to send.
//!
//! A file is `pending` until its bytes are stored whole. Its bytes are private: no public URL names them.

mod fetch;
mod file_type;
#[cfg(any(test, feature = "mocks"))]
pub mod in_memory;
mod ports;
mod service;
#[cfg(test)]
mod tests;
mod upload;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

pub use self::fetch::{
    FETCH_FOR, FETCH_LEASE, FetchDecision, FetchFacts, FetchOutcome, StoredContent, decide, is_over, lost_files_event,
};
pub use self::file_type::{FileKind, MessageFileType, SNIFFED_FILE_BYTES};
pub use self::ports::*;
pub use self::service::{FileAccessError, MessageMedia, OpenFile};
pub use self::upload::{KEPT_FOR, MessageUpload};
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, MediaId, redacted_debug, string_enum, timestamp};

string_enum! {
    /// Whether the file of a message is available.
    FileState {
        /// The file is not fetched yet.
        Pending = "pending",
        /// The file is stored as a whole.
        Ready = "ready",
        /// The file will not be fetched; `reason` says why.
        Failed = "failed",
        /// WhatsApp did not give the file in time, or it is no longer kept.
        Expired = "expired",
    }
}

string_enum! {
    /// Why a file will not be fetched.
    FileFailure {
        /// The file exceeds `MEDIA_INBOUND_MAX`.
        TooLarge = "too_large",
        /// Recado must not connect to the address of the file.
        Refused = "refused",
        /// Three times the content did not have the hash that WhatsApp reports.
        HashMismatch = "hash_mismatch",
        /// The address is on a host that must not receive the access token.
        Host = "host",
    }
}

/// A file of a message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageFile {
    /// The file's id, for `GET /api/media/{id}`.
    pub id: MediaId,
    /// The type of the file.
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// The media type that WhatsApp reports, or that the content of an upload has; null if it is unknown.
    #[schemars(example = &"image/jpeg")]
    pub mime_type: Option<String>,
    /// The file's name; null if it has none.
    #[schemars(example = &"cardapio.pdf")]
    pub file_name: Option<String>,
    /// The stored bytes; null until the file is ready.
    #[schemars(example = 303_833)]
    pub size: Option<u64>,
    /// SHA-256 of the stored bytes in lower-case hex; null until the file is ready.
    #[schemars(example = &"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub sha256: Option<String>,
    /// Whether the file is available.
    pub state: FileState,
    /// Why the file will not be fetched; null unless `state` is `failed`.
    pub reason: Option<FileFailure>,
    /// Until when the file is kept; null for the files of messages, which are kept as long as their message.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub expires_at: Option<OffsetDateTime>,
}

redacted_debug!(MessageFile {
    id,
    kind,
    state,
    reason
});

/// A file that a callback names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedFile {
    pub kind: FileKind,
    /// WhatsApp's id of the file.
    pub wa_media_id: String,
    pub mime_type: Option<String>,
    pub file_name: Option<String>,
    /// SHA-256 of the content.
    pub sha256: Option<[u8; 32]>,
}

redacted_debug!(AnnouncedFile { kind });

/// The key of a message's file in the file store. Each attempt to fetch a file writes another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFilePath {
    pub account_id: AccountId,
    pub key: Uuid,
}

/// The public route of template files serves no such path: it has one more segment.
impl fmt::Display for MessageFilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/messages/{}", self.account_id, self.key)
    }
}

/// A ready file, with what its readers need.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub id: MediaId,
    pub kind: FileKind,
    pub path: MessageFilePath,
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// The type that the content has. None if it is unknown.
    pub content_type: Option<MessageFileType>,
    /// The media type that WhatsApp reported.
    pub mime_type: Option<String>,
    pub file_name: Option<String>,
}

redacted_debug!(StoredFile { id, kind, size });
