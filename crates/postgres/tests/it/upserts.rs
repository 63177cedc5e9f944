//! Upserts of one contact by an account's own system.

use std::collections::BTreeSet;

use recado_domain::contacts::{Contact, ContactDraft, ContactStore, ContactUpsert, Tag, TagStore, UpsertOutcome};
use recado_domain::shared::{AccountId, ContactId, StoreError, TagId};
use recado_postgres::PgTags;
use serde_json::json;
use time::Duration;

use crate::contacts::draft;
use crate::support::{DbFixture, NOW, id};

fn untagged(contact: ContactDraft) -> ContactUpsert {
    ContactUpsert {
        contact,
        tag_ids: vec![],
        tags: vec![],
    }
}

/// A contact with a WhatsApp user id and no phone number.
fn without_phone(name: &str, user: &str) -> ContactDraft {
    ContactDraft {
        wa_user_id: Some(user.into()),
        ..draft(name, None)
    }
}

async fn tag(fixture: &DbFixture, account: AccountId, name: &str) -> TagId {
    let tag = Tag {
        id: id().into(),
        name: name.into(),
        color: None,
    };
    PgTags::new(fixture.tenants.clone())
        .insert(account, &tag)
        .await
        .unwrap();
    tag.id
}

/// Returns the id of a new contact, and whether the upsert created it.
async fn upsert(fixture: &DbFixture, upsert: &ContactUpsert) -> Result<(ContactId, bool), StoreError> {
    let new_id = ContactId(id());
    let outcome = fixture
        .contacts()
        .upsert_one(fixture.account, new_id, upsert, NOW)
        .await?;
    Ok((new_id, outcome == UpsertOutcome::Created))
}

async fn found(fixture: &DbFixture, contact: ContactId) -> Contact {
    fixture
        .contacts()
        .find(fixture.account, contact)
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn contact_upsert_matches_phone_or_user_id_and_merges() {
    let fixture = DbFixture::new().await;
    let (vip, phone) = (tag(&fixture, fixture.account, "vip").await, "+5511961234567");
    let first = ContactUpsert {
        contact: ContactDraft {
            attributes: json!({ "city": "SP", "size": 1 }).as_object().unwrap().clone(),
            email: Some("a@loja.example".into()),
            ..without_phone("Ana", "BR.1a")
        },
        tag_ids: vec![vip, vip],
        tags: vec!["VIP".into(), "new".into()],
    };
    let (ana, created) = upsert(&fixture, &first).await.unwrap();
    assert!(created);
    let names = |contact: &Contact| contact.tags.iter().map(|tag| tag.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found(&fixture, ana).await), ["new", "vip"]);
    let second = ContactDraft {
        wa_user_id: Some("BR.1a".into()),
        attributes: json!({ "size": 2 }).as_object().unwrap().clone(),
        opted_out: Some(true),
        ..draft("Ana S.", Some(phone))
    };
    assert!(!upsert(&fixture, &untagged(second)).await.unwrap().1);
    let third = ContactDraft {
        opted_out: Some(false),
        ..draft("Ana Souza", Some(phone))
    };
    assert!(!upsert(&fixture, &untagged(third)).await.unwrap().1);
    let now = found(&fixture, ana).await;
    assert_eq!((now.name.as_str(), now.phone.as_deref()), ("Ana Souza", Some(phone)));
    assert_eq!(
        (now.email.as_deref(), now.wa_user_id.as_deref()),
        (Some("a@loja.example"), Some("BR.1a"))
    );
    assert_eq!(json!(now.attributes), json!({ "city": "SP", "size": 2 }));
    assert_eq!(names(&now), ["new", "vip"]);
    assert!(now.opted_out_at > Some(NOW), "by the database's clock");
    assert_eq!(
        fixture.number("SELECT sum(contacts)::bigint FROM contact_counts").await,
        1
    );
    // If phone number and user id match two contacts, the phone number wins and the user id is a duplicate.
    let bia = untagged(draft("Bia", Some("+5511961234568")));
    let (bia, _) = upsert(&fixture, &bia).await.unwrap();
    let conflicting = ContactDraft {
        wa_user_id: Some("BR.1a".into()),
        ..draft("X", Some("+5511961234568"))
    };
    let taken = upsert(&fixture, &untagged(conflicting)).await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "wa_user_id" })),
        "{taken:?}"
    );
    assert_eq!(found(&fixture, bia).await.name, "Bia");
    // A deleted contact is created anew, and a contact of another account does not match.
    fixture.contacts().delete(fixture.account, ana, NOW).await.unwrap();
    let recreated = untagged(without_phone("Ana", "BR.1a"));
    assert!(upsert(&fixture, &recreated).await.unwrap().1);
    let other_account = fixture.another_account().await;
    let theirs = untagged(draft("Y", Some("+5511961234568")));
    let theirs = fixture
        .contacts()
        .upsert_one(other_account, ContactId(id()), &theirs, NOW)
        .await;
    assert_eq!(theirs.unwrap(), UpsertOutcome::Created);
}

#[tokio::test]
async fn contact_upsert_with_an_unknown_tag_writes_nothing() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    for invalid_tag in [TagId(id()), tag(&fixture, other_account, "theirs").await] {
        let labelled = ContactUpsert {
            tag_ids: vec![invalid_tag],
            tags: vec!["mine".into()],
            ..untagged(draft("Ana", Some("+5511961234567")))
        };
        let refused = upsert(&fixture, &labelled).await;
        assert!(
            matches!(refused, Err(StoreError::UnknownReference { field: "tag_ids" })),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.number("SELECT count(*) FROM contacts").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM tags WHERE name = 'mine'").await, 0);
}

/// Later upserts find the contact that the first one created, and their attributes and tags are merged.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_upserts_of_one_contact_are_merged() {
    let fixture = DbFixture::new().await;
    let calls = (0..16).map(|number| {
        let mut contact = draft("Ana", Some("+5511961234567"));
        contact.attributes.insert(format!("a{number}"), json!(number));
        let upsert = ContactUpsert {
            tags: vec![format!("t{}", number % 4)],
            ..untagged(contact)
        };
        let (contacts, account) = (fixture.contacts(), fixture.account);
        let at = NOW + Duration::seconds(number);
        async move {
            contacts
                .upsert_one(account, ContactId(id()), &upsert, at)
                .await
                .unwrap()
        }
    });
    let outcomes = futures_util::future::join_all(calls).await;
    let created = outcomes.iter().filter(|outcome| **outcome == UpsertOutcome::Created);
    assert_eq!(created.count(), 1);
    let contact: ContactId = ContactId(
        fixture
            .text("SELECT id::text FROM contacts")
            .await
            .unwrap()
            .parse()
            .unwrap(),
    );
    let now = found(&fixture, contact).await;
    assert_eq!((now.attributes.len(), now.tags.len()), (16, 4));
    let names: BTreeSet<&str> = now.tags.iter().map(|tag| tag.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["t0", "t1", "t2", "t3"]));
    assert_eq!(
        fixture.number("SELECT sum(contacts)::bigint FROM contact_counts").await,
        1
    );
}
