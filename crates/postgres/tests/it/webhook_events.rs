//! Webhook events: stored only for kinds with a subscriber, in the order in which they became visible.

use recado_domain::administration::DeletionStore;
use recado_domain::campaigns::CampaignStore;
use recado_domain::shared::{AccountId, Event, EventKind, WebhookKind};
use recado_postgres::PgDeletions;
use serde_json::json;
use uuid::Uuid;

use crate::support::{DbFixture, LEASE, id};

/// Inserts an outbound endpoint that subscribes to `events`, a PostgreSQL array literal.
pub(crate) async fn endpoint(fixture: &DbFixture, account: AccountId, events: &str, is_active: bool) -> Uuid {
    let endpoint = id();
    fixture
        .sql(&format!(
            "INSERT INTO webhook_endpoints (account_id, id, name, direction, url, events, is_active, secret, secret_hint)
             VALUES ('{account}', '{endpoint}', 'w', 'outbound', 'https://e.example/{endpoint}', '{events}', {is_active},
               '\\x00', 'beef')"
        ))
        .await;
    endpoint
}

fn webhook_batch(kind: WebhookKind, numbers: &[i64]) -> Event {
    Event::webhook(kind, numbers.iter().map(|n| json!({ "n": n })).collect())
}

#[tokio::test]
async fn webhook_event_is_stored_only_with_a_subscriber() {
    let fixture = DbFixture::new().await;
    let events = [
        webhook_batch(WebhookKind::MessageSent, &[1]),
        webhook_batch(WebhookKind::MessageRead, &[2]),
    ];
    let stored = "SELECT count(*) FROM outbox_events";
    fixture.campaigns().insert(&fixture.draft(), &events).await.unwrap();
    assert_eq!(fixture.number(stored).await, 0, "without an endpoint");
    let other_account = fixture.another_account().await;
    endpoint(&fixture, other_account, "{*}", true).await;
    fixture.campaigns().insert(&fixture.draft(), &events).await.unwrap();
    assert_eq!(fixture.number(stored).await, 0, "another account's endpoint");
    endpoint(&fixture, fixture.account, "{message.read}", false).await;
    let empty = Event::webhook(WebhookKind::MessageRead, vec![]);
    let all = [events[0].clone(), events[1].clone(), empty];
    fixture.campaigns().insert(&fixture.draft(), &all).await.unwrap();
    let kinds = fixture
        .text("SELECT string_agg(payload ->> 'type', ' ') FROM outbox_events")
        .await;
    assert_eq!(kinds.as_deref(), Some("message.read"));
    endpoint(&fixture, fixture.account, "{*}", false).await;
    fixture.campaigns().insert(&fixture.draft(), &events).await.unwrap();
    assert_eq!(fixture.number(stored).await, 3);
    fixture
        .sql("UPDATE webhook_endpoints SET direction = 'inbound', url = NULL")
        .await;
    fixture.campaigns().insert(&fixture.draft(), &events).await.unwrap();
    assert_eq!(fixture.number(stored).await, 3, "inbound endpoints receive no events");
}

#[tokio::test]
async fn relay_creates_ordered_events_and_deliveries() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    let sent = endpoint(&fixture, account, "{message.sent,message.read}", true).await;
    let all = endpoint(&fixture, account, "{*}", true).await;
    endpoint(&fixture, account, "{*}", false).await;
    endpoint(&fixture, account, "{contact.created}", true).await;
    let foreign = endpoint(&fixture, other_account, "{*}", true).await;
    fixture
        .append_events(
            account,
            &[
                webhook_batch(WebhookKind::MessageSent, &[1, 2]),
                webhook_batch(WebhookKind::MessageFailed, &[3]),
            ],
        )
        .await;
    fixture
        .append_events(other_account, &[webhook_batch(WebhookKind::MessageSent, &[4])])
        .await;
    fixture
        .sql("UPDATE outbox_events SET created_at = '2026-03-01 12:00Z'")
        .await;
    assert_eq!(fixture.outbox().relay(EventKind::Webhook, 100).await.unwrap(), 3);
    let feed = "SELECT string_agg(concat(payload ->> 'n', type, occurred_at = '2026-03-01 12:00Z'), ' ' ORDER BY seq)
         FROM webhook_events";
    let expected = "1message.sentt 2message.sentt 3message.failedt 4message.sentt";
    assert_eq!(fixture.text(feed).await.as_deref(), Some(expected));
    let sorted = "SELECT string_agg(payload ->> 'n', '' ORDER BY id) FROM webhook_events";
    assert_eq!(fixture.text(sorted).await.as_deref(), Some("1234"));
    for (endpoint, expected) in [(sent, "12"), (all, "123"), (foreign, "4")] {
        let deliveries = format!(
            "SELECT string_agg(e.payload ->> 'n', '' ORDER BY e.seq) FROM webhook_deliveries d
             JOIN webhook_events e ON e.account_id = d.account_id AND e.id = d.event_id
             WHERE d.endpoint_id = '{endpoint}' AND d.state = 'waiting' AND d.next_attempt_at <= now()"
        );
        assert_eq!(fixture.text(&deliveries).await.as_deref(), Some(expected));
    }
    assert_eq!(fixture.number("SELECT count(*) FROM webhook_deliveries").await, 6);
}

#[tokio::test]
async fn account_deletion_removes_its_webhook_events() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    endpoint(&fixture, account, "{*}", true).await;
    endpoint(&fixture, other_account, "{*}", true).await;
    for account in [account, other_account] {
        fixture
            .append_events(account, &[webhook_batch(WebhookKind::MessageSent, &[1])])
            .await;
    }
    fixture.relay().await;
    for account in [account, other_account] {
        fixture
            .append_events(account, &[webhook_batch(WebhookKind::MessageSent, &[2])])
            .await;
    }
    fixture
        .sql(&format!("DELETE FROM accounts WHERE id = '{account}'"))
        .await;
    fixture.relay().await;
    let remaining = format!("SELECT count(*) FROM webhook_events WHERE account_id = '{account}'");
    assert_eq!(
        fixture.number(&remaining).await,
        1,
        "the relay adds none to a deleted account"
    );
    let deletions = PgDeletions::new(fixture.owner.clone());
    while deletions.purge(account, LEASE).await.unwrap().has_more() {}
    for table in ["webhook_endpoints", "webhook_events", "webhook_deliveries"] {
        let remaining = format!("SELECT count(*) FROM {table} WHERE account_id = '{account}'");
        assert_eq!(fixture.number(&remaining).await, 0, "{table}");
        assert!(
            fixture.number(&format!("SELECT count(*) FROM {table}")).await > 0,
            "{table}"
        );
    }
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
}
