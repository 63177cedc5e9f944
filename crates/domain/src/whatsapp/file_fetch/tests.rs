//! Tests of one fetch of a file.

use std::sync::Mutex;

use futures_util::stream;
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::media::{FetchFacts, FileFailure, FileKind, MockMediaWrite, MockMessageFileStorage, MockMessageFileStore};
use crate::shared::{AccountId, MockCipher, MockClock, MockIds, Sealed};
use crate::whatsapp::verification::{NumberFacts, VerificationRecord};
use crate::whatsapp::{MockProfileStore, Profile, StoredProfile};

const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);
const CONTENT: &[u8] = b"\xFF\xD8\xFF\xE0 a picture";

use time::OffsetDateTime;

fn claimed(facts: FetchFacts) -> ClaimedFile {
    ClaimedFile {
        account_id: AccountId(Uuid::from_u128(1)),
        message_id: Uuid::from_u128(2).into(),
        conversation_id: Uuid::from_u128(3).into(),
        contact_id: Uuid::from_u128(4),
        profile_id: Uuid::from_u128(5).into(),
        wa_media_id: "14".into(),
        expected_sha256: None,
        facts,
        file: MessageFile {
            id: Uuid::from_u128(6).into(),
            kind: FileKind::Image,
            mime_type: Some("image/jpeg".into()),
            file_name: None,
            size: None,
            sha256: None,
            state: FileState::Pending,
            reason: None,
            expires_at: None,
        },
        claim: Uuid::from_u128(7),
        abandoned: vec![],
    }
}

fn fresh() -> FetchFacts {
    FetchFacts {
        attempts: 0,
        mismatches: 0,
        written_at: NOW,
    }
}

fn profile() -> StoredProfile {
    let record = VerificationRecord::verified(NOW);
    StoredProfile {
        profile: Profile {
            id: Uuid::from_u128(5).into(),
            name: "Loja".into(),
            phone_number_id: "1065".into(),
            waba_id: "102".into(),
            messages_per_second: None,
            created_at: NOW,
            updated_at: NOW,
            verification: record.verification,
            number: NumberFacts::default(),
        },
        token: Sealed(vec![1]),
        version: 1,
        credentials_version: 1,
        verification_version: 1,
        history: record.history,
    }
}

/// What a fetch recorded: the decision, the failed requests, and the number of events.
type Recorded = Arc<Mutex<Option<(FetchDecision, u16, usize)>>>;

/// Runs one fetch of `file`. `is_current`: whether the claim still exists when the outcome is recorded.
async fn fetch(
    file: ClaimedFile,
    gateway: MockFileGateway,
    storage: MockMessageFileStorage,
    is_current: bool,
) -> Recorded {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(NOW);
    fetch_by(clock, file, gateway, storage, is_current).await
}

async fn fetch_by(
    clock: MockClock,
    file: ClaimedFile,
    gateway: MockFileGateway,
    storage: MockMessageFileStorage,
    is_current: bool,
) -> Recorded {
    let recorded = Recorded::default();
    let mut files = MockMessageFileStore::new();
    files
        .expect_claim()
        .return_once(move |_, _| Ok(FileClaim::Claimed(Box::new(file))));
    files.expect_renew().returning(|_, _| Ok(true));
    let kept = recorded.clone();
    files.expect_record().returning(move |_, decision, failed, events| {
        *kept.lock().unwrap() = Some((*decision, failed, events.len()));
        Ok(is_current)
    });
    let mut profiles = MockProfileStore::new();
    profiles.expect_find().returning(|_, _| Ok(Some(profile())));
    let mut cipher = MockCipher::new();
    cipher.expect_open().returning(|_, _| Some("token".into()));
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(7));
    let fetcher = FileFetcher {
        files: Arc::new(files),
        storage: Arc::new(storage),
        gateway: Arc::new(gateway),
        profiles: Arc::new(profiles),
        cipher: Arc::new(cipher),
        clock: Arc::new(clock),
        ids: Arc::new(ids),
        max_bytes: 1000,
    };
    assert!(fetcher.fetch_next().await.unwrap());
    recorded
}

/// A gateway that gives `content` in two chunks, with this hash.
fn gateway(sha256: Option<[u8; 32]>, content: &'static [u8]) -> MockFileGateway {
    let mut gateway = MockFileGateway::new();
    gateway.expect_locate().times(1).returning(move |_, _| {
        Ok(FileAddress {
            url: "https://lookaside.fbsbx.com/a".into(),
            sha256,
            size: None,
        })
    });
    gateway.expect_download().times(1).returning(move |_, _| {
        let (first, second) = content.split_at(content.len() / 2);
        let chunks = [Ok(Bytes::from_static(first)), Ok(Bytes::from_static(second))];
        Ok(FileDownload {
            size: None,
            content: stream::iter(chunks).boxed(),
        })
    });
    gateway
}

/// A store that takes one file, and expects that it is committed or discarded.
fn storage(is_committed: bool) -> MockMessageFileStorage {
    let mut storage = MockMessageFileStorage::new();
    storage.expect_begin_file().times(1).returning(move |_| {
        let mut write = MockMediaWrite::new();
        write.expect_write().returning(|_| Ok(()));
        write
            .expect_commit()
            .times(usize::from(is_committed))
            .returning(|| Ok(()));
        write
            .expect_discard()
            .times(usize::from(!is_committed))
            .returning(|| ());
        Ok(Box::new(write))
    });
    storage
}

