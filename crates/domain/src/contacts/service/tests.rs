//! Tests of the use cases of contacts and tags.

use std::sync::Mutex;

use serde_json::json;
use time::macros::datetime;
use uuid::Uuid;

use super::super::{ContactDraft, MockContactStore, MockTagStore, Phone};
use super::*;
use crate::shared::{MockClock, MockIds, Role, StoreError, UpdateOutcome, UserId};

fn contact(draft: &ContactDraft) -> Contact {
    Contact {
        id: ContactId(Uuid::nil()),
        name: draft.name.clone(),
        phone: draft.phone.as_ref().map(ToString::to_string),
        email: draft.email.clone(),
        wa_user_id: draft.wa_user_id.clone(),
        time_zone: draft.time_zone.clone(),
        attributes: draft.attributes.clone(),
        tags: vec![],
        opted_out_at: None,
        created_at: datetime!(2026-03-01 12:00 UTC),
        updated_at: datetime!(2026-03-01 12:00 UTC),
        version: 1,
    }
}

fn apply_change(stored: Contact, change: &ContactChange) -> Contact {
    let change = change.clone();
    let phone = change.phone.map(|phone| phone.map(|phone| phone.to_string()));
    Contact {
        name: change.name.unwrap_or(stored.name),
        phone: phone.unwrap_or(stored.phone),
        email: change.email.unwrap_or(stored.email),
        wa_user_id: change.wa_user_id.unwrap_or(stored.wa_user_id),
        time_zone: change.time_zone.unwrap_or(stored.time_zone),
        attributes: change.attributes.unwrap_or(stored.attributes),
        version: stored.version + 1,
        ..stored
    }
}

fn details(contact: Contact) -> ContactDetails {
    ContactDetails {
        contact,
        first_referral: None,
        user_ids: vec![],
        same_person_as: None,
    }
}

/// A store with one contact and optimistic locking. `concurrent_change` runs before every write, with its number.
fn store_with(stored: Contact, concurrent_change: impl Fn(usize, &mut Contact) + Send + 'static) -> MockContactStore {
    let row = Arc::new(Mutex::new((stored, 0)));
    let mut store = MockContactStore::new();
    let read = row.clone();
    store
        .expect_find()
        .returning(move |_, _| Ok(Some(read.lock().unwrap().0.clone())));
    store.expect_update().returning(move |_, _, version, change, _| {
        let (contact, writes) = &mut *row.lock().unwrap();
        *writes += 1;
        concurrent_change(*writes, contact);
        if version.is_some_and(|version| version != contact.version) {
            return Ok(UpdateOutcome::Stale);
        }
        *contact = apply_change(contact.clone(), change);
        Ok(UpdateOutcome::Done(details(contact.clone())))
    });
    store
}

fn contacts(store: MockContactStore) -> Contacts {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(1));
    Contacts::new(Arc::new(store), Arc::new(clock), Arc::new(ids))
}

fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
}

fn input(name: &str, phone: &str) -> ContactInput {
    ContactInput {
        name: Some(name.into()),
        phone: Some(Some(phone.into())),
        ..ContactInput::default()
    }
}

#[tokio::test]
async fn contact_create_normalizes_fields() {
    let mut store = MockContactStore::new();
    store.expect_insert().returning(|_, _, draft, _, _| Ok(contact(draft)));
    let email = Some(Some(" ana@loja.example ".into()));
    let created = contacts(store)
        .create(
            &tenant(),
            ContactInput {
                email,
                ..input(" Ana  S. ", "11 6123-4567")
            },
        )
        .await;
    let created = created.unwrap();
    assert_eq!(
        (created.name.as_str(), created.phone.as_deref()),
        ("Ana S.", Some("+5511961234567"))
    );
    assert_eq!(created.email.as_deref(), Some("ana@loja.example"));
}

#[tokio::test]
async fn contact_create_reports_all_invalid_fields() {
    let wrong = ContactInput {
        email: Some(Some("ana@".into())),
        attributes: Some(json!({ "a": [1] }).as_object().unwrap().clone()),
        tag_ids: Some(vec![TagId(Uuid::nil()); 51]),
        ..input("", "123")
    };
    let Err(ContactError::Invalid(errors)) = contacts(MockContactStore::new()).create(&tenant(), wrong).await else {
        panic!()
    };
    let fields: Vec<&str> = errors.0.keys().map(String::as_str).collect();
    assert_eq!(fields, ["attributes.a", "email", "name", "phone", "tag_ids"]);
    let missing = contacts(MockContactStore::new())
        .create(&tenant(), ContactInput::default())
        .await;
    let Err(ContactError::Invalid(errors)) = missing else {
        panic!()
    };
    assert_eq!(errors.0["phone"], ["is required, unless wa_user_id is given"]);
}

