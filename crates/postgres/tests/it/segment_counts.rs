//! Stored counts of the segments of large accounts.

use recado_domain::segments::{AudienceFilters, MembersAdded, Segment, SegmentChange, SegmentDraft, SegmentStore};
use recado_domain::shared::{ContactId, CursorQuery, SegmentId};
use recado_postgres::{PgSegmentCounts, PgSegments};
use serde_json::json;

use crate::support::{DbFixture, NOW, id};
use crate::wire::Wire;

fn city(name: &str) -> AudienceFilters {
    AudienceFilters {
        attributes: json!({ "city": name }).as_object().cloned(),
        ..AudienceFilters::default()
    }
}

fn store(fixture: &DbFixture) -> PgSegments {
    PgSegments::new(fixture.tenants.clone())
}

/// An account that counts as large, with three contacts in SP and two in RJ.
async fn large_account() -> DbFixture {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contact_counts VALUES ('{account}', '2026-03-01', 100001);
             INSERT INTO contacts (account_id, id, name, attributes)
             SELECT '{account}', md5('c' || n)::uuid, 'C' || n,
               jsonb_build_object('city', CASE WHEN n <= 3 THEN 'SP' ELSE 'RJ' END)
             FROM generate_series(1, 5) n"
        ))
        .await;
    fixture
}

async fn contact(fixture: &DbFixture, number: usize) -> ContactId {
    let contact = fixture.text(&format!("md5('c{number}')::uuid")).await.unwrap();
    ContactId(contact.parse().unwrap())
}

async fn create(fixture: &DbFixture, filters: AudienceFilters) -> Segment {
    let draft = SegmentDraft {
        name: "S".into(),
        description: None,
        filters,
    };
    store(fixture)
        .insert(fixture.account, id().into(), &draft, NOW)
        .await
        .unwrap()
}

async fn members(fixture: &DbFixture, segment: SegmentId) -> i64 {
    let query = CursorQuery {
        cursor: None,
        limit: 10,
    };
    let found = store(fixture).find(fixture.account, segment).await.unwrap().unwrap();
    let listed = store(fixture).list(fixture.account, &query).await.unwrap();
    let listed = listed.data.into_iter().find(|listed| listed.id == segment);
    assert_eq!(listed.map(|listed| listed.members), Some(found.members));
    found.members
}

/// Makes the stored counts older than the greatest age.
async fn age(fixture: &DbFixture) {
    fixture
        .sql("UPDATE segment_counts SET counted_at = counted_at - interval '61 s'")
        .await;
}

async fn move_to(fixture: &DbFixture, number: usize, city: &str) {
    fixture
        .sql(&format!(
            "UPDATE contacts SET attributes = '{{\"city\":\"{city}\"}}' WHERE name = 'C{number}'"
        ))
        .await;
}

#[tokio::test]
async fn large_accounts_have_counts_of_at_most_a_minute() {
    let fixture = large_account().await;
    let segment = create(&fixture, city("SP")).await;
    assert_eq!(segment.members, 3, "a new segment is counted");
    move_to(&fixture, 4, "SP").await;
    assert_eq!(members(&fixture, segment.id).await, 3, "the stored count");
    age(&fixture).await;
    assert_eq!(members(&fixture, segment.id).await, 4);
    // A segment that was created when the account was small has no count.
    fixture.sql("DELETE FROM segment_counts").await;
    move_to(&fixture, 5, "SP").await;
    assert_eq!(members(&fixture, segment.id).await, 5);
    // A small account is counted at every read.
    fixture.sql("UPDATE contact_counts SET contacts = 100000").await;
    move_to(&fixture, 5, "RJ").await;
    assert_eq!(members(&fixture, segment.id).await, 4);
}

#[tokio::test]
async fn member_changes_adjust_a_stored_count() {
    let fixture = large_account().await;
    let segment = create(&fixture, city("SP")).await.id;
    let (matching, other) = (contact(&fixture, 1).await, contact(&fixture, 5).await);
    let add = async |contacts: &[ContactId]| match store(&fixture)
        .add_members(fixture.account, segment, contacts)
        .await
        .unwrap()
    {
        MembersAdded::Done(segment) => segment.members,
        unexpected => panic!("{unexpected:?}"),
    };
    let remove = async |contacts: &[ContactId]| {
        let removed = store(&fixture).remove_members(fixture.account, segment, contacts).await;
        assert!(removed.unwrap().is_done());
    };
    assert_eq!(add(&[matching]).await, 3, "it belongs to the segment by its filters");
    assert_eq!(add(&[matching, other]).await, 4);
    assert_eq!(add(&[other]).await, 4, "it is a member already");
    // The count stays as old as it was, and an addition counts nothing again.
    age(&fixture).await;
    move_to(&fixture, 4, "SP").await;
    assert_eq!(add(&[other]).await, 4);
    remove(&[other]).await;
    assert_eq!(add(&[]).await, 3);
    assert_eq!(members(&fixture, segment).await, 4);
    remove(&[matching]).await;
    assert_eq!(members(&fixture, segment).await, 4);
    let change = SegmentChange {
        filters: Some(city("RJ")),
        ..SegmentChange::default()
    };
    let changed = store(&fixture).update(fixture.account, segment, &change, NOW).await;
    assert_eq!(changed.unwrap().unwrap().members, 1, "new filters are counted at once");
}

