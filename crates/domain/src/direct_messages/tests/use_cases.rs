//! The use cases over a mocked store.

use std::sync::{Arc, Mutex};

use time::Date;
use time::macros::date;

use super::*;
use crate::messaging::{ContentInput, HeaderType};
use crate::shared::{FieldErrors, MockIds};

const MONTH: Date = date!(2026 - 03 - 01);

fn messages(store: MockDirectMessageStore) -> DirectMessages {
    let mut ids = MockIds::new();
    ids.expect_next().returning(Uuid::now_v7);
    DirectMessages::new(Arc::new(store), content_files(), Arc::new(ids))
}

/// A store with the facts of the tests, whose inserts end in this order.
fn store(
    inserts: impl IntoIterator<Item = CreationOutcome>,
) -> (MockDirectMessageStore, Arc<Mutex<Vec<CreationPlan>>>) {
    let plans = Arc::new(Mutex::new(Vec::new()));
    let mut store = MockDirectMessageStore::new();
    store.expect_facts().returning(|_, _| Ok(facts()));
    let (seen, inserts) = (
        plans.clone(),
        Mutex::new(inserts.into_iter().collect::<Vec<_>>().into_iter()),
    );
    store.expect_insert().returning(move |_, plan| {
        seen.lock().unwrap().push(plan.clone());
        Ok(inserts.lock().unwrap().next().unwrap())
    });
    (store, plans)
}

fn outcomes(batch: &Batch) -> Vec<String> {
    let text = |outcome: &Outcome| match outcome {
        Outcome::Done(created) if matches!(**created, Created::New(_)) => "new".to_owned(),
        Outcome::Done(_) | Outcome::Repeats(_) => "repeated".to_owned(),
        Outcome::Refused(ItemError::Refused(refusal)) => refusal.reason().to_owned(),
        Outcome::Refused(ItemError::ReferenceTaken(_)) => "taken".to_owned(),
        Outcome::Refused(_) => "invalid".to_owned(),
    };
    batch.0.iter().map(text).collect()
}

