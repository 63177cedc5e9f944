//! Fetches the files of messages from WhatsApp into the file store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use time::Duration;

use super::ProfileStore;
use crate::media::{
    ClaimedFile, FETCH_LEASE, FetchDecision, FetchOutcome, FileClaim, FileState, MediaStoreError, MediaWrite,
    MessageFile, MessageFileStorage, MessageFileStore, MessageFileType, SNIFFED_FILE_BYTES, StoredContent, decide,
    is_over,
};
use crate::messaging::WhatsappCredentials;
use crate::shared::{Cipher, Clock, Event, Ids, StoreError, WebhookKind};

/// How long a worker that receives a file waits before it renews its claim.
const RENEW_AFTER: Duration = Duration::seconds(15);

/// The longest time of one attempt to receive a file. A server that sends a byte now and then would otherwise occupy a
/// worker for days.
const LONGEST_FETCH: Duration = Duration::minutes(15);

/// Where WhatsApp offers a file.
#[derive(Clone, PartialEq, Eq)]
pub struct FileAddress {
    pub url: String,
    /// SHA-256 of the content, if the response has a readable one.
    pub sha256: Option<[u8; 32]>,
    pub size: Option<u64>,
}

/// A file that is being received.
pub struct FileDownload {
    /// The declared length.
    pub size: Option<u64>,
    pub content: BoxStream<'static, Result<Bytes, FileGatewayError>>,
}

/// Why WhatsApp's server did not give a file.
#[derive(Debug, Error)]
pub enum FileGatewayError {
    /// It answered with an error, or not in time. WhatsApp counts such requests.
    #[error("refused: {0}")]
    Rejected(String),
    /// There was no connection, or it broke.
    #[error("interrupted: {0}")]
    Interrupted(String),
    /// The address is on a host that must not receive the token. Nothing was sent.
    #[error("a foreign host")]
    Host,
    /// The egress rules forbid the address. Nothing was sent.
    #[error("a forbidden address")]
    Forbidden,
}

/// WhatsApp's files. Every call has a timeout, and so has each chunk. Nothing is retried. The token MUST be sent only to
/// the host of the API and to the configured media hosts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait FileGateway: Send + Sync {
    /// `GET /{media_id}`.
    async fn locate(&self, credentials: &WhatsappCredentials, media_id: &str) -> Result<FileAddress, FileGatewayError>;

    /// Begins to receive the file at an address.
    async fn download(&self, credentials: &WhatsappCredentials, url: &str) -> Result<FileDownload, FileGatewayError>;
}

/// Claims files, fetches them and records the outcome.
#[derive(Clone)]
pub struct FileFetcher {
    pub files: Arc<dyn MessageFileStore>,
    pub storage: Arc<dyn MessageFileStorage>,
    pub gateway: Arc<dyn FileGateway>,
    pub profiles: Arc<dyn ProfileStore>,
    pub cipher: Arc<dyn Cipher>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    /// `MEDIA_INBOUND_MAX`, in bytes.
    pub max_bytes: u64,
}

/// How an attempt ended, and how many requests WhatsApp answered with an error.
struct Attempt {
    outcome: FetchOutcome,
    failed_requests: u16,
}

impl From<FetchOutcome> for Attempt {
    fn from(outcome: FetchOutcome) -> Self {
        Self {
            outcome,
            failed_requests: 0,
        }
    }
}

impl From<FileGatewayError> for Attempt {
    fn from(error: FileGatewayError) -> Self {
        let (outcome, failed_requests) = match error {
            FileGatewayError::Rejected(_) => (FetchOutcome::Unavailable, 1),
            FileGatewayError::Interrupted(_) => (FetchOutcome::Unavailable, 0),
            FileGatewayError::Host => (FetchOutcome::Host, 0),
            FileGatewayError::Forbidden => (FetchOutcome::Refused, 0),
        };
        Self {
            outcome,
            failed_requests,
        }
    }
}

/// Why an attempt stopped.
enum Stopped {
    Attempt(Attempt),
    /// Another worker has the file.
    ClaimLost,
    Store(StoreError),
}

impl From<FileGatewayError> for Stopped {
    fn from(error: FileGatewayError) -> Self {
        Self::Attempt(error.into())
    }
}

impl From<FetchOutcome> for Stopped {
    fn from(outcome: FetchOutcome) -> Self {
        Self::Attempt(outcome.into())
    }
}

