//! The use cases and the worker of exports.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use time::macros::datetime;
use uuid::Uuid;

use super::{ContactExportError, ContactExports, EXPORT_KEPT_FOR, ExportState};
use super::{
    ContactExporter, ExportClaim, ExportPage, ExportPart, ExportedArchive, ExportedRow, MockContactExportQueue,
    MockContactExportStore,
};
use crate::media::MessageFilePath;
use crate::retention::{
    ArchiveRead, ArchiveWrite, MockArchiveRead, MockArchiveStorage, MockArchiveWrite, StoredArchive,
};
use crate::shared::{AccountId, AuditAction, Event, MockClock, MockIds, Role, RowOutcome, Tenant, UserId};

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
const FILE: StoredArchive = StoredArchive {
    size: 7,
    sha256: [1; 32],
};

fn ids() -> Arc<MockIds> {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(7));
    Arc::new(ids)
}

fn claim() -> ExportClaim {
    ExportClaim {
        account_id: ACCOUNT,
        id: Uuid::from_u128(2).into(),
        contacts: vec![Uuid::from_u128(3).into(), Uuid::from_u128(4).into()],
        key: Uuid::from_u128(7),
        abandoned: vec![Uuid::from_u128(6)],
    }
}

/// A queue with one export of a person with two contacts. The messages of the first one are two pages.
fn queue() -> MockContactExportQueue {
    let mut queue = MockContactExportQueue::new();
    queue.expect_claim().returning(|_, _| Ok(Some(claim())));
    queue.expect_renew().returning(|_, _| Ok(true));
    queue.expect_page().returning(|_, contact, part, after, _| {
        let row = |n: u128| ExportPage {
            rows: vec![json!({ "n": u64::try_from(n).unwrap() })],
            last: Some(ExportedRow {
                at: datetime!(2026-11-29 10:30 UTC),
                id: Uuid::from_u128(n),
            }),
        };
        let is_first = contact == claim().contacts[0];
        Ok(match (part, after) {
            (ExportPart::Contact, None) => row(contact.0.as_u128()),
            (ExportPart::Message, None) if is_first => row(1),
            (ExportPart::Message, Some(after)) if is_first && after.id == Uuid::from_u128(1) => row(2),
            _ => ExportPage::default(),
        })
    });
    // An erasure replaces the file after it was listed.
    let mut keys = std::iter::once(8).chain(std::iter::repeat(9));
    queue.expect_archives().returning(move |_, after, _| {
        let archive = ExportedArchive {
            campaign_id: Uuid::from_u128(5).into(),
            campaign_name: "Volta".into(),
            path: MessageFilePath {
                account_id: ACCOUNT,
                key: Uuid::from_u128(keys.next().unwrap()),
            },
            size: 9,
        };
        Ok(if after.0.is_nil() { vec![archive] } else { vec![] })
    });
    queue
}

/// The archive of a campaign with sends to both contacts and to another one, in small chunks.
fn archive() -> Box<dyn ArchiveRead> {
    let line = |n: u128| json!({ "id": Uuid::from_u128(n), "contact_id": Uuid::from_u128(n), "status": "read" });
    let lines: String = [2, 3, 4].map(|n| format!("{}\n", line(n))).concat();
    let mut chunks: Vec<_> = lines.as_bytes().chunks(50).map(<[u8]>::to_vec).collect();
    chunks.reverse();
    let mut archive = MockArchiveRead::new();
    archive
        .expect_next()
        .returning(move || Ok(chunks.pop().map(Into::into)));
    Box::new(archive)
}

/// A store that logs what is written and deleted.
fn storage(log: &Arc<Mutex<Vec<String>>>) -> MockArchiveStorage {
    let mut storage = MockArchiveStorage::new();
    let deleted = log.clone();
    storage.expect_delete().returning(move |path| {
        deleted.lock().unwrap().push(format!("delete {}", path.key.as_u128()));
        Ok(())
    });
    storage.expect_open().returning(|path, size| {
        assert_eq!((path.key, size), (Uuid::from_u128(8), 9));
        Ok(Some(archive()))
    });
    let written = log.clone();
    storage.expect_begin().returning(move |_| {
        let mut file = MockArchiveWrite::new();
        let written = written.clone();
        file.expect_write().returning(move |lines| {
            written.lock().unwrap().push(String::from_utf8(lines.to_vec()).unwrap());
            Ok(())
        });
        file.expect_commit().returning(|| Ok(FILE));
        let file: Box<dyn ArchiveWrite> = Box::new(file);
        Ok(file)
    });
    storage
}

fn exporter(queue: MockContactExportQueue, log: &Arc<Mutex<Vec<String>>>) -> ContactExporter {
    ContactExporter {
        queue: Arc::new(queue),
        storage: Arc::new(storage(log)),
        ids: ids(),
    }
}

