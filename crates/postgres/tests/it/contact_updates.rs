//! Updates of one contact: written fields, unchanged fields, and writers that increment its version.

use recado_domain::contacts::{Contact, ContactChange, ContactStore, ContactUpsert};
use recado_domain::shared::{ContactId, UpdateOutcome};
use time::{Duration, OffsetDateTime};

use crate::contacts::{add, draft, row, tag};
use crate::support::{DbFixture, NOW, id};

pub(crate) fn renamed(name: &str) -> ContactChange {
    ContactChange {
        name: Some(name.into()),
        ..ContactChange::default()
    }
}

/// Updates the current version of the contact.
pub(crate) async fn update(fixture: &DbFixture, id: ContactId, change: &ContactChange, now: OffsetDateTime) -> Contact {
    let contacts = fixture.contacts();
    let stored = contacts.find(fixture.account, id).await.unwrap().unwrap();
    let updated = contacts
        .update(fixture.account, id, Some(stored.version), change, now)
        .await;
    match updated.unwrap() {
        UpdateOutcome::Done(details) => details.contact,
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn update_writes_fields_and_tags_only_when_given() {
    let fixture = DbFixture::new().await;
    let (a, b) = (
        tag(&fixture, fixture.account, "a").await,
        tag(&fixture, fixture.account, "b").await,
    );
    let ana = add(&fixture, &draft("Ana", Some("+5511961234567")), &[a]).await;
    let later = NOW + Duration::SECOND;
    let updated = update(&fixture, ana.id, &renamed("Ana Maria"), later).await;
    let expected = Contact {
        name: "Ana Maria".into(),
        updated_at: later,
        version: ana.version + 1,
        ..ana.clone()
    };
    assert_eq!(updated, expected);
    for zone in [Some("America/Manaus".parse().unwrap()), None] {
        let change = ContactChange {
            time_zone: Some(zone.clone()),
            ..ContactChange::default()
        };
        assert_eq!(update(&fixture, ana.id, &change, later).await.time_zone, zone);
    }
    let cleared = ContactChange {
        phone: Some(None),
        ..ContactChange::default()
    };
    assert_eq!(update(&fixture, ana.id, &cleared, later).await.phone, None);
    for tags in [vec![b], vec![]] {
        let tagged = ContactChange {
            tag_ids: Some(tags.clone()),
            ..ContactChange::default()
        };
        let updated = update(&fixture, ana.id, &tagged, later).await;
        assert_eq!(updated.tags.iter().map(|tag| tag.id).collect::<Vec<_>>(), tags);
    }
}

#[tokio::test]
async fn update_of_an_older_version_writes_nothing() {
    let fixture = DbFixture::new().await;
    let ana = add(&fixture, &draft("Ana", Some("+5511961234567")), &[]).await;
    let first = update(&fixture, ana.id, &renamed("Bia"), NOW).await;
    let contacts = fixture.contacts();
    let change = renamed("Caio");
    let stale = contacts
        .update(fixture.account, ana.id, Some(ana.version), &change, NOW)
        .await;
    assert_eq!(stale.unwrap(), UpdateOutcome::Stale);
    assert_eq!(
        contacts.find(fixture.account, ana.id).await.unwrap(),
        Some(first.clone())
    );
    let any = contacts.update(fixture.account, ana.id, None, &change, NOW).await;
    let expected = Contact {
        name: "Caio".into(),
        version: first.version + 1,
        ..first
    };
    let UpdateOutcome::Done(updated) = any.unwrap() else {
        panic!("the contact was not updated")
    };
    assert_eq!(updated.contact, expected);
    let read = contacts.details(fixture.account, ana.id).await.unwrap();
    assert_eq!(read, Some(updated));
}

/// Covers every other writer of the fields of a contact update.
#[tokio::test]
async fn imports_raise_the_version_of_contacts() {
    let fixture = DbFixture::new().await;
    let ana = add(&fixture, &draft("Ana", Some("+5511961234567")), &[]).await;
    let rows = [row("Ana Lima", "+5511961234567", &[])];
    let contacts = fixture.contacts();
    contacts
        .upsert(fixture.account, &[ContactId(id())], &rows, NOW)
        .await
        .unwrap();
    let upsert = ContactUpsert {
        contact: draft("Ana Maria", Some("+5511961234567")),
        tag_ids: vec![],
        tags: vec![],
    };
    contacts
        .upsert_one(fixture.account, ContactId(id()), &upsert, NOW)
        .await
        .unwrap();
    let stored = contacts.find(fixture.account, ana.id).await.unwrap().unwrap();
    assert_eq!((stored.name.as_str(), stored.version), ("Ana Maria", ana.version + 2));
}