impl From<MediaStoreError> for Stopped {
    fn from(_: MediaStoreError) -> Self {
        FetchOutcome::StoreFailed.into()
    }
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl FileFetcher {
    /// Claims and fetches one due file. Returns false if none is due.
    pub async fn fetch_next(&self) -> Result<bool, StoreError> {
        match self.files.claim(self.ids.next(), FETCH_LEASE).await? {
            FileClaim::Idle => Ok(false),
            FileClaim::Postponed => Ok(true),
            FileClaim::Claimed(file) => self.fetch(*file).await.map(|()| true),
        }
    }

    /// Bytes that no row names are deleted: those of a worker that did not finish, and those of a claim that was lost.
    async fn fetch(&self, file: ClaimedFile) -> Result<(), StoreError> {
        let file = &self.without_abandoned(file).await;
        let (decision, failed_requests) = if is_over(file.facts.written_at, self.clock.now()) {
            (FetchDecision::Expired, 0)
        } else {
            let attempt = match self.attempt(file).await {
                Ok(content) => FetchOutcome::Stored(content).into(),
                Err(Stopped::Attempt(attempt)) => attempt,
                Err(Stopped::ClaimLost) => return Ok(()),
                Err(Stopped::Store(error)) => return Err(error),
            };
            let decision = decide(file.facts, attempt.outcome, self.clock.now());
            (decision, attempt.failed_requests)
        };
        let events: Vec<Event> = ready_event(file, &decision).into_iter().collect();
        let is_recorded = self.files.record(file, &decision, failed_requests, &events).await?;
        if !is_recorded && matches!(decision, FetchDecision::Ready(_)) {
            self.storage.delete_file(&file.path()).await.ok();
        }
        Ok(())
    }

    /// Deletes the bytes of abandoned claims. Those that could not be deleted stay in the list.
    async fn without_abandoned(&self, mut file: ClaimedFile) -> ClaimedFile {
        let mut left = Vec::new();
        for claim in std::mem::take(&mut file.abandoned) {
            if self.storage.delete_file(&file.path_of(claim)).await.is_err() {
                left.push(claim);
            }
        }
        file.abandoned = left;
        file
    }

    async fn attempt(&self, file: &ClaimedFile) -> Result<StoredContent, Stopped> {
        if !file.abandoned.is_empty() {
            return Err(FetchOutcome::StoreFailed.into());
        }
        let profile = self.profiles.find(file.account_id, file.profile_id).await?;
        let credentials = profile.and_then(|profile| profile.credentials(file.account_id, self.cipher.as_ref()));
        let credentials = credentials.ok_or(FetchOutcome::Unavailable)?;
        let address = self.gateway.locate(&credentials, &file.wa_media_id).await?;
        if address.size.is_some_and(|size| size > self.max_bytes) {
            return Err(FetchOutcome::TooLarge.into());
        }
        let download = self.gateway.download(&credentials, &address.url).await?;
        if download.size.is_some_and(|size| size > self.max_bytes) {
            return Err(FetchOutcome::TooLarge.into());
        }
        let expected = address.sha256.map(Vec::from).or_else(|| file.expected_sha256.clone());
        let mut write = self.storage.begin_file(&file.path()).await?;
        match self.receive(file, download, write.as_mut()).await {
            Ok(content) if expected.is_none_or(|expected| expected == content.sha256) => {
                self.renew(file).await?;
                write.commit().await?;
                Ok(content)
            }
            Ok(_) => {
                write.discard().await;
                Err(FetchOutcome::Mismatch.into())
            }
            Err(stopped) => {
                write.discard().await;
                Err(stopped)
            }
        }
    }

    /// Streams the content into the file store, counting and hashing it.
    async fn receive(
        &self,
        file: &ClaimedFile,
        mut download: FileDownload,
        write: &mut dyn MediaWrite,
    ) -> Result<StoredContent, Stopped> {
        let (mut hash, mut size, mut head) = (Sha256::new(), 0_u64, Vec::new());
        let begun_at = self.clock.now();
        let mut renewed_at = begun_at;
        while let Some(chunk) = download.content.next().await {
            let chunk = chunk?;
            size = size.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if size > self.max_bytes {
                return Err(FetchOutcome::TooLarge.into());
            }
            hash.update(&chunk);
            let missing = SNIFFED_FILE_BYTES.saturating_sub(head.len()).min(chunk.len());
            head.extend_from_slice(chunk.get(..missing).unwrap_or_default());
            write.write(chunk).await?;
            let now = self.clock.now();
            if now >= begun_at.saturating_add(LONGEST_FETCH) {
                return Err(FileGatewayError::Interrupted("the file takes too long".to_owned()).into());
            }
            if now >= renewed_at.saturating_add(RENEW_AFTER) {
                self.renew(file).await?;
                renewed_at = now;
            }
        }
        // A body that ends early without an error of the connection.
        if download.size.is_some_and(|declared| declared != size) {
            return Err(FileGatewayError::Interrupted("the file is cut off".to_owned()).into());
        }
        let name = file.file.file_name.as_deref().unwrap_or_default();
        Ok(StoredContent {
            size,
            sha256: hash.finalize().into(),
            content_type: MessageFileType::detect(&head, name),
        })
    }

    async fn renew(&self, file: &ClaimedFile) -> Result<(), Stopped> {
        match self.files.renew(file, FETCH_LEASE).await? {
            true => Ok(()),
            false => Err(Stopped::ClaimLost),
        }
    }
}

/// `message.media_ready`, if the file becomes ready.
fn ready_event(file: &ClaimedFile, decision: &FetchDecision) -> Option<Event> {
    let FetchDecision::Ready(content) = decision else {
        return None;
    };
    let media = MessageFile {
        size: Some(content.size),
        sha256: Some(hex::encode(content.sha256)),
        state: FileState::Ready,
        mime_type: file
            .file
            .mime_type
            .clone()
            .or_else(|| content.content_type.map(|kind| kind.to_string())),
        ..file.file.clone()
    };
    let item = json!({ "message_id": file.message_id, "conversation_id": file.conversation_id,
        "contact_id": file.contact_id, "media": media });
    Some(Event::webhook(WebhookKind::MessageMediaReady, vec![item]))
}

#[cfg(test)]
mod tests;
