//! The use cases and the worker of exports.

use std::sync::{Arc, Mutex};

use serde_json::json;
use time::macros::datetime;
use uuid::Uuid;

use super::{ContactExportError, ContactExports, EXPORT_KEPT_FOR, ExportState};
use super::{
    ContactExporter, ExportClaim, ExportPage, ExportPart, ExportedRow, MockContactExportQueue, MockContactExportStore,
};
use crate::retention::{ArchiveWrite, MockArchiveStorage, MockArchiveWrite, StoredArchive};
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
        contact_id: Uuid::from_u128(3).into(),
        key: Uuid::from_u128(7),
        abandoned: vec![Uuid::from_u128(6)],
    }
}

/// A queue with one export, whose messages are two pages.
fn queue() -> MockContactExportQueue {
    let mut queue = MockContactExportQueue::new();
    queue.expect_claim().returning(|_, _| Ok(Some(claim())));
    queue.expect_renew().returning(|_, _| Ok(true));
    queue.expect_page().returning(|_, part, after, _| {
        let row = |n: u128| ExportPage {
            rows: vec![json!({ "n": u64::try_from(n).unwrap() })],
            last: Some(ExportedRow {
                at: datetime!(2026-11-29 10:30 UTC),
                id: Uuid::from_u128(n),
            }),
        };
        Ok(match (part, after) {
            (ExportPart::Contact | ExportPart::Message, None) => row(1),
            (ExportPart::Message, Some(after)) if after.id == Uuid::from_u128(1) => row(2),
            _ => ExportPage::default(),
        })
    });
    queue
}

/// A store that logs what is written and deleted.
fn storage(log: &Arc<Mutex<Vec<String>>>) -> MockArchiveStorage {
    let mut storage = MockArchiveStorage::new();
    let deleted = log.clone();
    storage.expect_delete().returning(move |path| {
        deleted.lock().unwrap().push(format!("delete {}", path.key.as_u128()));
        Ok(())
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
async fn export_has_all_parts_and_replaces_dead_attempts() {
    let (mut queue, log) = (queue(), Arc::new(Mutex::new(vec![])));
    queue
        .expect_complete()
        .withf(|_, file| *file == FILE)
        .once()
        .returning(|_, _| Ok(true));
    assert!(exporter(queue, &log).export_next().await.unwrap());
    let expected = [
        "delete 6",
        "{\"data\":{\"n\":1},\"type\":\"contact\"}\n",
        "{\"data\":{\"n\":1},\"type\":\"message\"}\n",
        "{\"data\":{\"n\":2},\"type\":\"message\"}\n",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
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
