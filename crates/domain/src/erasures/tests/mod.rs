//! The use cases and the worker of erasures.

mod archives;

use std::sync::{Arc, Mutex};

use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::contacts::MockIdentifierHasher;
use crate::media::{MessageFilePath, MockMessageFileStorage};
use crate::retention::MockArchiveStorage;
use crate::shared::{AccountId, AuditAction, MockClock, MockIds, Role, StoreError, Tenant, UserId};

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));

fn ids() -> Arc<MockIds> {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(7));
    Arc::new(ids)
}

fn claim(step: ErasureStep) -> ErasureClaim {
    ErasureClaim {
        account_id: ACCOUNT,
        id: Uuid::from_u128(2).into(),
        contact_id: Uuid::from_u128(3).into(),
        claim: Uuid::from_u128(7),
        step,
        requested_at: datetime!(2026-11-29 10:30 UTC),
        marks: PersonMarks::default(),
    }
}

/// A queue with one erasure, which logs its calls. `batches`: how the first batches end; the others are done.
fn queue(log: &Arc<Mutex<Vec<String>>>, step: ErasureStep, batches: Vec<BatchEnd>) -> MockErasureQueue {
    let mut queue = MockErasureQueue::new();
    queue.expect_claim().returning(move |_, _| Ok(Some(claim(step))));
    let (calls, ends) = (log.clone(), Mutex::new(batches.into_iter()));
    queue.expect_run_batch().returning(move |_, step, _, _| {
        calls.lock().unwrap().push(step.to_string());
        Ok(ends.lock().unwrap().next().unwrap_or(BatchEnd::Done))
    });
    let calls = log.clone();
    queue.expect_advance().returning(move |_, next| {
        let next = next.map_or("done".to_owned(), |step| format!("-> {step}"));
        calls.lock().unwrap().push(next);
        Ok(true)
    });
    let calls = log.clone();
    queue.expect_postpone().returning(move |_, delay| {
        calls.lock().unwrap().push(format!("wait {}", delay.whole_seconds()));
        Ok(())
    });
    queue
}

fn worker(queue: MockErasureQueue, files: MockMessageFileStorage) -> ErasureWorker {
    let mut hasher = MockIdentifierHasher::new();
    hasher.expect_hash().returning(|_, _| vec![1]);
    let mut archives = MockErasureArchives::new();
    archives
        .expect_next_archive()
        .returning(|_, _, _| Ok(ArchiveClaim::End(BatchEnd::Done)));
    ErasureWorker {
        queue: Arc::new(queue),
        files: Arc::new(files),
        archives: ArchiveEraser {
            archives: Arc::new(archives),
            storage: Arc::new(MockArchiveStorage::new()),
            ids: ids(),
        },
        records: None,
        hasher: Arc::new(hasher),
        ids: ids(),
    }
}

