//! Changes of one contact: what they write, what they leave alone, and what its version is raised by.

use recado_domain::contacts::{Contact, ContactChange, ContactStore, ContactUpsert};
use recado_domain::shared::{ContactId, UpdateOutcome};
use time::{Duration, OffsetDateTime};

use crate::contacts::{add, draft, row, tag};
use crate::support::{NOW, World, id};

pub(crate) fn renamed(name: &str) -> ContactChange {
    ContactChange {
        name: Some(name.into()),
        ..ContactChange::default()
    }
}

/// Changes the contact as it is stored now.
pub(crate) async fn update(world: &World, id: ContactId, change: &ContactChange, now: OffsetDateTime) -> Contact {
    let contacts = world.contacts();
    let stored = contacts.find(world.account, id).await.unwrap().unwrap();
    let updated = contacts
        .update(world.account, id, Some(stored.version), change, now)
        .await;
    match updated.unwrap() {
        UpdateOutcome::Done(contact) => contact,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn update_writes_fields_and_tags_only_when_given() {
    let world = World::new().await;
    let (a, b) = (
        tag(&world, world.account, "a").await,
        tag(&world, world.account, "b").await,
    );
    let ana = add(&world, &draft("Ana", Some("+5511961234567")), &[a]).await;
    let later = NOW + Duration::SECOND;
    let updated = update(&world, ana.id, &renamed("Ana Maria"), later).await;
    let expected = Contact {
        name: "Ana Maria".into(),
        updated_at: later,
        version: ana.version + 1,
        ..ana.clone()
    };
    assert_eq!(updated, expected);
    let cleared = ContactChange {
        phone: Some(None),
        ..ContactChange::default()
    };
    assert_eq!(update(&world, ana.id, &cleared, later).await.phone, None);
    for tags in [vec![b], vec![]] {
        let tagged = ContactChange {
            tag_ids: Some(tags.clone()),
            ..ContactChange::default()
        };
        let updated = update(&world, ana.id, &tagged, later).await;
        assert_eq!(updated.tags.iter().map(|tag| tag.id).collect::<Vec<_>>(), tags);
    }
}

#[tokio::test]
async fn update_of_an_older_version_writes_nothing() {
    let world = World::new().await;
    let ana = add(&world, &draft("Ana", Some("+5511961234567")), &[]).await;
    let first = update(&world, ana.id, &renamed("Bia"), NOW).await;
    let contacts = world.contacts();
    let change = renamed("Caio");
    let stale = contacts
        .update(world.account, ana.id, Some(ana.version), &change, NOW)
        .await;
    assert_eq!(stale.unwrap(), UpdateOutcome::Stale);
    assert_eq!(contacts.find(world.account, ana.id).await.unwrap(), Some(first.clone()));
    let any = contacts.update(world.account, ana.id, None, &change, NOW).await;
    let expected = Contact {
        name: "Caio".into(),
        version: first.version + 1,
        ..first
    };
    assert_eq!(any.unwrap(), UpdateOutcome::Done(expected));
}

/// Every other writer of what a change of a contact may name.
#[tokio::test]
async fn imports_raise_the_version_of_contacts() {
    let world = World::new().await;
    let ana = add(&world, &draft("Ana", Some("+5511961234567")), &[]).await;
    let rows = [row("Ana Lima", "+5511961234567", &[])];
    let contacts = world.contacts();
    contacts
        .upsert(world.account, &[ContactId(id())], &rows, NOW)
        .await
        .unwrap();
    let upsert = ContactUpsert {
        contact: draft("Ana Maria", Some("+5511961234567")),
        tag_ids: vec![],
        tags: vec![],
    };
    contacts
        .upsert_one(world.account, ContactId(id()), &upsert, NOW)
        .await
        .unwrap();
    let stored = contacts.find(world.account, ana.id).await.unwrap().unwrap();
    assert_eq!((stored.name.as_str(), stored.version), ("Ana Maria", ana.version + 2));
}