#[tokio::test]
async fn contact_keeps_its_last_phone_or_user_id() {
    let stored = ContactDraft {
        name: "Ana".into(),
        wa_user_id: Some("BR.1a".into()),
        ..ContactDraft::default()
    };
    let mut store = store_with(contact(&stored), |_, _| {});
    store.expect_insert().returning(|_, _, draft, _, _| Ok(contact(draft)));
    let contacts = contacts(store);
    let with_user_id = |id: &str| ContactInput {
        name: Some("Ana".into()),
        wa_user_id: Some(Some(id.into())),
        ..ContactInput::default()
    };
    for id in ["BR.1a", "US.ENT.Xy9", &format!("BR.{}", "a".repeat(128))] {
        let created = contacts.create(&tenant(), with_user_id(id)).await.unwrap();
        assert_eq!((created.phone, created.wa_user_id.as_deref()), (None, Some(id)));
    }
    for id in [
        "",
        "BR",
        "BR.",
        "br.1",
        "BRA.1",
        "BR.ENT.",
        "BR.a.b",
        "BR.é",
        &format!("BR.{}", "a".repeat(129)),
    ] {
        let Err(ContactError::Invalid(errors)) = contacts.create(&tenant(), with_user_id(id)).await else {
            panic!("{id}")
        };
        assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["wa_user_id"], "{id}");
    }
    let id = ContactId(Uuid::nil());
    let cleared = ContactInput {
        wa_user_id: Some(None),
        ..ContactInput::default()
    };
    let rejected = contacts.update(&tenant(), id, cleared.clone()).await;
    assert!(matches!(rejected, Err(ContactError::Invalid(errors)) if errors.0.contains_key("phone")));
    let with_phone = ContactInput {
        phone: Some(Some("11961234567".into())),
        ..cleared
    };
    let with_phone = contacts.update(&tenant(), id, with_phone).await.unwrap().contact;
    assert_eq!(
        (with_phone.phone.as_deref(), with_phone.wa_user_id),
        (Some("+5511961234567"), None)
    );
}

#[tokio::test]
async fn contact_create_reports_a_duplicate_phone() {
    let mut store = MockContactStore::new();
    store
        .expect_insert()
        .returning(|_, _, _, _, _| Err(StoreError::Duplicate { field: "phone" }));
    let rejected = contacts(store).create(&tenant(), input("Ana", "11961234567")).await;
    assert!(matches!(rejected, Err(ContactError::Invalid(errors)) if errors.0.contains_key("phone")));
}

#[tokio::test]
async fn contact_update_keeps_absent_fields_and_clears_on_null() {
    let stored = ContactDraft {
        name: "Ana".into(),
        phone: Phone::parse("11961234567"),
        email: Some("a@b.example".into()),
        attributes: json!({ "k": 1 }).as_object().unwrap().clone(),
        ..ContactDraft::default()
    };
    let store = store_with(contact(&stored), |_, _| {});
    let change = ContactInput {
        email: Some(None),
        ..ContactInput::default()
    };
    let changed = contacts(store)
        .update(&tenant(), ContactId(Uuid::nil()), change)
        .await
        .unwrap()
        .contact;
    assert_eq!((changed.name.as_str(), changed.email), ("Ana", None));
    assert_eq!(
        (changed.phone.as_deref(), changed.attributes.len()),
        (Some("+5511961234567"), 1)
    );
}

/// A contact with more attributes than a request may set, and with a phone number that no longer parses.
fn oversized_contact() -> Contact {
    let attributes = (0..200).map(|n| (format!("k{n}"), json!(n))).collect();
    let ana = ContactDraft {
        name: "Ana".into(),
        attributes,
        ..ContactDraft::default()
    };
    Contact {
        phone: Some("+0".into()),
        ..contact(&ana)
    }
}