#[tokio::test]
async fn worker_takes_the_steps_from_the_stored_one() {
    let log = Arc::default();
    let queue = queue(&log, ErasureStep::HeldMessages, vec![BatchEnd::More, BatchEnd::Done]);
    assert!(worker(queue, MockMessageFileStorage::new()).run_next().await.unwrap());
    let expected = [
        "held_messages",
        "held_messages",
        "-> stored_responses",
        "stored_responses",
        "-> archived_sends",
        "done",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn worker_waits_for_what_began_before_the_request() {
    let log = Arc::default();
    let queue = queue(&log, ErasureStep::InProgress, vec![BatchEnd::Wait]);
    assert!(worker(queue, MockMessageFileStorage::new()).run_next().await.unwrap());
    assert_eq!(*log.lock().unwrap(), ["in_progress", "wait 1"]);
}

#[tokio::test]
async fn worker_without_its_claim_stops_at_once() {
    let log = Arc::default();
    let queue = queue(&log, ErasureStep::Messages, vec![BatchEnd::Lost]);
    assert!(worker(queue, MockMessageFileStorage::new()).run_next().await.unwrap());
    assert_eq!(*log.lock().unwrap(), ["messages"]);
}

/// An export and a file of a message; the store of files fails for the key 9.
async fn delete_files(key: u128) -> (Result<bool, StoreError>, Vec<String>) {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut queue = queue(&log, ErasureStep::Files, vec![BatchEnd::Lost]);
    let path = MessageFilePath {
        account_id: ACCOUNT,
        key: Uuid::from_u128(key),
    };
    let mut batches = vec![
        (BatchEnd::Done, vec![]),
        (
            BatchEnd::More,
            vec![ErasedFile {
                id: Uuid::from_u128(4),
                paths: vec![path],
            }],
        ),
    ];
    queue
        .expect_release_files()
        .returning(move |_, _, _, _| Ok(batches.pop().unwrap_or((BatchEnd::Done, vec![]))));
    let calls = log.clone();
    queue.expect_record_deleted().returning(move |_, step, files| {
        calls.lock().unwrap().push(format!("{step}: {} deleted", files.len()));
        Ok(())
    });
    let (mut files, calls) = (MockMessageFileStorage::new(), log.clone());
    files.expect_delete_file().returning(move |path| {
        calls.lock().unwrap().push(format!("delete {}", path.key.as_u128()));
        match path.key.as_u128() {
            9 => Err(crate::media::MediaStoreError::NotConfigured),
            _ => Ok(()),
        }
    });
    let ended = worker(queue, files).run_next().await;
    let log = log.lock().unwrap().clone();
    (ended, log)
}

#[tokio::test]
async fn bytes_of_files_are_deleted_before_it_is_recorded() {
    let (ended, log) = delete_files(8).await;
    assert!(ended.unwrap());
    assert_eq!(log, ["delete 8", "files: 1 deleted", "-> messages", "messages"]);
}

#[tokio::test]
async fn failed_deletion_of_bytes_is_repeated_later() {
    let (ended, log) = delete_files(9).await;
    assert!(ended.is_err());
    assert_eq!(log, ["delete 9", "wait 30"]);
}

fn erasures(store: MockErasureStore) -> Erasures {
    let mut clock = MockClock::new();
    clock.expect_now().returning(|| datetime!(2026-11-29 10:30 UTC));
    Erasures::new(Arc::new(store), Arc::new(clock), ids())
}

fn tenant() -> Tenant {
    Tenant::for_tests(ACCOUNT, UserId(Uuid::from_u128(3)), Role::Admin)
}

#[tokio::test]
async fn request_is_audited_without_contact_and_reason() {
    let mut store = MockErasureStore::new();
    store.expect_request().returning(|_, request| {
        assert_eq!(request.reason.as_deref(), Some("Pedido de Eva"));
        let audit = &request.audit;
        assert_eq!(
            (audit.action, audit.entity_type.as_str()),
            (AuditAction::Delete, "contact_erasure")
        );
        assert_eq!((audit.entity_id, &audit.changes), (Some(request.id.0), &None));
        assert_eq!(audit.user_id, Some(UserId(Uuid::from_u128(3))));
        Ok(None)
    });
    let outcome = erasures(store)
        .request(&tenant(), Uuid::from_u128(5).into(), Some(" Pedido de Eva "))
        .await;
    assert!(matches!(outcome, Err(ErasureError::NotFound)));
}

#[tokio::test]
async fn reason_has_at_most_two_hundred_characters() {
    let mut store = MockErasureStore::new();
    store.expect_request().once().returning(|_, _| Ok(None));
    let erasures = erasures(store);
    for (length, is_valid) in [(200, true), (201, false)] {
        let reason = "é".repeat(length);
        let outcome = erasures
            .request(&tenant(), Uuid::from_u128(5).into(), Some(&reason))
            .await;
        assert_eq!(matches!(outcome, Err(ErasureError::NotFound)), is_valid, "{length}");
        assert_eq!(matches!(outcome, Err(ErasureError::Invalid(_))), !is_valid, "{length}");
    }
}

/// The file has the hashes of a person who had opted out, and of no other.
#[tokio::test]
async fn record_is_written_before_the_other_steps() {
    for (has_opted_out, opt_outs) in [(true, vec!["01".to_owned()]), (false, vec![])] {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut claimed = claim(ErasureStep::FIRST);
        claimed.marks.phone = Some("+5511961234567".into());
        claimed.marks.has_opted_out = has_opted_out;
        let mut queue = MockErasureQueue::new();
        queue.expect_claim().returning(move |_, _| Ok(Some(claimed.clone())));
        let calls = log.clone();
        queue.expect_advance().returning(move |_, next| {
            calls.lock().unwrap().push(format!("-> {}", next.unwrap()));
            Ok(false)
        });
        let mut records = MockErasureRecords::new();
        let calls = log.clone();
        records.expect_write().once().returning(move |record| {
            assert_eq!((record.contact_id.0, &record.opt_outs), (Uuid::from_u128(3), &opt_outs));
            calls.lock().unwrap().push("written".into());
            Ok(())
        });
        let mut worker = worker(queue, MockMessageFileStorage::new());
        worker.records = Some(Arc::new(records));
        assert!(worker.run_next().await.unwrap());
        assert_eq!(*log.lock().unwrap(), ["written", "-> unsent"]);
    }
}
