//! What changes tell webhook endpoints, by the statements that write them.

use recado_domain::contacts::{ContactChange, ContactDraft, ContactStore, ImportRow, Phone};
use recado_domain::shared::{AccountId, UpdateOutcome};
use recado_domain::templates::{MetaStatus, TemplateStore};
use serde_json::{Map, Value};
use time::Duration;

use crate::contacts::upserted;
use crate::support::{DbFixture, NOW, id};
use crate::webhook_events::endpoint;

/// What waits for endpoints: kind, how many, and what is asked of the first one.
async fn told(fixture: &DbFixture, field: &str) -> Vec<String> {
    let query = format!(
        "SELECT string_agg(concat_ws(' ', payload ->> 'type', jsonb_array_length(payload -> 'items'),
           payload -> 'items' -> 0 ->> '{field}'), ',' ORDER BY seq) FROM outbox_events WHERE kind = 'webhook'"
    );
    let found = fixture.text(&query).await.unwrap_or_default();
    fixture.sql("DELETE FROM outbox_events").await;
    found
        .split(',')
        .filter(|one| !one.is_empty())
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

async fn live(fixture: &DbFixture, account: AccountId) {
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
    assert!(contacts.delete(account, contact, NOW).await.unwrap());
    assert!(!contacts.delete(account, contact, NOW).await.unwrap());
    let taken = contacts
        .insert(account, id().into(), &draft("Davi", "+5511961234568"), &[], NOW)
        .await;
    assert!(taken.is_err());
}

#[tokio::test]
async fn contacts_tell_of_their_making_changes_and_end() {
    let fixture = DbFixture::new().await;
    live(&fixture, fixture.another_account().await).await;
    assert!(told(&fixture, "name").await.is_empty(), "nobody listens");
    endpoint(&fixture, fixture.account, "{*}", true).await;
    live(&fixture, fixture.account).await;
    let mut seen = told(&fixture, "name").await;
    // The two kinds of one import come in any order.
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
async fn each_kind_is_told_to_those_who_want_it() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{contact.updated}", true).await;
    live(&fixture, fixture.account).await;
    let told = told(&fixture, "opted_out_at").await;
    let first = "SELECT to_rfc3339(min(opted_out_at)) FROM contacts";
    let expected = format!("contact.updated 1 {}", fixture.text(first).await.unwrap());
    assert_eq!(told, [expected.clone(), expected]);
}

#[tokio::test]
async fn a_template_tells_of_a_new_status_alone() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let before = fixture.template("t");
    fixture.templates().insert(&before).await.unwrap();
    let mut renamed = before.clone();
    renamed.footer_text = Some("f".into());
    renamed.updated_at += Duration::SECOND;
    fixture.templates().update(&renamed, &before, &[]).await.unwrap();
    renamed.version += 1;
    assert!(told(&fixture, "status").await.is_empty());
    let mut pending = renamed.clone();
    pending.meta_status = MetaStatus::Pending;
    pending.updated_at += Duration::SECOND;
    fixture.templates().update(&pending, &renamed, &[]).await.unwrap();
    assert_eq!(
        told(&fixture, "previous_status").await,
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
async fn what_is_told_of_a_contact_has_the_published_form() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let mut ana = draft("Ana", "+5511961234567");
    ana.attributes = Map::from_iter([("a".to_owned(), Value::from(1))]);
    fixture
        .contacts()
        .insert(fixture.account, id().into(), &ana, &[], NOW)
        .await
        .unwrap();
    let told = fixture
        .text("SELECT payload -> 'items' -> 0 FROM outbox_events")
        .await
        .unwrap();
    let told: Map<String, Value> = serde_json::from_str(&told).unwrap();
    let fields: Vec<&str> = told.keys().map(String::as_str).collect();
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
    assert_eq!(told["updated_at"], "2026-03-01T12:00:00.123Z");
}
