//! A table of sends, a file store and the rows of archives in memory. Every call may fail, before or after its effect,
//! as if the process was killed there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::campaigns::SendCounts;
use crate::media::{MediaStoreError, MediaStream, MessageFilePath};
use crate::messaging::SendStatus;
use crate::retention::{
    ArchiveCount, ArchiveFile, ArchiveRead, ArchiveStep, ArchiveStorage, ArchiveStore, ArchiveTask, ArchiveWrite,
    ArchivedSend, StoredArchive,
};
use crate::shared::{AccountId, CampaignId, ContactId, Event, SendId, StoreError};

pub(crate) const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
pub(crate) const CAMPAIGN: CampaignId = CampaignId(Uuid::from_u128(2));

/// Where the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Never,
    /// At this call, before its effect.
    Before(usize),
    /// At this call, after its effect.
    After(usize),
}

#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) sends: BTreeMap<Uuid, ArchivedSend>,
    pub(crate) files: BTreeMap<Uuid, Vec<u8>>,
    /// The key of the attempt, and the keys of earlier ones.
    attempt: Option<(Uuid, Vec<Uuid>)>,
    pub(crate) verified: Option<ArchiveFile>,
    pub(crate) removed: bool,
    pub(crate) refused: Vec<Event>,
    pub(crate) counts: SendCounts,
    calls: usize,
}

#[derive(Clone)]
pub(crate) struct InMemory {
    pub(crate) tables: Arc<Mutex<Tables>>,
    pub(crate) death: Death,
    pub(crate) damage: Damage,
}

/// What the file store does to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    None,
    CutShort,
    Missing,
}

pub(crate) fn dead() -> StoreError {
    StoreError::Unavailable("killed".into())
}

fn dead_file() -> MediaStoreError {
    MediaStoreError::Failed("killed".into())
}

pub(crate) fn send(number: u128, status: SendStatus) -> ArchivedSend {
    ArchivedSend {
        id: SendId(Uuid::from_u128(number)),
        contact_id: Some(ContactId(Uuid::from_u128(number))),
        status,
        address_kind: None,
        sent_at: None,
        delivered_at: None,
        read_at: None,
        failed_at: None,
        error_code: None,
        wa_message_id: Some(format!("wamid.{number}")),
        price: crate::retention::archive::ArchivedPrice::default(),
        quota_month: Some(time::macros::date!(2026 - 11 - 01)),
    }
}

impl InMemory {
    /// A campaign with so many sends, half of them read and half failed.
    pub(crate) fn new(sends: u128) -> Self {
        let mut tables = Tables::default();
        for number in 1..=sends {
            let status = if number % 2 == 0 {
                SendStatus::Read
            } else {
                SendStatus::Failed
            };
            tables.sends.insert(Uuid::from_u128(number), send(number, status));
            tables.counts.total += 1;
            tables.counts.read += i64::from(number % 2 == 0);
            tables.counts.failed += i64::from(number % 2 == 1);
        }
        Self {
            tables: Arc::new(Mutex::new(tables)),
            death: Death::Never,
            damage: Damage::None,
        }
    }

    pub(crate) fn dying(&self, death: Death) -> Self {
        self.tables.lock().unwrap().calls = 0;
        Self { death, ..self.clone() }
    }

    pub(crate) fn calls(&self) -> usize {
        self.tables.lock().unwrap().calls
    }

    /// Runs a call. None: the process died in it.
    pub(crate) fn call<T>(&self, effect: impl FnOnce(&mut Tables) -> T) -> Option<T> {
        let mut tables = self.tables.lock().unwrap();
        tables.calls += 1;
        let call = tables.calls;
        // A dead process makes no further call.
        let (before, after) = match self.death {
            Death::Never => (false, false),
            Death::Before(at) => (call >= at, false),
            Death::After(at) => (call > at, call == at),
        };
        if before {
            return None;
        }
        let value = effect(&mut tables);
        (!after).then_some(value)
    }

