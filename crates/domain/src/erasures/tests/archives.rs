//! Archives without an erased contact: killed at any call, and files that cannot be read.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use time::Duration;
use uuid::Uuid;

use super::{ErasureStep, claim, ids};
use crate::erasures::{
    ArchiveClaim, ArchiveEraser, ArchiveReplacement, BatchEnd, ErasedArchive, ErasureArchives, ErasureClaim,
};
use crate::media::MessageFilePath;
use crate::retention::tests::in_memory::{ACCOUNT, CAMPAIGN, Damage, Death, InMemory, Tables, dead};
use crate::retention::{ArchiveFile, ArchiveStorage as _, StoredArchive, without_contact};
use crate::shared::{CampaignId, ContactId, StoreError};

/// The contact of the claim, to whom the third send was.
const CONTACT: ContactId = ContactId(Uuid::from_u128(3));

/// The row of the archive, beside its file in the table of archives.
#[derive(Default)]
struct Row {
    abandoned: Vec<Uuid>,
    is_recorded: bool,
    removed: i64,
}

#[derive(Clone)]
struct Archives {
    store: InMemory,
    row: Arc<Mutex<Row>>,
}

impl Archives {
    /// A verified archive with so many sends, one to each contact.
    async fn new(sends: u128) -> Self {
        let store = InMemory::new(sends);
        let key = Uuid::from_u128(900);
        let mut text = vec![];
        for send in store.tables.lock().unwrap().sends.values() {
            text.extend(serde_json::to_vec(send).unwrap());
            text.push(b'\n');
        }
        let path = MessageFilePath {
            account_id: ACCOUNT,
            key,
        };
        let mut file = store.begin(&path).await.unwrap();
        file.write(text.into()).await.unwrap();
        let stored = file.commit().await.unwrap();
        store.tables.lock().unwrap().verified = Some(ArchiveFile {
            key,
            stored,
            sends: i64::try_from(sends).unwrap(),
            months: vec![],
        });
        let row = Arc::default();
        Self { store, row }
    }

    fn dying(&self, death: Death) -> Self {
        Self {
            store: self.store.dying(death),
            ..self.clone()
        }
    }

