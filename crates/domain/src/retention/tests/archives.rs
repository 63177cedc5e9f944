//! Archives: killed at any call, and files that differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use super::in_memory::{ACCOUNT, Damage, Death, InMemory};
use crate::retention::Archiver;
use crate::retention::archiver::{Lease, StepOutcome};
use crate::shared::{Event, Ids, NotificationKind, StoreError};

const HORIZON: Option<OffsetDateTime> = Some(datetime!(2026-11-01 00:00 UTC));

struct Held(AtomicBool);

impl Held {
    fn new() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Lease for Held {
    async fn renew(&self) -> Result<bool, StoreError> {
        Ok(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
struct Numbers(AtomicU64);

impl Ids for Numbers {
    fn next(&self) -> Uuid {
        Uuid::from_u128(1000 + u128::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

fn archiver(store: &InMemory, ids: &Arc<Numbers>) -> Archiver {
    Archiver {
        archives: Arc::new(store.clone()),
        storage: Arc::new(store.clone()),
        ids: ids.clone(),
    }
}

/// Runs a worker that goes on until it has nothing to do.
async fn finish(store: &InMemory, ids: &Arc<Numbers>) {
    let worker = archiver(&store.dying(Death::Never), ids);
    while worker.step(ACCOUNT, HORIZON, &Held::new()).await.unwrap() != StepOutcome::Idle {}
}

#[tokio::test]
async fn sends_leave_only_after_their_file_was_read_back() {
    let (store, ids) = (InMemory::new(2500), Arc::new(Numbers::default()));
    let all = store.tables.lock().unwrap().sends.clone();
    finish(&store, &ids).await;
    store.check(&all);
    let tables = store.tables.lock().unwrap();
    let file = tables.verified.as_ref().unwrap();
    assert!(tables.removed && tables.sends.is_empty());
    assert_eq!((file.sends, file.months.len()), (2500, 1));
    assert_eq!(tables.files.len(), 1);
}

/// A worker dies at each of its calls, before or after the call's effect. Then, and after every later step,
/// each send is in the table or in the verified file; in the end all are in the file, which is the only one.
#[tokio::test]
async fn archive_survives_a_death_at_every_call() {
    let (whole, ids) = (InMemory::new(30), Arc::new(Numbers::default()));
    finish(&whole, &ids).await;
    let calls = whole.calls();
    assert!(calls > 10, "{calls}");
    for call in 1..=calls {
        for death in [Death::Before(call), Death::After(call)] {
            let store = InMemory::new(30);
            let all = store.tables.lock().unwrap().sends.clone();
            let dying = archiver(&store.dying(death), &ids);
            while let Ok(StepOutcome::Done) = dying.step(ACCOUNT, HORIZON, &Held::new()).await {}
            store.check(&all);
            finish(&store, &ids).await;
            store.check(&all);
            let tables = store.tables.lock().unwrap();
            assert!(tables.removed && tables.sends.is_empty(), "{death:?}");
            assert_eq!(tables.files.len(), 1, "{death:?}");
            assert_eq!(tables.verified.as_ref().unwrap().sends, 30);
        }
    }
}

#[tokio::test]
async fn refused_file_removes_nothing_and_its_reason_is_notified() {
    let of = |damage| InMemory {
        damage,
        ..InMemory::new(30)
    };
    // One more send of a status than the counters count, with the same total.
    let miscounted = InMemory::new(30);
    {
        let mut tables = miscounted.tables.lock().unwrap();
        tables.counts.read += 1;
        tables.counts.failed -= 1;
    }
    for (store, reason, text) in [
        (
            of(Damage::CutShort),
            "file_damaged",
            "returns its archive with other content",
        ),
        (of(Damage::Missing), "file_missing", "does not have its archive"),
        (
            miscounted,
            "counts_differ",
            "has 30 sends where its statistics count 30",
        ),
    ] {
        let ids = Arc::new(Numbers::default());
        let step = archiver(&store, &ids)
            .step(ACCOUNT, HORIZON, &Held::new())
            .await
            .unwrap();
        assert_eq!(step, StepOutcome::Done);
        let tables = store.tables.lock().unwrap();
        assert_eq!((tables.sends.len(), tables.files.len()), (30, 0));
        let [Event::Notification(refused)] = tables.refused.as_slice() else {
            panic!("no notification");
        };
        assert_eq!(refused.kind, NotificationKind::Error);
        assert_eq!(refused.data["reason"], reason);
        assert!(refused.message.contains(text), "{}", refused.message);
        assert!(refused.title.contains("Volta"), "{}", refused.title);
    }
}

#[tokio::test]
async fn worker_without_its_lease_writes_no_archive() {
    let (store, ids) = (InMemory::new(30), Arc::new(Numbers::default()));
    let lost = Held(AtomicBool::new(false));
    let step = archiver(&store, &ids).step(ACCOUNT, HORIZON, &lost).await.unwrap();
    assert_eq!(step, StepOutcome::Lost);
    assert!(store.tables.lock().unwrap().verified.is_none());
}

#[tokio::test]
async fn campaign_stays_without_a_term() {
    let (store, ids) = (InMemory::new(30), Arc::new(Numbers::default()));
    let step = archiver(&store, &ids).step(ACCOUNT, None, &Held::new()).await.unwrap();
    assert_eq!(step, StepOutcome::Idle);
    assert_eq!(store.tables.lock().unwrap().sends.len(), 30);
}