#[tokio::test]
async fn concurrent_change_is_decided_again() {
    let (store, plans) = store([CreationOutcome::Changed, CreationOutcome::Inserted]);
    let created = messages(store).create(&tenant(), template_input()).await.unwrap();
    assert!(matches!(created, Created::New(message) if message.status == DirectStatus::Pending));
    assert_eq!(plans.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn endless_changes_end_as_a_conflict() {
    let (store, _) = store(vec![CreationOutcome::Changed; 50]);
    let error = messages(store).create(&tenant(), template_input()).await.unwrap_err();
    assert!(matches!(error, DirectMessageError::Conflict(_)));
}

#[tokio::test]
async fn quota_of_a_batch_goes_to_its_first_items() {
    let exceeded = CreationOutcome::QuotaExceeded { month: MONTH, left: 2 };
    let (store, plans) = store([exceeded, CreationOutcome::Inserted]);
    let bad = Err(FieldErrors::one("to", "x"));
    let items = vec![
        Ok(template_input()),
        bad,
        Ok(template_input()),
        Ok(text_input()),
        Ok(template_input()),
    ];
    let batch = messages(store).create_batch(&tenant(), items).await.unwrap();
    assert_eq!(outcomes(&batch), ["new", "invalid", "new", "new", "month_limit"]);
    let plans = plans.lock().unwrap();
    let quotas: Vec<_> = plans.iter().map(|plan| plan.quota[&MONTH]).collect();
    assert_eq!(quotas, [3, 2]);
    assert_eq!(plans[1].messages.len(), 3);
}

#[tokio::test]
async fn repeated_reference_of_a_batch_belongs_to_its_first_item() {
    let (store, plans) = store([CreationOutcome::Inserted]);
    let item = |text: &str| {
        Ok(MessageInput {
            content: ContentInput::text(text),
            client_reference: Some("r".into()),
            ..text_input()
        })
    };
    let batch = messages(store)
        .create_batch(&tenant(), vec![item("a"), item("a"), item("b")])
        .await
        .unwrap();
    assert_eq!(outcomes(&batch), ["new", "repeated", "taken"]);
    assert_eq!(plans.lock().unwrap()[0].messages.len(), 1);
}

#[tokio::test]
async fn batch_makes_an_unknown_person_once() {
    let mut store = MockDirectMessageStore::new();
    store.expect_facts().returning(|_, _| {
        let mut facts = facts();
        facts.contacts.clear();
        Ok(facts)
    });
    store
        .expect_insert()
        .withf(|_, plan| plan.contacts.len() == 1 && plan.messages.len() == 2)
        .returning(|_, _| Ok(CreationOutcome::Inserted));
    let batch = messages(store)
        .create_batch(&tenant(), vec![Ok(template_input()), Ok(template_input())])
        .await;
    assert_eq!(outcomes(&batch.unwrap()), ["new", "new"]);
}

#[tokio::test]
async fn message_whose_file_is_not_ready_is_refused_by_its_field() {
    let media = crate::messaging::MediaInput {
        kind: Some("image".into()),
        media_id: Some(Uuid::from_u128(6).into()),
        ..crate::messaging::MediaInput::default()
    };
    let input = MessageInput {
        content: ContentInput {
            media: Some(media),
            ..ContentInput::default()
        },
        ..text_input()
    };
    let (store, plans) = store([]);
    let error = messages(store).create(&tenant(), input).await.unwrap_err();
    let DirectMessageError::Invalid(errors) = error else {
        panic!("{error}")
    };
    assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["media.media_id"]);
    assert!(plans.lock().unwrap().is_empty());
}

#[tokio::test]
async fn header_file_must_be_ready_and_of_the_headers_type() {
    let refused = async |header_type: HeaderType| {
        let mut store = MockDirectMessageStore::new();
        store.expect_facts().returning(move |_, _| {
            let mut facts = facts();
            facts
                .templates
                .values_mut()
                .for_each(|template| template.header_type = header_type);
            Ok(facts)
        });
        let mut input = template_input();
        input.template.as_mut().unwrap().header = Some(MessageHeaderInput {
            media_id: Some(Uuid::from_u128(6).into()),
            ..MessageHeaderInput::default()
        });
        match messages(store).create(&tenant(), input).await.unwrap_err() {
            DirectMessageError::Invalid(errors) => errors.0["template.header.media_id"].join(" "),
            error => panic!("{error}"),
        }
    };
    assert_eq!(refused(HeaderType::Image).await, "is pending, not ready");
    assert!(refused(HeaderType::Text).await.contains("is no file"));
}

#[tokio::test]
async fn key_that_triggers_a_template_learns_nothing_about_other_messages() {
    let own = format!("trigger:{}", Uuid::from_u128(3));
    let mut invalid = template_input();
    invalid.content.text = Some("Oi".into());
    invalid.to = None;
    let (store, _) = store([]);
    let refused = messages(store).create(&with_scope(&own), invalid).await.unwrap_err();
    assert!(
        matches!(&refused, DirectMessageError::Forbidden),
        "before the fields: {refused:?}"
    );
    let input = MessageInput {
        client_reference: Some("r1".into()),
        ..template_input()
    };
    let earlier = DirectMessage {
        id: Uuid::from_u128(77).into(),
        ..DirectMessage::pending(NOW, NOW, NOW)
    };
    let store = |earlier: DirectMessage| {
        let stored = (earlier, request(input.clone()).canonical());
        let mut store = MockDirectMessageStore::new();
        store.expect_facts().returning(move |_, _| {
            let mut facts = facts();
            facts.references.insert("r1".into(), stored.clone());
            Ok(facts)
        });
        messages(store)
    };
    for scope in [own.as_str(), "messages:write"] {
        let tenant = with_scope(scope);
        let taken = store(earlier.clone()).create(&tenant, input.clone()).await.unwrap_err();
        assert!(matches!(taken, DirectMessageError::ReferenceTaken(id) if id.0 == Uuid::from_u128(77)));
        let of_this_key = DirectMessage {
            api_key_id: tenant.api_key.as_ref().map(|key| key.id),
            ..earlier.clone()
        };
        let repeated = store(of_this_key).create(&tenant, input.clone()).await.unwrap();
        assert!(
            matches!(repeated, Created::Repeated(message) if message.id.0 == Uuid::from_u128(77)),
            "{scope}"
        );
    }
}
