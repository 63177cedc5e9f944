//! Notifications: the list of an account, and the order in which the feed shows those of all accounts.

use recado_domain::notifications::{NotificationFeed, NotificationQuery, NotificationStore, SequencedNotification};
use recado_domain::shared::{
    AccountId, CursorQuery, Event, EventKind, NotificationDraft, NotificationId, NotificationKind,
};
use recado_postgres::{PgNotificationFeed, PgNotifications};
use serde_json::json;
use uuid::Uuid;

use crate::support::{DbFixture, id, position};

fn notification(title: &str) -> Event {
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Info,
        title: title.into(),
        message: "m".into(),
        data: json!({ "a": [1] }),
    })
}

fn store(fixture: &DbFixture) -> PgNotifications {
    PgNotifications::new(fixture.tenants.clone(), fixture.owner.clone())
}

fn feed(fixture: &DbFixture) -> PgNotificationFeed {
    PgNotificationFeed::new(fixture.owner.clone())
}

fn query(unread: bool, cursor: Option<Uuid>, limit: i64) -> NotificationQuery {
    NotificationQuery {
        unread,
        page: CursorQuery { cursor, limit },
    }
}

async fn titles(fixture: &DbFixture, account: AccountId, unread: bool) -> Vec<String> {
    let found = store(fixture).list(account, &query(unread, None, 100)).await.unwrap();
    found.data.into_iter().map(|notification| notification.title).collect()
}

fn notification_titles(notifications: &[SequencedNotification]) -> Vec<&str> {
    notifications
        .iter()
        .map(|sequenced| sequenced.notification.title.as_str())
        .collect()
}

#[tokio::test]
async fn notifications_are_listed_newest_first_and_read_once() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    fixture
        .append_events(account, &[notification("a"), notification("b"), notification("c")])
        .await;
    fixture.append_events(other_account, &[notification("x")]).await;
    assert_eq!(titles(&fixture, account, false).await, ["c", "b", "a"]);
    assert_eq!(
        fixture.number("SELECT count(*) FROM outbox_events").await,
        1,
        "the list relays only events of its own account"
    );
    let store = store(&fixture);
    let first = store.list(account, &query(true, None, 2)).await.unwrap();
    assert!(first.has_more && first.data[0].read_at.is_none() && first.data[0].data == json!({ "a": [1] }));
    let rest = store
        .list(account, &query(true, position(first.next_cursor), 2))
        .await
        .unwrap();
    assert_eq!((rest.data.len(), rest.has_more), (1, false));
    assert!(store.read(account, first.data[1].id).await.unwrap().is_done());
    let read_at = store.list(account, &query(false, None, 9)).await.unwrap().data[1].read_at;
    assert!(read_at.is_some() && store.read(account, first.data[1].id).await.unwrap().is_done());
    assert_eq!(
        store.list(account, &query(false, None, 9)).await.unwrap().data[1].read_at,
        read_at
    );
    assert!(!store.read(other_account, first.data[1].id).await.unwrap().is_done());
    assert!(!store.read(account, NotificationId(id())).await.unwrap().is_done());
    assert_eq!(titles(&fixture, account, true).await, ["c", "a"]);
    fixture.append_events(account, &[notification("d")]).await;
    store.read_all(account).await.unwrap();
    assert_eq!(titles(&fixture, account, true).await, Vec::<String>::new());
    assert_eq!(titles(&fixture, account, false).await, ["d", "c", "b", "a"]);
    assert_eq!(titles(&fixture, other_account, true).await, ["x"]);
}

#[tokio::test]
async fn notification_feed_replays_after_a_sequence_number() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    assert_eq!(feed(&fixture).latest().await.unwrap(), 0);
    fixture
        .append_events(account, &[notification("a"), notification("b")])
        .await;
    fixture.append_events(other_account, &[notification("x")]).await;
    fixture.append_events(account, &[notification("c")]).await;
    fixture.relay().await;
    let all = feed(&fixture).after(0, 100).await.unwrap();
    assert_eq!(notification_titles(&all), ["a", "b", "x", "c"]);
    assert_eq!(feed(&fixture).latest().await.unwrap(), all[3].seq);
    assert_eq!(
        notification_titles(&feed(&fixture).after(all[0].seq, 2).await.unwrap()),
        ["b", "x"]
    );
    let seq_of = async |account, at: usize| {
        let id = all[at].notification.id;
        feed(&fixture).seq_of(account, id).await.unwrap()
    };
    assert_eq!(seq_of(account, 0).await, Some(all[0].seq));
    assert_eq!(
        seq_of(account, 2).await,
        None,
        "a notification of another account has no sequence number"
    );
    assert_eq!(seq_of(other_account, 0).await, None);
    let between = async |account, after: usize, until: usize, limit| {
        let (after, until) = (all[after].seq, all[until].seq);
        feed(&fixture).between(account, after, until, limit).await.unwrap()
    };
    assert_eq!(notification_titles(&between(account, 0, 3, 100).await), ["b", "c"]);
    assert_eq!(
        notification_titles(&between(account, 0, 3, 1).await),
        ["b"],
        "the oldest first"
    );
    assert_eq!(
        notification_titles(&between(account, 0, 2, 9).await),
        ["b"],
        "nothing after the end"
    );
    assert_eq!(between(account, 3, 3, 9).await, []);
    assert_eq!(notification_titles(&between(other_account, 0, 3, 9).await), ["x"]);
}

/// A reader that polls after its last sequence number sees every concurrent notification once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn notification_sequence_numbers_appear_in_order() {
    let fixture = DbFixture::new().await;
    let writers = (0..4).map(|writer| {
        let outbox = fixture.outbox();
        let fixture = &fixture;
        async move {
            for round in 0..15 {
                fixture
                    .append_events(
                        fixture.account,
                        &[notification(&format!("{writer}/{round}")), notification("second")],
                    )
                    .await;
                outbox.relay(EventKind::Notification, 3).await.unwrap();
            }
        }
    });
    let reader = async {
        let (mut last, mut seen) = (0, 0);
        while seen < 120 {
            for sequenced in feed(&fixture).after(last, 7).await.unwrap() {
                assert!(sequenced.seq > last);
                last = sequenced.seq;
                seen += 1;
            }
            if seen < 120 && fixture.number("SELECT count(*) FROM notifications").await == 120 {
                let rest = feed(&fixture).after(last, 200).await.unwrap();
                assert_eq!(rest.len(), 120 - seen, "a sequence number came late");
                seen = 120;
            }
        }
    };
    let written = async {
        futures_util::future::join_all(writers).await;
        while fixture.outbox().relay(EventKind::Notification, 100).await.unwrap() > 0 {}
    };
    tokio::join!(written, reader);
}
