//! The files of messages: claims with their lease, the limit of failed requests, the report of lost files, and messages
//! that their author revoked.

use recado_domain::conversations::{ConversationStore, Message};
use recado_domain::conversations::{Direction, InboundEvent, InboundMessage, ReceiveOutcome};
use recado_domain::media::{
    AnnouncedFile, ClaimedFile, FETCH_LEASE, FetchDecision, FileClaim, FileFailure, FileKind, FileState, FoundFile,
    MessageFileStore, MessageFileType, StoredContent, lost_files_event,
};
use recado_domain::shared::CursorQuery;
use recado_postgres::PgMessageFiles;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::conversations::{connected, conversations, message, receive, sender};
use crate::support::{DbFixture, id};

fn files(fixture: &DbFixture) -> PgMessageFiles {
    PgMessageFiles::new(fixture.tenants.clone(), fixture.owner.clone())
}

fn image(wamid: &str, at: OffsetDateTime) -> InboundEvent {
    let InboundEvent::Message(message) = message(wamid, sender("5511961234567"), "bolo", 0) else {
        panic!("not a message")
    };
    InboundEvent::Message(InboundMessage {
        at,
        kind: "image".into(),
        caption: Some("bolo".into()),
        file: Some(AnnouncedFile {
            kind: FileKind::Image,
            wa_media_id: format!("media-{wamid}"),
            mime_type: Some("image/jpeg".into()),
            file_name: None,
            sha256: Some([7; 32]),
        }),
        ..message
    })
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().replace_nanosecond(0).unwrap()
}

async fn claim(store: &PgMessageFiles) -> Option<ClaimedFile> {
    match store.claim(id(), FETCH_LEASE).await.unwrap() {
        FileClaim::Claimed(file) => Some(*file),
        FileClaim::Postponed | FileClaim::Idle => None,
    }
}

async fn messages(fixture: &DbFixture) -> Vec<Message> {
    let conversation = fixture.text("SELECT id::text FROM conversations").await.unwrap();
    let conversation: Uuid = conversation.parse().unwrap();
    let query = CursorQuery {
        cursor: None,
        limit: 10,
    };
    let page = conversations(fixture)
        .messages(fixture.account, conversation.into(), &query)
        .await;
    page.unwrap().unwrap().data
}

fn ready() -> FetchDecision {
    FetchDecision::Ready(StoredContent {
        size: 3,
        sha256: [7; 32],
        content_type: Some(MessageFileType::Jpeg),
    })
}

#[tokio::test]
async fn file_is_claimed_once_and_recorded_by_its_claim_alone() {
    let (fixture, _) = connected().await;
    let store = files(&fixture);
    for _ in 0..3 {
        receive(&fixture, fixture.account, vec![image("a", now())]).await;
    }
    let first = claim(&store).await.unwrap();
    assert_eq!(first.wa_media_id, "media-a");
    assert_eq!(first.expected_sha256, Some(vec![7; 32]));
    assert_eq!(claim(&store).await, None, "one message, one file");
    fixture.sql("UPDATE message_media SET due_at = now()").await;
    let second = claim(&store).await.unwrap();
    assert_eq!(second.abandoned, [first.claim]);
    assert!(!store.renew(&first, FETCH_LEASE).await.unwrap());
    assert!(!store.record(&first, &ready(), 0, &[]).await.unwrap());
    assert!(store.renew(&second, FETCH_LEASE).await.unwrap());
    assert!(store.record(&second, &ready(), 0, &[]).await.unwrap());
    let Some(FoundFile::Ready(found)) = store.find(fixture.account, second.file.id).await.unwrap() else {
        panic!("not ready")
    };
    assert_eq!(
        (found.path.key, found.size, found.sha256),
        (second.claim, 3, "07".repeat(32))
    );
    let other = fixture.another_account().await;
    assert_eq!(store.find(other, second.file.id).await.unwrap(), None);
    let [message] = &messages(&fixture).await[..] else {
        panic!("not one message")
    };
    assert_eq!(message.caption.as_deref(), Some("bolo"));
    assert_eq!((message.media.len(), message.media[0].state), (1, FileState::Ready));
}

#[tokio::test]
async fn failed_requests_of_a_number_stay_below_five_an_hour() {
    let (fixture, _) = connected().await;
    let store = files(&fixture);
    let events = (0..6).map(|n| image(&n.to_string(), now())).collect();
    receive(&fixture, fixture.account, events).await;
    // Requests in flight count: all of them may fail.
    let mut claimed = Vec::new();
    while let Some(file) = claim(&store).await {
        claimed.push(file);
    }
    assert_eq!(claimed.len(), 4);
    for file in &claimed {
        let retry = FetchDecision::Retry {
            due_at: now(),
            attempts: 1,
            mismatches: 0,
        };
        assert!(store.record(file, &retry, 1, &[]).await.unwrap());
    }
    fixture.sql("UPDATE message_media SET due_at = now()").await;
    assert_eq!(claim(&store).await, None);
    let waiting = "SELECT count(*) FROM message_media WHERE due_at > now() + interval '50 minutes'";
    assert_eq!(fixture.number(waiting).await, 6);
    let aged = "UPDATE whatsapp_media_failures SET failed_at = failed_at - interval '1 hour'";
    fixture.sql(aged).await;
    fixture.sql("UPDATE message_media SET due_at = now()").await;
    assert!(claim(&store).await.is_some());
}

