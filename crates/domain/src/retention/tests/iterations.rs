//! Turns of the worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mockall::predicate::eq;
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use super::in_memory::ACCOUNT;
use crate::media::{MediaStoreError, MessageFilePath, MockMessageFileStorage};
use crate::retention::{
    MockRetentionRuns, ReleasedFile, RemovedRows, RetainedRowKey, RetainedRows, RetentionBounds, RetentionClaim,
    RetentionKind, RetentionTerms, RetentionWorker, RowBatch,
};
use crate::shared::{MediaId, MockIds, StoreError};

const NOW: OffsetDateTime = datetime!(2026-11-29 10:30 UTC);

fn terms(days: &[(RetentionKind, u16)]) -> RetentionTerms {
    let terms: BTreeMap<&str, serde_json::Value> = days
        .iter()
        .map(|(kind, days)| (kind.as_str(), serde_json::json!({ "days": days })))
        .collect();
    serde_json::from_value(serde_json::to_value(terms).unwrap()).unwrap()
}

fn claimed(terms: RetentionTerms) -> MockRetentionRuns {
    let mut runs = MockRetentionRuns::new();
    runs.expect_claim().returning(move |claim, _, _| {
        Ok(Some(RetentionClaim {
            account_id: ACCOUNT,
            claim,
            version: 1,
            terms: terms.clone(),
            now: NOW,
        }))
    });
    runs
}

fn worker(runs: MockRetentionRuns, files: MockMessageFileStorage) -> RetentionWorker {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(7));
    RetentionWorker {
        runs: Arc::new(runs),
        files: Arc::new(files),
        archiver: None,
        bounds: RetentionBounds {
            min_days: 30,
            max_days: 3650,
            force_days: None,
        },
        ids: Arc::new(ids),
    }
}

/// No call of `remove`, `release_files` or `count` is expected: each would panic.
#[tokio::test]
async fn account_without_terms_removes_nothing() {
    let mut runs = claimed(RetentionTerms::default());
    runs.expect_renew().returning(|_, _| Ok(true));
    let ended = |_: &RetentionClaim, next: &Option<OffsetDateTime>, counts: &Option<BTreeMap<String, i64>>| {
        next.is_none() && counts.as_ref().is_some_and(BTreeMap::is_empty)
    };
    runs.expect_end().withf(ended).once().returning(|_, _, _| Ok(()));
    assert!(worker(runs, MockMessageFileStorage::new()).run_next().await.unwrap());
}

#[tokio::test]
async fn files_leave_before_their_messages() {
    let mut runs = claimed(terms(&[(RetentionKind::Media, 30), (RetentionKind::Messages, 60)]));
    let calls = Arc::new(Mutex::new(vec![]));
    runs.expect_renew().returning(|_, _| Ok(true));
    let path = MessageFilePath {
        account_id: ACCOUNT,
        key: Uuid::from_u128(8),
    };
    let (log, mut left) = (calls.clone(), 1);
    runs.expect_release_files().returning(move |_, horizon, _| {
        // The later horizon of the two: 30 days.
        assert_eq!(horizon, datetime!(2026-10-30 00:00 UTC));
        log.lock().unwrap().push("release");
        let released = (left > 0).then(|| ReleasedFile {
            id: MediaId(Uuid::nil()),
            paths: vec![path],
        });
        left = 0;
        Ok(released.into_iter().collect())
    });
    let log = calls.clone();
    runs.expect_record_deleted().returning(move |_, _| {
        log.lock().unwrap().push("record");
        Ok(())
    });
    let log = calls.clone();
    runs.expect_remove().returning(move |_, rows, horizon, _| {
        assert_eq!(horizon, datetime!(2026-09-30 00:00 UTC));
        log.lock().unwrap().push(if rows == RetainedRows::Messages {
            "messages"
        } else {
            "direct"
        });
        Ok(RemovedRows::default())
    });
    runs.expect_count().returning(|_, _, _| Ok(0));
    runs.expect_end().returning(|_, _, _| Ok(()));
    let mut files = MockMessageFileStorage::new();
    let log = calls.clone();
    files.expect_delete_file().with(eq(path)).returning(move |_| {
        log.lock().unwrap().push("delete");
        Ok(())
    });
    worker(runs, files).run_next().await.unwrap();
    assert_eq!(
        *calls.lock().unwrap(),
        ["release", "delete", "record", "release", "messages", "direct"]
    );
}

/// A file store that fails keeps the bytes known, and does not keep other kinds from leaving.
#[tokio::test]
async fn failing_file_store_keeps_files_and_nothing_else() {
    let mut runs = claimed(terms(&[(RetentionKind::Media, 30), (RetentionKind::Orders, 30)]));
    runs.expect_renew().returning(|_, _| Ok(true));
    runs.expect_release_files().returning(|_, _, _| {
        let path = MessageFilePath {
            account_id: ACCOUNT,
            key: Uuid::from_u128(8),
        };
        Ok(vec![ReleasedFile {
            id: MediaId(Uuid::nil()),
            paths: vec![path],
        }])
    });
    let is_orders = |_: &_, rows: &RetainedRows, _: &_, _: &_| *rows == RetainedRows::Orders;
    runs.expect_remove()
        .withf(is_orders)
        .once()
        .returning(|_, _, _, _| Ok(RemovedRows { count: 3, last: None }));
    let is_retried = |_: &_, next: &Option<OffsetDateTime>, counts: &Option<BTreeMap<String, i64>>| {
        counts.is_none() && next.is_some_and(|at| at > NOW)
    };
    runs.expect_end().withf(is_retried).once().returning(|_, _, _| Ok(()));
    let mut files = MockMessageFileStorage::new();
    files
        .expect_delete_file()
        .returning(|_| Err(MediaStoreError::Failed("no store".into())));
    let error = worker(runs, files).run_next().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)));
}