#[tokio::test]
async fn export_has_all_parts_of_the_person_and_replaces_attempts() {
    let (mut queue, log) = (queue(), Arc::new(Mutex::new(vec![])));
    queue
        .expect_complete()
        .withf(|_, file| *file == FILE)
        .once()
        .returning(|_, _| Ok(true));
    assert!(exporter(queue, &log).export_next().await.unwrap());
    let row = |kind: &str, contact: u128, data: Value| {
        let contact = Uuid::from_u128(contact);
        json!({ "type": kind, "contact_id": contact, "data": data }).to_string() + "\n"
    };
    let archived = |n: u128| json!({ "id": Uuid::from_u128(n), "status": "read", "campaign_id": Uuid::from_u128(5), "campaign_name": "Volta" });
    let expected = [
        "delete 6".to_owned(),
        row("contact", 3, json!({ "n": 3 })),
        row("contact", 4, json!({ "n": 4 })),
        row("message", 3, json!({ "n": 1 })),
        row("message", 3, json!({ "n": 2 })),
        row("archived_send", 3, archived(3)),
        row("archived_send", 4, archived(4)),
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

/// A store with one archive, whose bytes are `archived`. None: it is missing.
fn storage_with(log: &Arc<Mutex<Vec<String>>>, archived: Option<&'static str>) -> MockArchiveStorage {
    let mut storage = MockArchiveStorage::new();
    storage.expect_delete().returning(|_| Ok(()));
    storage.expect_open().returning(move |path, _| {
        // The file that was listed first is replaced.
        let archived = archived.filter(|_| path.key != Uuid::from_u128(8));
        let mut chunks: Vec<_> = archived.into_iter().collect();
        let mut archive = MockArchiveRead::new();
        archive
            .expect_next()
            .returning(move || Ok(chunks.pop().map(|text| text.as_bytes().to_vec().into())));
        let archive: Box<dyn ArchiveRead> = Box::new(archive);
        Ok(archived.map(|_| archive))
    });
    let written = log.clone();
    storage.expect_begin().returning(move |_| {
        let (mut file, written) = (MockArchiveWrite::new(), written.clone());
        file.expect_write().returning(move |bytes| {
            written.lock().unwrap().push(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(())
        });
        file.expect_commit().returning(|| Ok(FILE));
        Ok(Box::new(file))
    });
    storage
}

#[tokio::test]
async fn export_names_an_archive_that_cannot_be_read() {
    for archived in [None, Some("{\"id\":")] {
        let (mut queue, log) = (queue(), Arc::new(Mutex::new(vec![])));
        queue.expect_complete().once().returning(|_, _| Ok(true));
        let exporter = ContactExporter {
            storage: Arc::new(storage_with(&log, archived)),
            ..exporter(queue, &log)
        };
        assert!(exporter.export_next().await.unwrap());
        let data = json!({ "campaign_id": Uuid::from_u128(5), "campaign_name": "Volta" });
        let expected = json!({ "type": "unreadable_archive", "data": data }).to_string() + "\n";
        assert_eq!(log.lock().unwrap().last(), Some(&expected), "{archived:?}");
    }
}

#[tokio::test]
async fn export_reads_the_file_that_replaced_an_archive() {
    let (mut queue, log) = (queue(), Arc::new(Mutex::new(vec![])));
    queue.expect_complete().once().returning(|_, _| Ok(true));
    let opened = storage_with(&log, Some("{\"contact_id\":null}\n"));
    let exporter = ContactExporter {
        storage: Arc::new(opened),
        ..exporter(queue, &log)
    };
    assert!(exporter.export_next().await.unwrap());
    let log = log.lock().unwrap();
    assert!(log.iter().all(|line| !line.contains("unreadable_archive")), "{log:?}");
}

#[tokio::test]
async fn file_of_a_lost_claim_is_deleted() {
    let (mut queue, log) = (queue(), Arc::new(Mutex::new(vec![])));
    queue.expect_complete().returning(|_, _| Ok(false));
    exporter(queue, &log).export_next().await.unwrap();
    assert_eq!(log.lock().unwrap().last().unwrap(), "delete 7");
}

#[tokio::test]
async fn expired_export_loses_its_files_first() {
    let (mut queue, log) = (MockContactExportQueue::new(), Arc::new(Mutex::new(vec![])));
    queue
        .expect_expired()
        .returning(|_| Ok(vec![(ACCOUNT, Uuid::from_u128(2).into(), vec![Uuid::from_u128(7)])]));
    let deleted = log.clone();
    queue.expect_delete().returning(move |_, _| {
        deleted.lock().unwrap().push("row".into());
        Ok(())
    });
    assert!(exporter(queue, &log).purge(10).await.unwrap());
    assert_eq!(*log.lock().unwrap(), ["delete 7", "row"]);
}

#[tokio::test]
async fn export_of_a_missing_contact_is_not_found() {
    let tenant = Tenant::for_tests(ACCOUNT, UserId(Uuid::from_u128(3)), Role::Admin);
    let now = datetime!(2026-11-29 10:30 UTC);
    for found in [RowOutcome::Done, RowOutcome::Missing] {
        let mut store = MockContactExportStore::new();
        store.expect_insert().returning(move |_, export, events| {
            let [Event::Audit(audit)] = events else {
                panic!("{events:?}")
            };
            assert_eq!(
                (audit.action, audit.entity_type.as_str()),
                (AuditAction::Export, "contact")
            );
            assert_eq!(audit.changes, Some(json!({ "export_id": export.id })));
            Ok(found)
        });
        let mut clock = MockClock::new();
        clock.expect_now().returning(move || now);
        let storage = Arc::new(MockArchiveStorage::new());
        let exports = ContactExports::new(Arc::new(store), storage, Arc::new(clock), ids());
        let made = exports.create(&tenant, Uuid::from_u128(5).into()).await;
        match found {
            RowOutcome::Done => {
                let export = made.unwrap();
                assert_eq!(
                    (export.state, export.expires_at),
                    (ExportState::Running, now + EXPORT_KEPT_FOR)
                );
            }
            RowOutcome::Missing => assert!(matches!(made, Err(ContactExportError::NotFound))),
        }
    }
}