#[tokio::test]
async fn file_whose_time_is_over_is_claimed_in_spite_of_failures() {
    let (fixture, _) = connected().await;
    let store = files(&fixture);
    receive(&fixture, fixture.account, vec![image("a", now() - Duration::days(8))]).await;
    fixture
        .sql("INSERT INTO whatsapp_media_failures (phone_number_id) SELECT '111' FROM generate_series(1, 4)")
        .await;
    let file = claim(&store).await.unwrap();
    assert!(store.record(&file, &FetchDecision::Expired, 0, &[]).await.unwrap());
    let found = store.find(fixture.account, file.file.id).await.unwrap();
    assert_eq!(found, Some(FoundFile::Unavailable(FileState::Expired)));
}

#[tokio::test]
async fn lost_files_are_reported_once_an_hour() {
    let (fixture, _) = connected().await;
    let store = files(&fixture);
    let lose = async |names: &[&str]| {
        let events = names.iter().map(|name| image(name, now())).collect();
        receive(&fixture, fixture.account, events).await;
        while let Some(file) = claim(&store).await {
            let failed = FetchDecision::Failed(FileFailure::Host);
            store.record(&file, &failed, 0, &[]).await.unwrap();
        }
    };
    let report = async || store.report_lost(Duration::HOUR, lost_files_event).await.unwrap();
    let reported = "SELECT string_agg(payload ->> 'message', '|' ORDER BY seq) FROM outbox_events
                    WHERE payload ->> 'kind' = 'notification'";
    assert!(!report().await);
    lose(&["a", "b"]).await;
    assert!(report().await);
    lose(&["c"]).await;
    assert!(!report().await);
    let first = fixture.text(reported).await.unwrap();
    assert!(first.starts_with("2 files ") && !first.contains('|'), "{first}");
    fixture
        .sql("UPDATE message_media SET lost_reported_at = lost_reported_at - interval '1 hour'")
        .await;
    assert!(report().await);
    assert!(fixture.text(reported).await.unwrap().contains("|1 file "));
}

#[tokio::test]
async fn revoked_message_loses_text_caption_and_file() {
    let (fixture, _) = connected().await;
    let store = files(&fixture);
    receive(&fixture, fixture.account, vec![image("a", now()), image("b", now())]).await;
    let file = claim(&store).await.unwrap();
    assert!(store.record(&file, &ready(), 0, &[]).await.unwrap());
    let revoked = |id: &str, direction| InboundEvent::Revoked {
        wa_message_id: id.into(),
        direction,
        at: now(),
    };
    // The business cannot revoke what the contact wrote.
    let outcome = receive(&fixture, fixture.account, vec![revoked("a", Direction::Outbound)]).await;
    assert_eq!(outcome, ReceiveOutcome::ReceivedEarly);
    assert!(
        messages(&fixture)
            .await
            .iter()
            .all(|message| message.deleted_at.is_none())
    );
    let events = ["a", "b", "b"].map(|id| revoked(id, Direction::Inbound));
    let outcome = receive(&fixture, fixture.account, events.into()).await;
    assert_eq!(outcome, ReceiveOutcome::Received);
    for message in messages(&fixture).await {
        assert!(message.deleted_at.is_some());
        assert_eq!((message.text, message.caption, message.media.len()), (None, None, 0));
    }
    let found = store.find(fixture.account, file.file.id).await.unwrap();
    assert_eq!(found, Some(FoundFile::Unavailable(FileState::Expired)));
    assert_eq!(claim(&store).await, None);
    let [(id, path)] = &store.expired(10).await.unwrap()[..] else {
        panic!("not one file")
    };
    assert_eq!((*id, path.key), (file.file.id, file.claim));
    store.set_expired(fixture.account, *id).await.unwrap();
    assert_eq!(store.expired(10).await.unwrap(), []);
    assert!(!store.report_lost(Duration::HOUR, lost_files_event).await.unwrap());
}

#[tokio::test]
async fn edited_message_has_the_new_text_and_caption() {
    let (fixture, _) = connected().await;
    receive(&fixture, fixture.account, vec![image("a", now())]).await;
    let edited = InboundEvent::Edited {
        wa_message_id: "a".into(),
        direction: Direction::Inbound,
        text: "torta".into(),
    };
    receive(&fixture, fixture.account, vec![edited]).await;
    let message = messages(&fixture).await.remove(0);
    assert_eq!(
        (message.text.as_deref(), message.caption.as_deref(), message.media.len()),
        (Some("torta"), Some("torta"), 1)
    );
}