#[tokio::test]
async fn update_of_an_oversized_contact_checks_only_given_fields() {
    for (change, rejected) in [
        (
            ContactInput {
                name: Some("Bia".into()),
                ..ContactInput::default()
            },
            false,
        ),
        (
            ContactInput {
                email: Some(Some("a@b.example".into())),
                ..ContactInput::default()
            },
            false,
        ),
        (
            ContactInput {
                tag_ids: Some(vec![]),
                ..ContactInput::default()
            },
            false,
        ),
        (
            ContactInput {
                attributes: Some(oversized_contact().attributes),
                ..ContactInput::default()
            },
            true,
        ),
    ] {
        let contacts = contacts(store_with(oversized_contact(), |_, _| {}));
        let updated = contacts.update(&tenant(), ContactId(Uuid::nil()), change).await;
        match updated {
            Ok(ContactDetails { contact, .. }) => {
                assert_eq!((contact.phone.as_deref(), contact.attributes.len()), (Some("+0"), 200));
            }
            Err(ContactError::Invalid(errors)) => assert!(rejected && errors.0.contains_key("attributes")),
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn email() -> ContactInput {
    ContactInput {
        email: Some(Some("ana@loja.example".into())),
        ..ContactInput::default()
    }
}

#[tokio::test]
async fn update_beside_a_moved_phone_keeps_the_new_phone() {
    let ana = ContactDraft {
        name: "Ana".into(),
        phone: Phone::parse("11961234567"),
        ..ContactDraft::default()
    };
    let store = store_with(contact(&ana), |write, contact| {
        if write == 1 {
            contact.phone = Some("+5511977777777".into());
            contact.version += 1;
        }
    });
    let updated = contacts(store).update(&tenant(), ContactId(Uuid::nil()), email()).await;
    let updated = updated.unwrap().contact;
    assert_eq!(updated.phone.as_deref(), Some("+5511977777777"));
    assert_eq!(updated.email.as_deref(), Some("ana@loja.example"));
}

#[tokio::test]
async fn update_is_decided_on_the_contact_that_it_changes() {
    let stored = ContactDraft {
        name: "Ana".into(),
        phone: Phone::parse("11961234567"),
        wa_user_id: Some("BR.1a".into()),
        ..ContactDraft::default()
    };
    // Another request clears the user id first: now the phone is the last way to reach the contact.
    let store = store_with(contact(&stored), |write, contact| {
        if write == 1 {
            contact.wa_user_id = None;
            contact.version += 1;
        }
    });
    let cleared = ContactInput {
        phone: Some(None),
        ..ContactInput::default()
    };
    let rejected = contacts(store).update(&tenant(), ContactId(Uuid::nil()), cleared).await;
    assert!(matches!(rejected, Err(ContactError::Invalid(errors)) if errors.0.contains_key("phone")));
}

#[tokio::test]
async fn update_of_an_address_that_loses_every_attempt_is_a_conflict() {
    let contended_store = || store_with(contact(&ContactDraft::default()), |_, contact| contact.version += 1);
    let (id, new_phone) = (ContactId(Uuid::nil()), input("Ana", "11961234567"));
    let rejected = contacts(contended_store()).update(&tenant(), id, new_phone).await;
    assert!(matches!(rejected, Err(ContactError::Conflict(_))));
    // Other changes do not depend on the stored contact.
    let updated = contacts(contended_store())
        .update(&tenant(), id, email())
        .await
        .unwrap();
    assert_eq!(updated.contact.email.as_deref(), Some("ana@loja.example"));
}

#[test]
fn email_validation_accepts_and_rejects_addresses() {
    for good in ["a@b.example", "ana.souza+x@loja.com.br", "ação@exemplo.com"] {
        assert!(text::email(good).is_some(), "{good}");
    }
    for bad in [
        "", "a", "a@", "@b.c", "a@b", "a b@c.d", "a@b..c", "a@@b.c", "a@-b.c", "a@b.c\n",
    ] {
        assert!(text::email(bad).is_none(), "{bad}");
    }
}

#[tokio::test]
async fn tag_create_requires_a_name() {
    let tags = Tags::new(Arc::new(MockTagStore::new()), Arc::new(MockIds::new()));
    let rejected = tags.create(&tenant(), " <b> ", Some("c".repeat(33))).await;
    assert!(matches!(rejected, Err(ContactError::Invalid(errors)) if errors.0.len() == 2));
}