    /// Takes steps until all archives are recorded, under new keys.
    async fn run(&self, first_key: u128) -> Result<(), StoreError> {
        for key in first_key.. {
            let mut keys = crate::shared::MockIds::new();
            keys.expect_next().returning(move || Uuid::from_u128(key));
            let eraser = ArchiveEraser {
                archives: Arc::new(self.clone()),
                storage: Arc::new(self.store.clone()),
                ids: Arc::new(keys),
            };
            match eraser.step(&claim(ErasureStep::ArchivedSends)).await? {
                BatchEnd::More => {}
                end => {
                    assert_eq!(end, BatchEnd::Done);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The lines of the file that the row names.
    fn lines(&self) -> Vec<String> {
        let tables = self.store.tables.lock().unwrap();
        let bytes = &tables.files[&tables.verified.as_ref().unwrap().key];
        let text = String::from_utf8(bytes.clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

#[async_trait]
impl ErasureArchives for Archives {
    async fn next_archive(&self, _: &ErasureClaim, key: Uuid, _: Duration) -> Result<ArchiveClaim, StoreError> {
        let row = self.row.clone();
        let next = self.store.call(move |tables| {
            let mut row = row.lock().unwrap();
            if row.is_recorded {
                return ArchiveClaim::End(BatchEnd::Done);
            }
            let file = tables.verified.as_ref().unwrap();
            let abandoned = row.abandoned.clone();
            row.abandoned.push(key);
            ArchiveClaim::Archive(ErasedArchive {
                campaign_id: CAMPAIGN,
                path: MessageFilePath {
                    account_id: ACCOUNT,
                    key: file.key,
                },
                stored: file.stored,
                sends: file.sends,
                abandoned,
            })
        });
        next.ok_or_else(dead)
    }

    async fn renew(&self, _: &ErasureClaim, _: Duration) -> Result<bool, StoreError> {
        self.store.call(|_| true).ok_or_else(dead)
    }

    async fn has_file(&self, _: CampaignId, path: &MessageFilePath) -> Result<bool, StoreError> {
        let is_current = |tables: &mut Tables| tables.verified.as_ref().map(|file| file.key) == Some(path.key);
        self.store.call(is_current).ok_or_else(dead)
    }

    async fn replace_archive(
        &self,
        _: &ErasureClaim,
        archive: &ErasedArchive,
        ArchiveReplacement { key, stored, lines }: ArchiveReplacement,
        _: Duration,
    ) -> Result<bool, StoreError> {
        let (row, old) = (self.row.clone(), archive.path.key);
        let replaced = self.store.call(move |tables| {
            let mut row = row.lock().unwrap();
            let file = tables.verified.as_mut().unwrap();
            assert_eq!((file.key, row.abandoned.last()), (old, Some(&key)));
            (file.key, file.stored, row.removed) = (key, stored, row.removed + lines);
            row.abandoned = vec![old];
            true
        });
        replaced.ok_or_else(dead)
    }

    async fn record_archive(
        &self,
        _: &ErasureClaim,
        _: CampaignId,
        file_key: Uuid,
        _: Duration,
    ) -> Result<bool, StoreError> {
        let row = self.row.clone();
        let recorded = self.store.call(move |tables| {
            let mut row = row.lock().unwrap();
            assert_eq!(tables.verified.as_ref().unwrap().key, file_key);
            (row.is_recorded, row.abandoned) = (true, vec![]);
            true
        });
        recorded.ok_or_else(dead)
    }
}

fn check(archives: &Archives, before: &[String], call: usize) {
    let after = archives.lines();
    assert_eq!(after.len(), before.len(), "{call}");
    for (number, (before, after)) in (1..).zip(before.iter().zip(&after)) {
        match number {
            3 => {
                let emptied = before
                    .replace(&format!("\"contact_id\":\"{}\"", CONTACT.0), "\"contact_id\":null")
                    .replace("\"wa_message_id\":\"wamid.3\"", "\"wa_message_id\":null");
                assert_ne!(*before, emptied);
                assert_eq!(*after, emptied, "{call}");
            }
            _ => assert_eq!(after, before, "{call}"),
        }
    }
}

/// A worker dies at each of its calls, before or after the call's effect. Then the row names a whole file; in the end
/// it is the only one, and has all lines, that of the contact without its ids.
#[tokio::test]
async fn archive_is_rewritten_after_a_death_at_every_call() {
    let whole = Archives::new(10).await;
    let before = whole.lines();
    let counted = whole.dying(Death::Never);
    counted.run(1000).await.unwrap();
    check(&whole, &before, 0);
    let calls = counted.store.calls();
    assert!(calls > 10, "{calls}");
    for call in 1..=calls {
        for death in [Death::Before(call), Death::After(call)] {
            let archives = Archives::new(10).await;
            archives.dying(death).run(1000).await.unwrap_err();
            assert_eq!(archives.lines().len(), 10, "{death:?}");
            archives.dying(Death::Never).run(2000).await.unwrap();
            check(&archives, &before, call);
            let (tables, row) = (archives.store.tables.lock().unwrap(), archives.row.lock().unwrap());
            assert_eq!((tables.files.len(), row.removed), (1, 1), "{death:?}");
        }
    }
}

#[tokio::test]
async fn archive_without_the_contact_stays_as_it_is() {
    let archives = Archives::new(2).await;
    let (before, key) = (archives.lines(), archives.store.tables.lock().unwrap().verified.clone());
    archives.run(1000).await.unwrap();
    assert_eq!(archives.lines(), before);
    assert_eq!(archives.store.tables.lock().unwrap().verified, key);
}

/// The erasure of a contact that may be in the file is not done: the file is damaged or missing, or is not the one that
/// was verified.
#[tokio::test]
async fn damaged_archive_is_not_replaced() {
    for (damage, sends, hash) in [
        (Damage::CutShort, 10, None),
        (Damage::Missing, 10, None),
        (Damage::None, 11, None),
        (Damage::None, 10, Some([0; 32])),
    ] {
        let mut archives = Archives::new(10).await;
        let before = archives.lines();
        archives.store.damage = damage;
        if let Some(file) = &mut archives.store.tables.lock().unwrap().verified {
            file.sends = sends;
            file.stored.sha256 = hash.unwrap_or(file.stored.sha256);
        }
        let ended = archives.run(1000).await;
        assert!(matches!(ended, Err(StoreError::Corrupt(_))), "{damage:?} {sends}");
        assert_eq!(archives.lines(), before);
    }
}

/// The file that was read before is not there any more: the archive has another one, and is the next one again.
#[tokio::test]
async fn archive_with_another_file_is_read_again() {
    let mut archives = crate::erasures::MockErasureArchives::new();
    archives.expect_next_archive().returning(|_, _, _| {
        Ok(ArchiveClaim::Archive(ErasedArchive {
            campaign_id: CAMPAIGN,
            path: MessageFilePath {
                account_id: ACCOUNT,
                key: Uuid::from_u128(900),
            },
            stored: StoredArchive {
                size: 1,
                sha256: [0; 32],
            },
            sends: 1,
            abandoned: vec![],
        }))
    });
    archives.expect_has_file().once().returning(|_, _| Ok(false));
    let mut storage = crate::retention::MockArchiveStorage::new();
    storage.expect_open().returning(|_, _| Ok(None));
    let eraser = ArchiveEraser {
        archives: Arc::new(archives),
        storage: Arc::new(storage),
        ids: ids(),
    };
    let end = eraser.step(&claim(ErasureStep::ArchivedSends)).await.unwrap();
    assert_eq!(end, BatchEnd::More);
}

#[tokio::test]
async fn worker_waits_for_another_erasure_of_the_account() {
    let mut archives = crate::erasures::MockErasureArchives::new();
    archives
        .expect_next_archive()
        .returning(|_, _, _| Ok(ArchiveClaim::End(BatchEnd::Wait)));
    let eraser = ArchiveEraser {
        archives: Arc::new(archives),
        storage: Arc::new(crate::retention::MockArchiveStorage::new()),
        ids: ids(),
    };
    let end = eraser.step(&claim(ErasureStep::ArchivedSends)).await.unwrap();
    assert_eq!(end, BatchEnd::Wait);
}

/// Only the fields of the contact's own line change, whatever the other texts are.
#[test]
fn line_of_the_contact_loses_both_ids() {
    let other = ContactId(Uuid::from_u128(4));
    let line = |contact: ContactId, message: &str| {
        let message = serde_json::to_string(message).unwrap();
        format!(
            "{{\"id\":\"{}\",\"contact_id\":\"{}\",\"status\":\"read\",\"wa_message_id\":{message},\"category\":null}}",
            other.0, contact.0
        )
    };
    let emptied = without_contact(line(CONTACT, "wamid.\"3\"").as_bytes(), CONTACT).unwrap();
    let expected = format!(
        "{{\"id\":\"{}\",\"contact_id\":null,\"status\":\"read\",\"wa_message_id\":null,\"category\":null}}",
        other.0
    );
    assert_eq!(String::from_utf8(emptied.clone()).unwrap(), expected);
    assert_eq!(without_contact(&emptied, CONTACT), None);
    assert_eq!(without_contact(line(CONTACT, "m").as_bytes(), other), None);
    assert_eq!(
        without_contact(line(other, &CONTACT.0.to_string()).as_bytes(), CONTACT),
        None
    );
}