/// An account with more rows than a iteration removes waits behind the others, without counting.
#[tokio::test]
async fn large_account_gets_no_more_than_its_share() {
    let mut runs = claimed(terms(&[(RetentionKind::MetricEvents, 30)]));
    runs.expect_renew().returning(|_, _| Ok(true));
    runs.expect_remove()
        .times(50)
        .returning(|_, _, _, batch| Ok(full(batch, None)));
    let waits = |_: &_, next: &Option<OffsetDateTime>, counts: &Option<BTreeMap<String, i64>>| {
        counts.is_none() && *next == Some(NOW)
    };
    runs.expect_end().withf(waits).once().returning(|_, _, _| Ok(()));
    assert!(worker(runs, MockMessageFileStorage::new()).run_next().await.unwrap());
}

fn full(batch: RowBatch, last: Option<RetainedRowKey>) -> RemovedRows {
    RemovedRows {
        count: batch.limit,
        last,
    }
}

/// Rows that stay are not read again by the next batch.
#[tokio::test]
async fn batch_begins_after_the_last_row_of_the_one_before() {
    let mut runs = claimed(terms(&[(RetentionKind::Messages, 30)]));
    runs.expect_release_files().returning(|_, _, _| Ok(vec![]));
    runs.expect_renew().returning(|_, _| Ok(true));
    let last = RetainedRowKey {
        at: NOW,
        id: Uuid::from_u128(7),
    };
    let calls = Arc::new(Mutex::new(vec![]));
    let log = calls.clone();
    runs.expect_remove().returning(move |_, rows, _, batch| {
        let mut log = log.lock().unwrap();
        log.push((rows, batch.after));
        let is_first = rows == RetainedRows::DirectMessages && batch.after.is_none();
        Ok(if is_first {
            full(batch, Some(last))
        } else {
            RemovedRows::default()
        })
    });
    runs.expect_count().returning(|_, _, _| Ok(0));
    runs.expect_end().once().returning(|_, _, _| Ok(()));
    worker(runs, MockMessageFileStorage::new()).run_next().await.unwrap();
    let expected = [
        (RetainedRows::Messages, None),
        (RetainedRows::DirectMessages, None),
        (RetainedRows::DirectMessages, Some(last)),
    ];
    assert_eq!(*calls.lock().unwrap(), expected);
}

/// A change of the terms, or another worker, ends the iteration before the next batch.
#[tokio::test]
async fn lost_claim_removes_nothing_more() {
    let mut runs = claimed(terms(&[(RetentionKind::Orders, 30), (RetentionKind::Audit, 400)]));
    let mut renewals = 0;
    runs.expect_renew().returning(move |_, _| {
        renewals += 1;
        Ok(renewals == 1)
    });
    runs.expect_remove()
        .once()
        .returning(|_, _, _, batch| Ok(full(batch, None)));
    runs.expect_end().once().returning(|_, _, _| Ok(()));
    worker(runs, MockMessageFileStorage::new()).run_next().await.unwrap();
}

/// Regression: counts took longer than the lease, and two workers counted.
#[tokio::test]
async fn counts_renew_the_lease_and_end_with_it() {
    let kinds = [
        (RetentionKind::Orders, 30),
        (RetentionKind::Notifications, 30),
        (RetentionKind::Audit, 400),
    ];
    let mut runs = claimed(terms(&kinds));
    let calls = Arc::new(Mutex::new(vec![]));
    let log = calls.clone();
    let mut renewals = 0;
    runs.expect_renew().returning(move |_, _| {
        log.lock().unwrap().push("renew");
        renewals += 1;
        // A step of each kind, and two counts.
        Ok(renewals <= 5)
    });
    let log = calls.clone();
    runs.expect_remove().returning(move |_, _, _, _| {
        log.lock().unwrap().push("remove");
        Ok(RemovedRows::default())
    });
    let log = calls.clone();
    runs.expect_count().returning(move |_, _, _| {
        log.lock().unwrap().push("count");
        Ok(1)
    });
    let goes_on = |_: &_, next: &Option<OffsetDateTime>, counts: &Option<BTreeMap<String, i64>>| {
        counts.is_none() && *next == Some(NOW)
    };
    runs.expect_end().withf(goes_on).once().returning(|_, _, _| Ok(()));
    worker(runs, MockMessageFileStorage::new()).run_next().await.unwrap();
    let steps = ["renew", "remove"].repeat(3);
    let counts = ["renew", "count", "renew", "count", "renew"];
    assert_eq!(*calls.lock().unwrap(), [&steps[..], &counts[..]].concat());
}