#[tokio::test]
async fn count_that_misses_a_member_change_is_not_stored() {
    let fixture = large_account().await;
    let segment = create(&fixture, city("SP")).await.id;
    age(&fixture).await;
    move_to(&fixture, 4, "SP").await;
    let mut client = fixture.db.client().await;
    let change = client.transaction().await.unwrap();
    change
        .batch_execute("UPDATE segment_counts SET contacts = contacts + 10, changes = changes + 1")
        .await
        .unwrap();
    let (segments, account) = (store(&fixture), fixture.account);
    let counting = tokio::spawn(async move { segments.find(account, segment).await.unwrap().unwrap() });
    fixture.blocked(1).await;
    change.commit().await.unwrap();
    assert_eq!(counting.await.unwrap().members, 13);
    assert_eq!(members(&fixture, segment).await, 4, "the next read counts again");
}

#[tokio::test]
async fn old_count_is_returned_while_another_is_made() {
    let fixture = large_account().await;
    let segment = create(&fixture, city("SP")).await.id;
    age(&fixture).await;
    move_to(&fixture, 4, "SP").await;
    let lock = format!("hashtext('recado segment counts'), hashtext('{}')", fixture.account);
    fixture.sql(&format!("SELECT pg_advisory_lock({lock})")).await;
    assert_eq!(members(&fixture, segment).await, 3);
    fixture.sql(&format!("SELECT pg_advisory_unlock({lock})")).await;
    assert_eq!(members(&fixture, segment).await, 4);
}

#[tokio::test]
async fn page_of_a_large_account_is_counted_in_one_statement() {
    let fixture = large_account().await;
    let wire = Wire::to(&fixture.db);
    let segments = PgSegments::new(wire.tenants.clone());
    for number in 0..20 {
        create(&fixture, city(if number % 2 == 0 { "SP" } else { "RJ" })).await;
    }
    let query = CursorQuery {
        cursor: None,
        limit: 20,
    };
    segments.list(fixture.account, &query).await.unwrap();
    wire.take_executed();
    segments.list(fixture.account, &query).await.unwrap();
    assert_eq!(wire.take_executed(), 1, "stored counts");
    age(&fixture).await;
    segments.list(fixture.account, &query).await.unwrap();
    let statements = wire.take_executed();
    assert!(statements <= 5, "{statements}");
}

fn tree(city: &str) -> AudienceFilters {
    let node = json!({ "attribute": { "key": "city", "op": "eq", "value": city } });
    serde_json::from_value(json!({ "all": [node] })).unwrap()
}

#[tokio::test]
async fn trees_of_large_accounts_have_stored_counts() {
    let fixture = large_account().await;
    let segment = create(&fixture, tree("SP")).await;
    assert_eq!(segment.members, 3);
    let segment = segment.id;
    move_to(&fixture, 4, "SP").await;
    assert_eq!(members(&fixture, segment).await, 3, "the stored count");
    let (matching, other) = (contact(&fixture, 1).await, contact(&fixture, 5).await);
    let added = store(&fixture)
        .add_members(fixture.account, segment, &[matching, other])
        .await;
    assert!(matches!(added, Ok(MembersAdded::Done(added)) if added.members == 4));
    age(&fixture).await;
    assert_eq!(members(&fixture, segment).await, 5);
    let change = SegmentChange {
        filters: Some(tree("RJ")),
        ..SegmentChange::default()
    };
    let changed = store(&fixture).update(fixture.account, segment, &change, NOW).await;
    assert_eq!(changed.unwrap().unwrap().members, 2, "the member and the city");
}

#[tokio::test]
async fn worker_counts_again_what_was_read() {
    let fixture = large_account().await;
    let worker = PgSegmentCounts::new(fixture.tenants.clone(), fixture.owner.clone());
    let (plain, with_tree) = (
        create(&fixture, city("SP")).await.id,
        create(&fixture, tree("SP")).await.id,
    );
    let old = "UPDATE segment_counts SET counted_at = counted_at - interval '41 s'";
    fixture.sql(old).await;
    move_to(&fixture, 4, "SP").await;
    assert!(!worker.recount_next().await.unwrap(), "no read since");
    assert_eq!(
        (members(&fixture, plain).await, members(&fixture, with_tree).await),
        (3, 3)
    );
    // Another worker that has claimed them is left to it.
    fixture
        .sql("UPDATE segment_counts SET leased_until = now() + interval '1 minute'")
        .await;
    assert!(!worker.recount_next().await.unwrap());
    fixture
        .sql("UPDATE segment_counts SET leased_until = now() - interval '1 s'")
        .await;
    assert!(worker.recount_next().await.unwrap());
    assert_eq!(
        (members(&fixture, plain).await, members(&fixture, with_tree).await),
        (4, 4)
    );
    assert!(!worker.recount_next().await.unwrap(), "the counts are fresh");
}
