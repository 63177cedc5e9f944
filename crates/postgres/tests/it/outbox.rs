//! The outbox relay moves each event exactly once.

use futures_util::future::join_all;
use recado_domain::campaigns::CampaignStore;
use recado_domain::shared::{Audit, AuditAction, Event, EventKind, NotificationDraft, NotificationKind};
use serde_json::json;

use crate::relay::notification;
use crate::support::{DbFixture, event, id};

#[tokio::test]
async fn relayed_events_keep_their_content_and_creation_time() {
    let fixture = DbFixture::new().await;
    let campaign = fixture.draft();
    let audit = Audit {
        user_id: Some(fixture.user),
        action: AuditAction::Create,
        entity_type: "campaign".into(),
        entity_id: Some(campaign.id.0),
        changes: Some(json!({ "name": "x" })),
        ip_address: Some("10.0.0.1".into()),
        support_admin: None,
    };
    let notification = NotificationDraft {
        kind: NotificationKind::Warning,
        title: "t".into(),
        message: "m".into(),
        data: json!({ "a": 1 }),
    };
    let events = [Event::Audit(audit), Event::Notification(notification)];
    fixture.campaigns().insert(&campaign, &events).await.unwrap();
    fixture
        .sql("UPDATE outbox_events SET created_at = '2026-03-01 12:00Z'")
        .await;
    assert_eq!(fixture.relay().await, 2);
    assert_eq!(fixture.relay().await, 0);
    let audit = fixture
        .text(
            "SELECT concat_ws(' ', user_id, action, entity_type, entity_id, changes, ip_address,
               created_at = '2026-03-01 12:00Z') FROM audit_logs",
        )
        .await;
    let expected = format!(
        "{} create campaign {} {{\"name\": \"x\"}} 10.0.0.1 t",
        fixture.user, campaign.id
    );
    assert_eq!(audit.unwrap(), expected);
    let notification =
        fixture.text("SELECT concat_ws(' ', type, title, message, data, read_at, created_at = '2026-03-01 12:00Z') FROM notifications").await;
    assert_eq!(notification.unwrap(), "warning t m {\"a\": 1} t");
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
}

#[tokio::test]
async fn audit_entries_sort_like_their_outbox_events() {
    let fixture = DbFixture::new().await;
    let entities: Vec<_> = (0..50).map(|_| id()).collect();
    let events: Vec<Event> = entities.iter().map(|&entity| event(entity)).collect();
    fixture.campaigns().insert(&fixture.draft(), &events).await.unwrap();
    while fixture.outbox().relay(EventKind::Audit, 7).await.unwrap() > 0 {}
    let sorted = fixture
        .text("SELECT string_agg(entity_id::text, ' ' ORDER BY created_at, id) FROM audit_logs")
        .await;
    let expected: Vec<String> = entities.iter().map(ToString::to_string).collect();
    assert_eq!(sorted.unwrap(), expected.join(" "));
}

#[tokio::test]
async fn concurrent_relays_move_each_event_once() {
    let fixture = DbFixture::new().await;
    for _ in 0..5 {
        let events: Vec<Event> = (0..40).map(|_| event(id())).collect();
        fixture.campaigns().insert(&fixture.draft(), &events).await.unwrap();
    }
    let relays = (0..4).map(|_| {
        let outbox = fixture.outbox();
        async move {
            let mut moved = 0;
            loop {
                match outbox.relay(EventKind::Audit, 13).await.unwrap() {
                    0 => return moved,
                    count => moved += count,
                }
            }
        }
    });
    let moved: usize = join_all(relays).await.into_iter().sum();
    assert_eq!(moved, 200);
    assert_eq!(fixture.number("SELECT count(*) FROM audit_logs").await, 200);
    assert_eq!(
        fixture.number("SELECT count(DISTINCT entity_id) FROM audit_logs").await,
        200
    );
}

#[tokio::test]
async fn relay_keeps_unknown_kinds_and_drops_deleted_accounts() {
    let fixture = DbFixture::new().await;
    fixture
        .sql(&format!(
            "INSERT INTO outbox_events (account_id, payload) VALUES ('{0}', '{{\"kind\":\"nonsense\"}}'), ('{0}', '[1]')",
            fixture.account,
        ))
        .await;
    fixture
        .append_events(id().into(), &[event(id()), notification("lost")])
        .await;
    fixture
        .append_events(fixture.account, &[event(id()), notification("stored")])
        .await;
    assert_eq!(fixture.relay().await, 4);
    assert_eq!(fixture.number("SELECT count(*) FROM audit_logs").await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM notifications").await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 2);
    fixture.assert_audit_counts().await;
}