fn hash() -> [u8; 32] {
    Sha256::digest(CONTENT).into()
}

#[tokio::test]
async fn file_with_the_right_hash_becomes_ready_with_its_event() {
    for expected in [Some(hash()), None] {
        let recorded = fetch(claimed(fresh()), gateway(expected, CONTENT), storage(true), true).await;
        let content = StoredContent {
            size: 14,
            sha256: hash(),
            content_type: Some(MessageFileType::Jpeg),
        };
        assert_eq!(*recorded.lock().unwrap(), Some((FetchDecision::Ready(content), 0, 1)));
    }
}

#[tokio::test]
async fn file_with_another_hash_is_fetched_again() {
    let recorded = fetch(claimed(fresh()), gateway(Some([7; 32]), CONTENT), storage(false), true).await;
    let recorded = *recorded.lock().unwrap();
    assert!(
        matches!(recorded, Some((FetchDecision::Retry { mismatches: 1, .. }, 0, 0))),
        "{recorded:?}"
    );
    // The callback's hash counts if the response has none.
    let file = ClaimedFile {
        expected_sha256: Some(vec![7; 32]),
        ..claimed(FetchFacts {
            mismatches: 2,
            ..fresh()
        })
    };
    let recorded = fetch(file, gateway(None, CONTENT), storage(false), true).await;
    let decision = FetchDecision::Failed(FileFailure::HashMismatch);
    assert_eq!(*recorded.lock().unwrap(), Some((decision, 0, 0)));
}

#[tokio::test]
async fn file_over_the_limit_is_not_received_whole() {
    let recorded = fetch(claimed(fresh()), gateway(None, &[0; 1001]), storage(false), true).await;
    let decision = FetchDecision::Failed(FileFailure::TooLarge);
    assert_eq!(*recorded.lock().unwrap(), Some((decision, 0, 0)));
}

#[tokio::test]
async fn endless_download_is_given_up_and_tried_again() {
    let mut clock = MockClock::new();
    let mut now = NOW;
    clock.expect_now().returning(move || {
        now += LONGEST_FETCH / 2;
        now
    });
    let recorded = fetch_by(clock, claimed(fresh()), gateway(None, CONTENT), storage(false), true).await;
    let recorded = *recorded.lock().unwrap();
    assert!(
        matches!(recorded, Some((FetchDecision::Retry { attempts: 1, .. }, 0, 0))),
        "{recorded:?}"
    );
}

#[tokio::test]
async fn only_errors_of_whatsapp_count_as_failed_requests() {
    for (error, failed) in [
        (FileGatewayError::Rejected("404".into()), 1),
        (FileGatewayError::Interrupted("reset".into()), 0),
    ] {
        let mut gateway = MockFileGateway::new();
        gateway.expect_locate().return_once(move |_, _| Err(error));
        let recorded = fetch(claimed(fresh()), gateway, MockMessageFileStorage::new(), true).await;
        let recorded = *recorded.lock().unwrap();
        assert!(
            matches!(recorded, Some((FetchDecision::Retry { attempts: 1, .. }, count, 0)) if count == failed),
            "{recorded:?}"
        );
    }
}

#[tokio::test]
async fn old_file_expires_without_a_request() {
    let facts = FetchFacts {
        written_at: NOW - Duration::days(7),
        ..fresh()
    };
    let recorded = fetch(
        claimed(facts),
        MockFileGateway::new(),
        MockMessageFileStorage::new(),
        true,
    )
    .await;
    assert_eq!(*recorded.lock().unwrap(), Some((FetchDecision::Expired, 0, 0)));
}

#[tokio::test]
async fn bytes_without_a_row_are_deleted() {
    let mut storage = storage(true);
    let mut deleted = mockall::Sequence::new();
    for key in [9, 7] {
        storage
            .expect_delete_file()
            .times(1)
            .in_sequence(&mut deleted)
            .withf(move |path| path.key == Uuid::from_u128(key))
            .returning(|_| Ok(()));
    }
    let file = ClaimedFile {
        abandoned: vec![Uuid::from_u128(9)],
        ..claimed(fresh())
    };
    // The claim was lost meanwhile.
    fetch(file, gateway(None, CONTENT), storage, false).await;
}

#[tokio::test]
async fn file_waits_until_the_bytes_of_a_dead_worker_are_deleted() {
    let mut storage = MockMessageFileStorage::new();
    storage
        .expect_delete_file()
        .times(1)
        .returning(|_| Err(MediaStoreError::Failed("down".into())));
    let file = ClaimedFile {
        abandoned: vec![Uuid::from_u128(9)],
        ..claimed(fresh())
    };
    let recorded = fetch(file, MockFileGateway::new(), storage, true).await;
    let recorded = *recorded.lock().unwrap();
    assert!(
        matches!(recorded, Some((FetchDecision::Retry { attempts: 0, .. }, 0, 0))),
        "{recorded:?}"
    );
}
