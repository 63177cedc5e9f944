//! How large a contact may grow by what is merged into it.

use recado_domain::contacts::{
    BatchOutcome, ContactDraft, ContactStore, ContactUpsert, ImportRow, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES,
    RefusedRow, UpsertOutcome, attribute_bytes,
};
use recado_domain::shared::ContactId;
use serde_json::{Map, Value, json};

use crate::contacts::{add, attributes, draft, row, upserted};
use crate::support::{NOW, World, id};

const PHONE: &str = "+5511961234567";

fn wide(prefix: &str, count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect()
}

fn with(attributes: Map<String, Value>) -> ContactDraft {
    ContactDraft {
        attributes,
        ..draft("Ana", Some(PHONE))
    }
}

fn line(name: &str, phone: &str, attributes: Map<String, Value>) -> ImportRow {
    let mut row = row(name, phone, &["new"]);
    row.contact.attributes = attributes;
    row
}

async fn import(world: &World, rows: &[ImportRow]) -> BatchOutcome {
    let ids: Vec<ContactId> = rows.iter().map(|_| ContactId(id())).collect();
    world.contacts().upsert(world.account, &ids, rows, NOW).await.unwrap()
}

async fn merge(world: &World, attributes: Map<String, Value>) -> UpsertOutcome {
    let upsert = ContactUpsert {
        contact: with(attributes),
        tag_ids: vec![],
        tags: vec!["new".into()],
    };
    let contacts = world.contacts();
    contacts
        .upsert_one(world.account, ContactId(id()), &upsert, NOW)
        .await
        .unwrap()
}

#[tokio::test]
async fn batch_with_a_row_beyond_the_limits_names_it_and_writes_nothing() {
    let world = World::new().await;
    let ana = add(&world, &with(wide("a", 60)), &[]).await;
    let rows = [
        line("Bia", "+5511961234568", wide("b", 60)),
        line("Ana S.", PHONE, wide("b", 60)),
    ];
    let refused = RefusedRow {
        position: 1,
        attributes: wide("a", 60),
    };
    assert_eq!(import(&world, &rows).await, BatchOutcome::Refused(vec![refused]));
    assert_eq!(world.number("SELECT count(*) FROM contacts").await, 1);
    assert_eq!(world.number("SELECT count(*) FROM tags").await, 0);
    assert_eq!(
        world.number("SELECT sum(contacts)::bigint FROM contact_counts").await,
        1
    );
    let stored = world.contacts().find(world.account, ana.id).await.unwrap().unwrap();
    assert_eq!(stored, ana);
    // Up to the limit it fits, and what is there already adds nothing.
    for prefix_and_count in [("b", MAX_ATTRIBUTES - 60), ("a", 60), ("b", 1)] {
        let rows = [line("Ana S.", PHONE, wide(prefix_and_count.0, prefix_and_count.1))];
        assert!(
            matches!(import(&world, &rows).await, BatchOutcome::Written(_)),
            "{prefix_and_count:?}"
        );
    }
    assert_eq!(merge(&world, wide("c", 1)).await, UpsertOutcome::AttributesExceeded);
}

#[tokio::test]
async fn contact_that_is_too_large_already_is_merged_but_does_not_grow() {
    let world = World::new().await;
    let large = Map::from_iter([("text".to_owned(), json!("x".repeat(MAX_ATTRIBUTE_BYTES)))]);
    add(&world, &with(wide("a", 120)), &[]).await;
    let mut second = with(large);
    second.phone = recado_domain::contacts::Phone::parse("+5511961234568");
    add(&world, &second, &[]).await;
    for (phone, added, fits) in [
        (PHONE, json!({}), true),
        (PHONE, json!({ "a1": "y" }), true),
        (PHONE, json!({ "a1": "longer" }), true),
        (PHONE, json!({ "b1": "y" }), false),
        ("+5511961234568", json!({}), true),
        ("+5511961234568", json!({ "text": "y" }), true),
    ] {
        let rows = [line("Ana", phone, attributes(added.clone()))];
        let written = matches!(import(&world, &rows).await, BatchOutcome::Written(_));
        assert_eq!(written, fits, "{phone} {added}");
    }
    world
        .sql(&format!(
            "UPDATE contacts SET attributes = jsonb_build_object('text', repeat('x', {MAX_ATTRIBUTE_BYTES}))"
        ))
        .await;
    let longer = attributes(json!({ "b": 1 }));
    assert_eq!(merge(&world, longer).await, UpsertOutcome::AttributesExceeded);
    assert_eq!(merge(&world, Map::new()).await, UpsertOutcome::Updated);
}

/// The store measures as the domain does: to the byte.
#[tokio::test]
async fn store_measures_attributes_as_the_domain_does() {
    let world = World::new().await;
    let values = json!({
        "text": "é\n\t\"\\/\u{1}\u{7f}😀", "empty": "", "zero": 0, "negative": -17, "half": 0.5, "float": 1000.0,
        "large": u64::MAX, "small": i64::MIN, "yes": true, "null": null, "ção": "x",
    });
    add(&world, &with(attributes(values.clone())), &[]).await;
    let rest = MAX_ATTRIBUTE_BYTES - attribute_bytes(&attributes(values));
    let padding = |bytes: usize| Map::from_iter([("p".to_owned(), json!("x".repeat(bytes - 3)))]);
    assert_eq!(
        merge(&world, padding(rest + 1)).await,
        UpsertOutcome::AttributesExceeded
    );
    assert_eq!(merge(&world, padding(rest)).await, UpsertOutcome::Updated);
    let rows = [line("Ana", PHONE, padding(rest + 1))];
    assert!(matches!(import(&world, &rows).await, BatchOutcome::Refused(_)));
    // Numbers that PostgreSQL writes out count as what they are at most.
    world.sql("UPDATE contacts SET attributes = '{\"n\":1e300}'").await;
    assert_eq!(
        merge(&world, padding(MAX_ATTRIBUTE_BYTES - 25)).await,
        UpsertOutcome::Updated
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn merges_at_once_do_not_exceed_the_limit_together() {
    let world = World::new().await;
    add(&world, &with(Map::new()), &[]).await;
    let merges = ["a", "b", "c", "d"].map(|prefix| {
        let rows = [line("Ana", PHONE, wide(prefix, 60))];
        let world = &world;
        async move { import(world, &rows).await }
    });
    let outcomes = futures_util::future::join_all(merges).await;
    let written: Vec<_> = outcomes
        .into_iter()
        .filter(|outcome| matches!(outcome, BatchOutcome::Written(_)))
        .collect();
    assert_eq!(written.len(), 1);
    assert_eq!(upserted(Ok(written[0].clone())).updated, 1);
    let size = "SELECT count(*) FROM contacts, jsonb_object_keys(attributes)";
    assert_eq!(world.number(size).await, 60);
}
