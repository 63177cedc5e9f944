//! Webhook events that the statements of a change append to the outbox.

use recado_domain::contacts::{ContactChange, ContactDraft, ContactStore, ImportRow, Phone};
use recado_domain::messaging::MetaStatus;
use recado_domain::shared::{AccountId, UpdateOutcome};
use recado_domain::templates::TemplateStore;
use serde_json::{Map, Value};
use time::Duration;

use crate::contacts::upserted;
use crate::support::{DbFixture, NOW, id};
use crate::webhook_events::endpoint;

/// Takes the webhook batches from the outbox. Each is its kind, its number of items and `field` of its first item.
async fn take_emitted(fixture: &DbFixture, field: &str) -> Vec<String> {
    let query = format!(
        "SELECT string_agg(concat_ws(' ', payload ->> 'type', jsonb_array_length(payload -> 'items'),
           payload -> 'items' -> 0 ->> '{field}'), ',' ORDER BY seq) FROM outbox_events WHERE kind = 'webhook'"
    );
    let found = fixture.text(&query).await.unwrap_or_default();
    fixture.sql("DELETE FROM outbox_events").await;
    found
        .split(',')
        .filter(|batch| !batch.is_empty())
        .map(str::to_owned)
        .collect()
}

fn draft(name: &str, phone: &str) -> ContactDraft {
    ContactDraft {
        name: name.into(),
        phone: Phone::parse(phone),
        ..ContactDraft::default()
    }
}

fn row(name: &str, phone: &str) -> ImportRow {
    ImportRow {
        contact: draft(name, phone),
        tags: vec![],
    }
}

/// Creates, updates, imports and deletes contacts.
async fn change_contacts(fixture: &DbFixture, account: AccountId) {
    let (contacts, contact) = (fixture.contacts(), id().into());
    let ana = draft("Ana", "+5511961234567");
    contacts.insert(account, contact, &ana, &[], NOW).await.unwrap();
    let bia = ContactChange {
        name: Some("Bia".into()),
        opted_out: Some(true),
        ..ContactChange::default()
    };
    let changed = contacts.update(account, contact, None, &bia, NOW).await.unwrap();
    assert!(matches!(changed, UpdateOutcome::Done(_)), "{changed:?}");
    let rows = [
        row("Caio", "+5511961234567"),
        row("Davi", "+5511961234568"),
        row("Eva", "+5511961234569"),
    ];
    let ids = [id().into(), id().into(), id().into()];
    let upserted = upserted(contacts.upsert(account, &ids, &rows, NOW).await);
    assert_eq!((upserted.imported, upserted.updated), (2, 1));
    assert!(contacts.delete(account, contact, NOW).await.unwrap().is_done());
    assert!(!contacts.delete(account, contact, NOW).await.unwrap().is_done());
    let taken = contacts
        .insert(account, id().into(), &draft("Davi", "+5511961234568"), &[], NOW)
        .await;
    assert!(taken.is_err());
}

#[tokio::test]
async fn contact_changes_emit_webhook_events() {
    let fixture = DbFixture::new().await;
    change_contacts(&fixture, fixture.another_account().await).await;
    assert!(
        take_emitted(&fixture, "name").await.is_empty(),
        "no endpoint subscribes"
    );
    endpoint(&fixture, fixture.account, "{*}", true).await;
    change_contacts(&fixture, fixture.account).await;
    let mut seen = take_emitted(&fixture, "name").await;
    // The order of the two kinds of one import is not defined.
    seen[2..4].sort();
    let expected = [
        "contact.created 1 Ana",
        "contact.updated 1 Bia",
        "contact.created 2 Davi",
        "contact.updated 1 Caio",
    ];
    assert_eq!(seen[..4], expected);
    assert_eq!(seen[4..], ["contact.deleted 1 Caio"]);
}

#[tokio::test]
async fn webhook_events_are_emitted_per_subscribed_kind() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{contact.updated}", true).await;
    change_contacts(&fixture, fixture.account).await;
    let emitted = take_emitted(&fixture, "opted_out_at").await;
    let first =
        "SELECT to_char(min(opted_out_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') FROM contacts";
    let expected = format!("contact.updated 1 {}", fixture.text(first).await.unwrap());
    assert_eq!(emitted, [expected.clone(), expected]);
}

#[tokio::test]
async fn template_emits_only_status_changes() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let before = fixture.template("t");
    fixture.templates().insert(&before).await.unwrap();
    let mut renamed = before.clone();
    renamed.footer_text = Some("f".into());
    renamed.updated_at += Duration::SECOND;
    fixture.templates().update(&renamed, &before, &[]).await.unwrap();
    renamed.version += 1;
    assert!(take_emitted(&fixture, "status").await.is_empty());
    let mut pending = renamed.clone();
    pending.meta_status = MetaStatus::Pending;
    pending.updated_at += Duration::SECOND;
    fixture.templates().update(&pending, &renamed, &[]).await.unwrap();
    assert_eq!(
        take_emitted(&fixture, "previous_status").await,
        ["template.status_changed 1 approved"]
    );
    assert_eq!(
        fixture
            .text("SELECT meta_status FROM message_templates")
            .await
            .as_deref(),
        Some("pending")
    );
}

#[tokio::test]
async fn contact_event_payload_has_the_published_form() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let mut ana = draft("Ana", "+5511961234567");
    ana.attributes = Map::from_iter([("a".to_owned(), Value::from(1))]);
    fixture
        .contacts()
        .insert(fixture.account, id().into(), &ana, &[], NOW)
        .await
        .unwrap();
    let item = fixture
        .text("SELECT payload -> 'items' -> 0 FROM outbox_events")
        .await
        .unwrap();
    let item: Map<String, Value> = serde_json::from_str(&item).unwrap();
    let fields: Vec<&str> = item.keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        [
            "email",
            "id",
            "name",
            "opted_out_at",
            "phone",
            "updated_at",
            "wa_user_id"
        ]
    );
    assert_eq!(item["updated_at"], "2026-03-01T12:00:00.123Z");
}
