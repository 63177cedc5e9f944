//! The ports of the fetchers: rows, bytes, and WhatsApp. A call suspends its task before and after it acts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::ledger::FileLedger;
use crate::media::in_memory::{FileTables, InMemoryFile};
use crate::media::{
    ClaimedFile, FetchDecision, FileClaim, FoundFile, MediaStoreError, MediaStream, MediaWrite, MessageFilePath,
    MessageFileStorage, MessageFileStore, NewUpload,
};
use crate::messaging::WhatsappCredentials;
use crate::shared::{AccountId, Clock, Event, MediaId, StoreError};
use crate::simulation::executor::Scheduler;
use crate::whatsapp::{FileAddress, FileDownload, FileGateway, FileGatewayError};

/// The longest suspension of a call, in milliseconds. A chunk may take longer.
const LATENCY: usize = 50;

/// The longest wait for a chunk, in milliseconds.
const CHUNK_LATENCY: usize = 8000;

/// The bytes of a chunk.
const CHUNK: usize = 10;

/// How often calls fail, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    pub(super) store: usize,
    pub(super) storage: usize,
    pub(super) whatsapp: usize,
}

/// A file as WhatsApp offers it.
#[derive(Clone)]
pub(super) struct OfferedFile {
    pub(super) content: Vec<u8>,
    /// WhatsApp reports the hash of another content.
    pub(super) is_hash_wrong: bool,
    /// The address has a hash.
    pub(super) has_hash: bool,
    /// The file is on a host that must not receive the token.
    pub(super) is_foreign: bool,
}

/// The bytes of one path.
#[derive(Clone)]
pub(super) struct StoredBytes {
    pub(super) bytes: Vec<u8>,
    /// The fetcher that wrote them had been stalled, so that another may have taken its file meanwhile.
    pub(super) is_late: bool,
}

/// The offered files with the number of each, by WhatsApp's id.
type Offers = BTreeMap<String, (String, OfferedFile)>;

/// Everything outside the fetchers.
pub(super) struct FileWorld {
    pub(super) scheduler: Scheduler,
    pub(super) failures: Mutex<Failures>,
    tables: Mutex<FileTables>,
    stored: Arc<Mutex<BTreeMap<Uuid, StoredBytes>>>,
    offers: Mutex<Offers>,
    ledger: Mutex<FileLedger>,
}

impl FileWorld {
    pub(super) fn new(scheduler: Scheduler, tables: FileTables) -> Self {
        Self {
            scheduler,
            failures: Mutex::default(),
            tables: Mutex::new(tables),
            stored: Arc::default(),
            offers: Mutex::default(),
            ledger: Mutex::default(),
        }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, FileTables> {
        self.tables.lock().unwrap()
    }

    pub(super) fn stored(&self) -> MutexGuard<'_, BTreeMap<Uuid, StoredBytes>> {
        self.stored.lock().unwrap()
    }

    pub(super) fn offers(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap()
    }

    pub(super) fn offer(&self, row: &InMemoryFile) -> OfferedFile {
        self.offers()[&row.file.wa_media_id].1.clone()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, FileLedger> {
        self.ledger.lock().unwrap()
    }

    pub(super) fn next_due(&self) -> Option<OffsetDateTime> {
        let tables = self.tables();
        let pending = tables.files.values().filter(|row| row.is_pending());
        pending.filter_map(|row| row.due_at).min()
    }

    fn failures(&self) -> Failures {
        *self.failures.lock().unwrap()
    }

    /// A call of the database. Half of its failures come before it acts, the others after it.
    async fn call<T>(
        &self,
        label: &'static str,
        action: impl FnOnce(&mut FileTables) -> T + Send,
    ) -> Result<T, StoreError> {
        self.scheduler.latency(label, LATENCY).await;
        let fails = self.scheduler.percent(self.failures().store);
        let unavailable = || StoreError::Unavailable("injected".into());
        if fails && self.scheduler.percent(50) {
            return Err(unavailable());
        }
        let output = {
            let mut tables = self.tables();
            tables.now = self.scheduler.now();
            let output = action(&mut tables);
            self.ledger().committed(self, &mut tables);
            output
        };
        if fails {
            return Err(unavailable());
        }
        Ok(output)
    }

    /// A call of the file store. Nothing happens if it fails.
    async fn store_call(&self, label: &'static str) -> Result<(), MediaStoreError> {
        store_call(&self.scheduler, self.failures().storage, label).await
    }

    /// A request to WhatsApp.
    async fn request(&self, label: &'static str, media_id: &str) -> Result<OfferedFile, FileGatewayError> {
        self.scheduler.latency(label, LATENCY).await;
        let (number, offered) = self.offers()[media_id].clone();
        if !self.scheduler.percent(self.failures().whatsapp) {
            return Ok(offered);
        }
        if self.scheduler.percent(40) {
            return Err(FileGatewayError::Interrupted("injected".into()));
        }
        self.ledger().request_failed(&self.scheduler, &number);
        self.scheduler.latency(label, LATENCY).await;
        Err(FileGatewayError::Rejected("injected".into()))
    }
}

async fn store_call(scheduler: &Scheduler, failures: usize, label: &'static str) -> Result<(), MediaStoreError> {
    scheduler.latency(label, LATENCY).await;
    match scheduler.percent(failures) {
        true => Err(MediaStoreError::Failed("injected".into())),
        false => Ok(()),
    }
}

#[async_trait]
impl MessageFileStore for FileWorld {
    async fn find(&self, _: AccountId, _: MediaId) -> Result<Option<FoundFile>, StoreError> {
        Ok(None)
    }

