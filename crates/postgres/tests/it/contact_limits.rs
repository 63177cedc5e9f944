//! Size limits of a contact's attributes when imports and upserts merge into it.

use recado_domain::contacts::{
    BatchOutcome, ContactDraft, ContactStore, ContactUpsert, ImportRow, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES,
    RefusedRow, RowRefusal, UpsertOutcome, attribute_bytes,
};
use recado_domain::shared::ContactId;
use serde_json::{Map, Value, json};

use crate::contacts::{add, attributes, draft, row, upserted};
use crate::support::{DbFixture, NOW, id};

const PHONE: &str = "+5511961234567";

fn many_attributes(prefix: &str, count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect()
}

fn draft_with(attributes: Map<String, Value>) -> ContactDraft {
    ContactDraft {
        attributes,
        ..draft("Ana", Some(PHONE))
    }
}

fn import_row(name: &str, phone: &str, attributes: Map<String, Value>) -> ImportRow {
    let mut row = row(name, phone, &["new"]);
    row.contact.attributes = attributes;
    row
}

async fn import(fixture: &DbFixture, rows: &[ImportRow]) -> BatchOutcome {
    let ids: Vec<ContactId> = rows.iter().map(|_| ContactId(id())).collect();
    fixture
        .contacts()
        .upsert(fixture.account, &ids, rows, NOW)
        .await
        .unwrap()
}

async fn merge(fixture: &DbFixture, attributes: Map<String, Value>) -> UpsertOutcome {
    let upsert = ContactUpsert {
        contact: draft_with(attributes),
        tag_ids: vec![],
        tags: vec!["new".into()],
    };
    let contacts = fixture.contacts();
    contacts
        .upsert_one(fixture.account, ContactId(id()), &upsert, NOW)
        .await
        .unwrap()
}

#[tokio::test]
async fn import_beyond_the_attribute_limit_writes_nothing() {
    let fixture = DbFixture::new().await;
    let ana = add(&fixture, &draft_with(many_attributes("a", 60)), &[]).await;
    let rows = [
        import_row("Bia", "+5511961234568", many_attributes("b", 60)),
        import_row("Ana S.", PHONE, many_attributes("b", 60)),
    ];
    let refused = RefusedRow {
        position: 1,
        reason: RowRefusal::Attributes(many_attributes("a", 60)),
    };
    assert_eq!(import(&fixture, &rows).await, BatchOutcome::Refused(vec![refused]));
    assert_eq!(fixture.number("SELECT count(*) FROM contacts").await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM tags").await, 0);
    assert_eq!(
        fixture.number("SELECT sum(contacts)::bigint FROM contact_counts").await,
        1
    );
    let stored = fixture.contacts().find(fixture.account, ana.id).await.unwrap().unwrap();
    assert_eq!(stored, ana);
    // Rows up to the limit fit, and existing attributes do not count twice.
    for prefix_and_count in [("b", MAX_ATTRIBUTES - 60), ("a", 60), ("b", 1)] {
        let rows = [import_row(
            "Ana S.",
            PHONE,
            many_attributes(prefix_and_count.0, prefix_and_count.1),
        )];
        assert!(
            matches!(import(&fixture, &rows).await, BatchOutcome::Written(_)),
            "{prefix_and_count:?}"
        );
    }
    assert_eq!(
        merge(&fixture, many_attributes("c", 1)).await,
        UpsertOutcome::AttributesExceeded
    );
}

#[tokio::test]
async fn oversized_contact_is_merged_but_does_not_grow() {
    let fixture = DbFixture::new().await;
    let large = Map::from_iter([("text".to_owned(), json!("x".repeat(MAX_ATTRIBUTE_BYTES)))]);
    add(&fixture, &draft_with(many_attributes("a", 120)), &[]).await;
    let mut second = draft_with(large);
    second.phone = recado_domain::contacts::Phone::parse("+5511961234568");
    add(&fixture, &second, &[]).await;
    for (phone, added, fits) in [
        (PHONE, json!({}), true),
        (PHONE, json!({ "a1": "y" }), true),
        (PHONE, json!({ "a1": "longer" }), true),
        (PHONE, json!({ "b1": "y" }), false),
        ("+5511961234568", json!({}), true),
        ("+5511961234568", json!({ "text": "y" }), true),
    ] {
        let rows = [import_row("Ana", phone, attributes(added.clone()))];
        let written = matches!(import(&fixture, &rows).await, BatchOutcome::Written(_));
        assert_eq!(written, fits, "{phone} {added}");
    }
    fixture
        .sql(&format!(
            "UPDATE contacts SET attributes = jsonb_build_object('text', repeat('x', {MAX_ATTRIBUTE_BYTES}))"
        ))
        .await;
    let longer = attributes(json!({ "b": 1 }));
    assert_eq!(merge(&fixture, longer).await, UpsertOutcome::AttributesExceeded);
    assert_eq!(merge(&fixture, Map::new()).await, UpsertOutcome::Updated);
}

#[tokio::test]
async fn store_measures_attributes_as_the_domain_does() {
    let fixture = DbFixture::new().await;
    let values = json!({
        "text": "é\n\t\"\\/\u{1}\u{7f}😀", "empty": "", "zero": 0, "negative": -17, "half": 0.5, "float": 1000.0,
        "large": u64::MAX, "small": i64::MIN, "yes": true, "null": null, "ção": "x",
    });
    add(&fixture, &draft_with(attributes(values.clone())), &[]).await;
    let rest = MAX_ATTRIBUTE_BYTES - attribute_bytes(&attributes(values));
    let padding = |bytes: usize| Map::from_iter([("p".to_owned(), json!("x".repeat(bytes - 3)))]);
    assert_eq!(
        merge(&fixture, padding(rest + 1)).await,
        UpsertOutcome::AttributesExceeded
    );
    assert_eq!(merge(&fixture, padding(rest)).await, UpsertOutcome::Updated);
    let rows = [import_row("Ana", PHONE, padding(rest + 1))];
    assert!(matches!(import(&fixture, &rows).await, BatchOutcome::Refused(_)));
    // PostgreSQL prints 1e300 with all digits, but a number counts with at most the domain's 24 characters.
    fixture.sql("UPDATE contacts SET attributes = '{\"n\":1e300}'").await;
    assert_eq!(
        merge(&fixture, padding(MAX_ATTRIBUTE_BYTES - 25)).await,
        UpsertOutcome::Updated
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn attribute_limit_holds_under_concurrent_merges() {
    let fixture = DbFixture::new().await;
    add(&fixture, &draft_with(Map::new()), &[]).await;
    let merges = ["a", "b", "c", "d"].map(|prefix| {
        let rows = [import_row("Ana", PHONE, many_attributes(prefix, 60))];
        let fixture = &fixture;
        async move { import(fixture, &rows).await }
    });
    let outcomes = futures_util::future::join_all(merges).await;
    let written: Vec<_> = outcomes
        .into_iter()
        .filter(|outcome| matches!(outcome, BatchOutcome::Written(_)))
        .collect();
    assert_eq!(written.len(), 1);
    assert_eq!(upserted(Ok(written[0].clone())).updated, 1);
    let size = "SELECT count(*) FROM contacts, jsonb_object_keys(attributes)";
    assert_eq!(fixture.number(size).await, 60);
}
