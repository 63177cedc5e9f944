//! One contact that another system tells of, new or not.

use std::collections::BTreeSet;

use recado_domain::contacts::{Contact, ContactDraft, ContactStore, ContactUpsert, Tag, TagStore, UpsertOutcome};
use recado_domain::shared::{AccountId, ContactId, StoreError, TagId};
use recado_postgres::PgTags;
use serde_json::json;
use time::Duration;

use crate::contacts::draft;
use crate::support::{DbFixture, NOW, id};

fn told(contact: ContactDraft) -> ContactUpsert {
    ContactUpsert {
        contact,
        tag_ids: vec![],
        tags: vec![],
    }
}

fn hidden(name: &str, user: &str) -> ContactDraft {
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

async fn upsert(fixture: &DbFixture, upsert: &ContactUpsert) -> Result<(ContactId, bool), StoreError> {
    let made = ContactId(id());
    let new = fixture
        .contacts()
        .upsert_one(fixture.account, made, upsert, NOW)
        .await?;
    Ok((made, new == UpsertOutcome::Created))
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
async fn a_contact_is_known_by_its_phone_or_its_user_id_and_only_added_to() {
    let fixture = DbFixture::new().await;
    let (vip, phone) = (tag(&fixture, fixture.account, "vip").await, "+5511961234567");
    let first = ContactUpsert {
        contact: ContactDraft {
            attributes: json!({ "city": "SP", "size": 1 }).as_object().unwrap().clone(),
            email: Some("a@loja.example".into()),
            ..hidden("Ana", "BR.1a")
        },
        tag_ids: vec![vip, vip],
        tags: vec!["VIP".into(), "new".into()],
    };
    let (ana, new) = upsert(&fixture, &first).await.unwrap();
    assert!(new);
    let names = |contact: &Contact| contact.tags.iter().map(|tag| tag.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found(&fixture, ana).await), ["new", "vip"]);
    let second = ContactDraft {
        wa_user_id: Some("BR.1a".into()),
        attributes: json!({ "size": 2 }).as_object().unwrap().clone(),
        opted_out: Some(true),
        ..draft("Ana S.", Some(phone))
    };
    assert!(!upsert(&fixture, &told(second)).await.unwrap().1);
    let third = ContactDraft {
        opted_out: Some(false),
        ..draft("Ana Souza", Some(phone))
    };
    assert!(!upsert(&fixture, &told(third)).await.unwrap().1);
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
    // The number decides where number and id are two people's; then the id is taken.
    let (bia, _) = upsert(&fixture, &told(draft("Bia", Some("+5511961234568"))))
        .await
        .unwrap();
    let both = ContactDraft {
        wa_user_id: Some("BR.1a".into()),
        ..draft("X", Some("+5511961234568"))
    };
    let taken = upsert(&fixture, &told(both)).await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "wa_user_id" })),
        "{taken:?}"
    );
    assert_eq!(found(&fixture, bia).await.name, "Bia");
    // Who was deleted is new again, and another account's is nobody.
    fixture.contacts().delete(fixture.account, ana, NOW).await.unwrap();
    assert!(upsert(&fixture, &told(hidden("Ana", "BR.1a"))).await.unwrap().1);
    let other = fixture.another_account().await;
    let theirs = told(draft("Y", Some("+5511961234568")));
    let theirs = fixture
        .contacts()
        .upsert_one(other, ContactId(id()), &theirs, NOW)
        .await;
    assert_eq!(theirs.unwrap(), UpsertOutcome::Created);
}

#[tokio::test]
async fn a_tag_of_nobody_or_of_others_leaves_nothing() {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    for wrong in [TagId(id()), tag(&fixture, other, "theirs").await] {
        let labelled = ContactUpsert {
            tag_ids: vec![wrong],
            tags: vec!["mine".into()],
            ..told(draft("Ana", Some("+5511961234567")))
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

/// Whoever comes second finds what the first one made, and nothing that either said is lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_many_tell_of_one_person_at_once_adds_up() {
    let fixture = DbFixture::new().await;
    let calls = (0..16).map(|number| {
        let mut contact = draft("Ana", Some("+5511961234567"));
        contact.attributes.insert(format!("a{number}"), json!(number));
        let upsert = ContactUpsert {
            tags: vec![format!("t{}", number % 4)],
            ..told(contact)
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
    let new = futures_util::future::join_all(calls).await;
    assert_eq!(new.iter().filter(|new| **new == UpsertOutcome::Created).count(), 1);
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