    async fn insert_upload(&self, _: AccountId, _: &NewUpload) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim(&self, claim: Uuid, lease: Duration) -> Result<FileClaim, StoreError> {
        self.call("claim", |tables| tables.claim(claim, lease)).await
    }

    async fn renew(&self, file: &ClaimedFile, lease: Duration) -> Result<bool, StoreError> {
        self.call("renew", |tables| tables.renew(file, lease)).await
    }

    async fn record(
        &self,
        file: &ClaimedFile,
        decision: &FetchDecision,
        failed_requests: u16,
        events: &[Event],
    ) -> Result<bool, StoreError> {
        self.call("record", |tables| {
            tables.record(file, decision, failed_requests, events)
        })
        .await
    }

    async fn report_lost(&self, interval: Duration, event: fn(u64) -> Event) -> Result<bool, StoreError> {
        self.call("report lost", |tables| tables.report_lost(interval, event))
            .await
    }

    async fn expired(&self, _: i64) -> Result<Vec<(MediaId, MessageFilePath)>, StoreError> {
        Ok(vec![])
    }

    async fn set_expired(&self, _: AccountId, _: MediaId) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A file that is being written.
struct Write {
    scheduler: Scheduler,
    failures: usize,
    stored: Arc<Mutex<BTreeMap<Uuid, StoredBytes>>>,
    key: Uuid,
    bytes: Vec<u8>,
}

#[async_trait]
impl MediaWrite for Write {
    async fn write(&mut self, chunk: Bytes) -> Result<(), MediaStoreError> {
        store_call(&self.scheduler, self.failures, "write").await?;
        self.bytes.extend_from_slice(&chunk);
        Ok(())
    }

    async fn commit(self: Box<Self>) -> Result<(), MediaStoreError> {
        store_call(&self.scheduler, self.failures, "commit").await?;
        let is_late = self.scheduler.is_late(Duration::MINUTE);
        let Self { bytes, key, .. } = *self;
        self.stored.lock().unwrap().insert(key, StoredBytes { bytes, is_late });
        self.scheduler.latency("committed", LATENCY).await;
        Ok(())
    }

    async fn discard(self: Box<Self>) {
        self.scheduler.latency("discard", LATENCY).await;
    }
}

#[async_trait]
impl MessageFileStorage for FileWorld {
    async fn begin_file(&self, path: &MessageFilePath) -> Result<Box<dyn MediaWrite>, MediaStoreError> {
        self.store_call("begin").await?;
        Ok(Box::new(Write {
            scheduler: self.scheduler.clone(),
            failures: self.failures().storage,
            stored: self.stored.clone(),
            key: path.key,
            bytes: vec![],
        }))
    }

    async fn read_file(&self, _: &MessageFilePath, _: Range<u64>) -> Result<Option<MediaStream>, MediaStoreError> {
        Ok(None)
    }

    async fn delete_file(&self, path: &MessageFilePath) -> Result<(), MediaStoreError> {
        self.store_call("delete").await?;
        self.stored().remove(&path.key);
        Ok(())
    }
}

#[async_trait]
impl FileGateway for FileWorld {
    async fn locate(&self, _: &WhatsappCredentials, media_id: &str) -> Result<FileAddress, FileGatewayError> {
        let offered = self.request("locate", media_id).await?;
        let mut sha256: [u8; 32] = Sha256::digest(&offered.content).into();
        if offered.is_hash_wrong {
            sha256[0] ^= 1;
        }
        Ok(FileAddress {
            url: media_id.to_owned(),
            sha256: (offered.has_hash || offered.is_hash_wrong).then_some(sha256),
            size: self
                .scheduler
                .percent(50)
                .then(|| u64::try_from(offered.content.len()).unwrap()),
        })
    }

    async fn download(&self, _: &WhatsappCredentials, url: &str) -> Result<FileDownload, FileGatewayError> {
        let offered = self.request("download", url).await?;
        if offered.is_foreign {
            return Err(FileGatewayError::Host);
        }
        self.ledger().content_sent(url);
        let mut content = offered.content;
        let size = Some(u64::try_from(content.len()).unwrap());
        let breaks = self.scheduler.percent(self.failures().whatsapp / 2);
        if breaks {
            content.truncate(self.scheduler.below(content.len()));
        }
        let is_reported = self.scheduler.percent(50);
        let chunks: Vec<Bytes> = content.chunks(CHUNK).map(Bytes::copy_from_slice).collect();
        // Half of the broken connections look like the end of the content.
        let end = (breaks && is_reported).then(|| Err(FileGatewayError::Interrupted("injected".into())));
        let chunks = chunks.into_iter().map(Ok).chain(end);
        let scheduler = self.scheduler.clone();
        let content = stream::iter(chunks).then(move |chunk| {
            let scheduler = scheduler.clone();
            async move {
                scheduler.latency("chunk", CHUNK_LATENCY).await;
                chunk
            }
        });
        Ok(FileDownload {
            size,
            content: content.boxed(),
        })
    }
}