    /// Every send of `all` is in the table or in the verified file.
    pub(crate) fn check(&self, all: &BTreeMap<Uuid, ArchivedSend>) {
        let tables = self.tables.lock().unwrap();
        let text = tables.verified.as_ref().map(|file| {
            let bytes = &tables.files[&file.key];
            assert_eq!(sha256(bytes), file.stored.sha256);
            String::from_utf8(bytes.clone()).unwrap()
        });
        for id in all.keys() {
            let is_in_file = || {
                text.as_ref()
                    .is_some_and(|text| text.contains(&format!("\"id\":\"{id}\"")))
            };
            assert!(tables.sends.contains_key(id) || is_in_file(), "{id} is in neither");
        }
        assert!(!tables.removed || tables.sends.is_empty());
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[async_trait]
impl ArchiveStore for InMemory {
    async fn next(&self, _: AccountId, horizon: Option<OffsetDateTime>, key: Uuid) -> Result<ArchiveStep, StoreError> {
        let step = self.call(|tables| {
            if tables.removed {
                return ArchiveStep::None;
            }
            if tables.verified.is_some() {
                return ArchiveStep::Remove(CAMPAIGN);
            }
            if horizon.is_none() || !tables.refused.is_empty() {
                return ArchiveStep::None;
            }
            let mut abandoned = vec![];
            if let Some((earlier, more)) = tables.attempt.take() {
                abandoned.extend(more);
                abandoned.push(earlier);
            }
            tables.attempt = Some((key, abandoned.clone()));
            ArchiveStep::Write(ArchiveTask {
                campaign_id: CAMPAIGN,
                campaign_name: "Volta".into(),
                key,
                abandoned,
                counts: tables.counts,
            })
        });
        step.ok_or_else(dead)
    }

    async fn sends(
        &self,
        _: AccountId,
        _: CampaignId,
        after: SendId,
        limit: i64,
    ) -> Result<Vec<ArchivedSend>, StoreError> {
        let limit = usize::try_from(limit).unwrap();
        let page = self.call(|tables| {
            let rows = tables.sends.iter().filter(|(id, _)| **id > after.0);
            rows.map(|(_, send)| send.clone()).take(limit).collect()
        });
        page.ok_or_else(dead)
    }

    async fn complete(&self, _: AccountId, _: CampaignId, file: &ArchiveFile) -> Result<bool, StoreError> {
        let is_stored = self.call(|tables| {
            let is_current = tables.attempt.as_ref().is_some_and(|(key, _)| *key == file.key);
            if is_current {
                tables.verified = Some(file.clone());
            }
            is_current
        });
        is_stored.ok_or_else(dead)
    }

    async fn refuse(&self, _: AccountId, _: &ArchiveTask, _: Duration, event: &Event) -> Result<(), StoreError> {
        self.call(|tables| tables.refused.push(event.clone())).ok_or_else(dead)
    }

    async fn remove_sends(
        &self,
        _: AccountId,
        _: CampaignId,
        after: SendId,
        limit: i64,
    ) -> Result<Option<SendId>, StoreError> {
        let limit = usize::try_from(limit).unwrap();
        let last = self.call(|tables| {
            assert!(tables.verified.is_some(), "rows leave before their file is verified");
            let ids: Vec<Uuid> = tables
                .sends
                .keys()
                .filter(|id| **id > after.0)
                .take(limit)
                .copied()
                .collect();
            for id in &ids {
                tables.sends.remove(id);
            }
            tables.removed |= ids.is_empty();
            ids.last().map(|id| SendId(*id))
        });
        last.ok_or_else(dead)
    }

    async fn find(&self, _: AccountId, _: CampaignId) -> Result<Option<(MessageFilePath, StoredArchive)>, StoreError> {
        unreachable!("the worker does not read archives of campaigns")
    }
}

/// The file store does not compress: the domain does not know the form of the bytes.
#[async_trait]
impl ArchiveStorage for InMemory {
    async fn begin(&self, path: &MessageFilePath) -> Result<Box<dyn ArchiveWrite>, MediaStoreError> {
        let file: Box<dyn ArchiveWrite> = Box::new(Writing {
            store: self.clone(),
            key: path.key,
            bytes: vec![],
        });
        self.call(|_| file).ok_or_else(dead_file)
    }

    async fn open(&self, path: &MessageFilePath, _: u64) -> Result<Option<Box<dyn ArchiveRead>>, MediaStoreError> {
        let found = self
            .call(|tables| tables.files.get(&path.key).cloned())
            .ok_or_else(dead_file)?;
        let found = found.filter(|_| self.damage != Damage::Missing);
        Ok(found.map(|mut bytes| {
            if self.damage == Damage::CutShort {
                bytes.truncate(bytes.len() / 2);
            }
            let reading: Box<dyn ArchiveRead> = Box::new(Reading {
                store: self.clone(),
                chunks: bytes.chunks(100).map(<[u8]>::to_vec).collect(),
                bytes,
            });
            reading
        }))
    }

    async fn read(&self, _: &MessageFilePath, _: Range<u64>) -> Result<Option<MediaStream>, MediaStoreError> {
        Ok(Some(futures_util::stream::empty().boxed()))
    }

    async fn delete(&self, path: &MessageFilePath) -> Result<(), MediaStoreError> {
        let deleted = self.call(|tables| {
            let verified = tables.verified.as_ref().map(|file| file.key);
            assert_ne!(verified, Some(path.key), "the verified file is deleted");
            tables.files.remove(&path.key);
        });
        deleted.ok_or_else(dead_file)
    }
}

struct Writing {
    store: InMemory,
    key: Uuid,
    bytes: Vec<u8>,
}

#[async_trait]
impl ArchiveWrite for Writing {
    async fn write(&mut self, lines: Bytes) -> Result<(), MediaStoreError> {
        self.store.call(|_| ()).ok_or_else(dead_file)?;
        self.bytes.extend_from_slice(&lines);
        Ok(())
    }

    async fn commit(self: Box<Self>) -> Result<StoredArchive, MediaStoreError> {
        let Self { store, key, bytes } = *self;
        let stored = StoredArchive {
            size: u64::try_from(bytes.len()).unwrap(),
            sha256: sha256(&bytes),
        };
        let committed = store.call(|tables| drop(tables.files.insert(key, bytes)));
        committed.map(|()| stored).ok_or_else(dead_file)
    }
}

struct Reading {
    store: InMemory,
    chunks: std::collections::VecDeque<Vec<u8>>,
    bytes: Vec<u8>,
}

#[async_trait]
impl ArchiveRead for Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, MediaStoreError> {
        self.store.call(|_| ()).ok_or_else(dead_file)?;
        Ok(self.chunks.pop_front().map(Bytes::from))
    }

    fn stored(&self) -> StoredArchive {
        StoredArchive {
            size: u64::try_from(self.bytes.len()).unwrap(),
            sha256: sha256(&self.bytes),
        }
    }
}

#[test]
fn count_reads_lines_in_any_chunks() {
    let mut lines = vec![];
    for (number, status) in SendStatus::ALL.iter().enumerate() {
        send(u128::try_from(number).unwrap() + 1, *status)
            .write_line(&mut lines)
            .unwrap();
    }
    for size in [1, 7, 1000] {
        let mut count = ArchiveCount::default();
        for chunk in lines.chunks(size) {
            count.add(chunk);
        }
        let counts = count.finish().unwrap();
        assert_eq!(counts.total, 5);
        assert!(SendStatus::ALL.iter().all(|status| counts.of(*status) == 1));
    }
    // Cut short, twice the same send, no JSON.
    for damaged in [
        &lines[..lines.len() - 1],
        &[lines.as_slice(), lines.as_slice()].concat(),
        b"{}\n",
    ] {
        let mut count = ArchiveCount::default();
        count.add(damaged);
        assert_eq!(count.finish(), None);
    }
}
