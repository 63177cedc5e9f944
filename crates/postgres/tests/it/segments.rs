//! Segments: members, counts, and agreement of every reader on the contacts of a segment.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use recado_domain::campaigns::{
    AudienceFilters, Campaign, CampaignRefusal, CampaignStore, RunStartStore as _, StartOutcome,
};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore};
use recado_domain::segments::{MembersAdded, Segment, SegmentChange, SegmentDraft, SegmentStore};
use recado_domain::shared::{AccountId, ContactId, CursorQuery, SegmentId};
use recado_postgres::PgSegments;
use serde_json::{Map, Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::contacts::draft;
use crate::support::{DbFixture, LEASE, NOW, id, position};
use crate::wire::Wire;

fn segments(fixture: &DbFixture) -> PgSegments {
    PgSegments::new(fixture.tenants.clone())
}

fn named(name: &str, filters: AudienceFilters) -> SegmentDraft {
    SegmentDraft {
        name: name.into(),
        description: None,
        filters,
    }
}

fn city(name: &str) -> AudienceFilters {
    AudienceFilters {
        attributes: json!({ "city": name }).as_object().cloned(),
        ..AudienceFilters::default()
    }
}

async fn create_segment(fixture: &DbFixture, draft: &SegmentDraft) -> Segment {
    let segment = segments(fixture).insert(fixture.account, id().into(), draft, NOW).await;
    segment.unwrap()
}

async fn contact(fixture: &DbFixture, account: AccountId, city: &str) -> ContactId {
    let mut draft = draft("Ana", None);
    draft.attributes = json!({ "city": city }).as_object().unwrap().clone();
    let created = fixture.contacts().insert(account, id().into(), &draft, &[], NOW).await;
    created.unwrap().id
}

/// The segment without the time at which it was counted.
fn timeless(segment: Segment) -> Segment {
    Segment {
        members_as_of: NOW,
        ..segment
    }
}

fn cursor_query(cursor: Option<Uuid>, limit: i64) -> CursorQuery {
    CursorQuery { cursor, limit }
}

#[tokio::test]
async fn segment_is_created_updated_and_deleted() {
    let fixture = DbFixture::new().await;
    let store = segments(&fixture);
    let draft = SegmentDraft {
        description: Some("Quem volta".into()),
        ..named("VIP", city("SP"))
    };
    let vip = create_segment(&fixture, &draft).await;
    assert_eq!((vip.name.as_str(), vip.members), ("VIP", 0));
    assert_eq!((&vip.description, &vip.filters), (&draft.description, &draft.filters));
    assert_eq!((vip.created_at, vip.updated_at), (NOW, NOW));
    let found = store.find(fixture.account, vip.id).await.unwrap().unwrap();
    assert!(found.members_as_of >= vip.members_as_of);
    assert_eq!(timeless(found), timeless(vip.clone()));
    let later = NOW + Duration::SECOND;
    let change = SegmentChange {
        description: Some(None),
        ..SegmentChange::default()
    };
    let changed = store.update(fixture.account, vip.id, &change, later).await.unwrap();
    let expected = Segment {
        description: None,
        updated_at: later,
        ..vip.clone()
    };
    assert_eq!(changed.map(timeless), Some(timeless(expected)));
    let change = SegmentChange {
        name: Some("Todos".into()),
        filters: Some(AudienceFilters::default()),
        ..SegmentChange::default()
    };
    let changed = store
        .update(fixture.account, vip.id, &change, later)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (changed.name.as_str(), changed.filters),
        ("Todos", AudienceFilters::default())
    );
    let other_account = fixture.another_account().await;
    assert_eq!(store.find(other_account, vip.id).await.unwrap(), None);
    assert_eq!(store.update(other_account, vip.id, &change, later).await.unwrap(), None);
    assert!(!store.delete(other_account, vip.id, later).await.unwrap().is_done());
    assert!(store.delete(fixture.account, vip.id, later).await.unwrap().is_done());
    assert!(!store.delete(fixture.account, vip.id, later).await.unwrap().is_done());
    assert_eq!(store.find(fixture.account, vip.id).await.unwrap(), None);
    assert_eq!(
        store.update(fixture.account, vip.id, &change, later).await.unwrap(),
        None
    );
    assert_eq!(
        store.list(fixture.account, &cursor_query(None, 10)).await.unwrap().data,
        []
    );
}

#[tokio::test]
async fn segment_members_are_added_all_or_none() {
    let fixture = DbFixture::new().await;
    let store = segments(&fixture);
    let other_account = fixture.another_account().await;
    let (a, b, c) = (
        contact(&fixture, fixture.account, "SP").await,
        contact(&fixture, fixture.account, "RJ").await,
        contact(&fixture, fixture.account, "RJ").await,
    );
    let foreign = contact(&fixture, other_account, "SP").await;
    fixture.contacts().delete(fixture.account, c, NOW).await.unwrap();
    let vip = create_segment(&fixture, &named("VIP", AudienceFilters::default()))
        .await
        .id;
    let add = async |ids: &[ContactId]| store.add_members(fixture.account, vip, ids).await.unwrap();
    let unknown = ContactId(id());
    let refused = add(&[a, foreign, b, unknown, c]).await;
    assert_eq!(refused, MembersAdded::Unknown(vec![1, 3, 4]));
    assert_eq!(fixture.number("SELECT count(*) FROM segment_members").await, 0);
    let members = |added: MembersAdded| match added {
        MembersAdded::Done(segment) => segment.members,
        unexpected => panic!("{unexpected:?}"),
    };
    assert_eq!(members(add(&[b, a, b]).await), 2);
    assert_eq!(members(add(&[a]).await), 2);
    assert_eq!(members(add(&[]).await), 2);
    let missing = store.add_members(fixture.account, SegmentId(id()), &[a]).await.unwrap();
    assert_eq!(missing, MembersAdded::Missing);
    assert_eq!(
        store.add_members(other_account, vip, &[foreign]).await.unwrap(),
        MembersAdded::Missing
    );
    let remove = async |account, ids: &[ContactId]| store.remove_members(account, vip, ids).await.unwrap();
    let count = async || store.find(fixture.account, vip).await.unwrap().unwrap().members;
    assert!(remove(fixture.account, &[a, foreign, unknown, c]).await.is_done());
    assert_eq!(count().await, 1);
    assert!(remove(fixture.account, &[a]).await.is_done());
    assert!(!remove(other_account, &[b]).await.is_done());
    assert_eq!(count().await, 1);
    fixture.contacts().delete(fixture.account, b, NOW).await.unwrap();
    assert_eq!(count().await, 0);
    store.delete(fixture.account, vip, NOW).await.unwrap();
    assert_eq!(add(&[a]).await, MembersAdded::Missing);
    assert!(!remove(fixture.account, &[a]).await.is_done());
}

#[tokio::test]
async fn concurrent_member_changes_keep_the_count() {
    let fixture = DbFixture::new().await;
    let store = segments(&fixture);
    let mut people = Vec::new();
    for _ in 0..40 {
        people.push(contact(&fixture, fixture.account, "SP").await);
    }
    let vip = create_segment(&fixture, &named("VIP", AudienceFilters::default()))
        .await
        .id;
    // As many rounds as the pool has connections, so that none waits for a connection.
    let rounds = (0..4_usize).map(|round| {
        let mut ids = people.clone();
        ids.rotate_left(round * 10);
        if round % 2 == 1 {
            ids.reverse();
        }
        let store = &store;
        async move {
            store.add_members(fixture.account, vip, &ids).await.unwrap();
            if round == 0 {
                store.remove_members(fixture.account, vip, &ids).await.unwrap();
            }
        }
    });
    futures_util::future::join_all(rounds).await;
    let after = store.find(fixture.account, vip).await.unwrap().unwrap().members;
    assert_eq!(after, fixture.number("SELECT count(*) FROM segment_members").await);
    assert!([0, 40].contains(&after), "{after}");
}

#[tokio::test]
async fn segment_list_is_paged_by_cursor() {
    let fixture = DbFixture::new().await;
    let store = segments(&fixture);
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(
            create_segment(&fixture, &named(&format!("S{number}"), AudienceFilters::default()))
                .await
                .id,
        );
    }
    ids.reverse();
    let first = store.list(fixture.account, &cursor_query(None, 3)).await.unwrap();
    let second = store
        .list(fixture.account, &cursor_query(position(first.next_cursor), 3))
        .await
        .unwrap();
    let walked: Vec<SegmentId> = first
        .data
        .iter()
        .chain(&second.data)
        .map(|segment| segment.id)
        .collect();
    assert_eq!((walked, first.has_more, second.has_more), (ids, true, false));
    let other_account = fixture.another_account().await;
    assert_eq!(
        store.list(other_account, &cursor_query(None, 3)).await.unwrap().data,
        []
    );
}

#[tokio::test]
async fn segment_page_is_one_statement() {
    let fixture = DbFixture::new().await;
    let wire = Wire::to(&fixture.db);
    let store = PgSegments::new(wire.tenants.clone());
    let contact = contact(&fixture, fixture.account, "SP").await;
    for number in 0..100 {
        let filters = if number % 2 == 0 {
            city("SP")
        } else {
            AudienceFilters::default()
        };
        let segment = create_segment(&fixture, &named(&format!("S{number}"), filters)).await;
        segments(&fixture)
            .add_members(fixture.account, segment.id, &[contact])
            .await
            .unwrap();
    }
    // The first read also sends the setup statements of a new connection.
    store.list(fixture.account, &cursor_query(None, 1)).await.unwrap();
    for size in [1, 100] {
        wire.take_executed();
        let page = store.list(fixture.account, &cursor_query(None, size)).await.unwrap();
        assert_eq!(page.data.len(), usize::try_from(size).unwrap());
        assert!(page.data.iter().all(|segment| segment.members == 1));
        assert_eq!(wire.take_executed(), 1, "a page of {size}");
    }
}

/// A random contact.
#[derive(Clone, Debug)]
struct Person {
    days: i64,
    email: Option<&'static str>,
    city: Option<&'static str>,
    points: Option<i64>,
    deleted: bool,
    opted_out: bool,
    phone: bool,
}

fn person() -> impl Strategy<Value = Person> {
    let email = prop::sample::select(vec![None, Some(""), Some("a@b.example")]);
    let city = prop::sample::select(vec![None, Some("SP"), Some("RJ"), Some("")]);
    let points = prop::option::of(0..3_i64);
    (
        0..6_i64,
        email,
        city,
        points,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(days, email, city, points, deleted, opted_out, phone)| Person {
            days,
            email,
            city,
            points,
            deleted,
            opted_out,
            phone,
        })
}

fn day(days: i64) -> OffsetDateTime {
    datetime!(2026-03-01 0:00 UTC) + Duration::days(days)
}

/// Random filters, and the indexes of the members among `people` contacts.
fn segment(people: usize) -> impl Strategy<Value = (AudienceFilters, Vec<usize>)> {
    let attributes = prop_oneof![
        3 => Just(None),
        1 => prop::sample::select(vec![
            json!({ "city": "SP" }), json!({ "city": "" }), json!({ "points": 1 }), json!({ "points": "1" }),
            json!({ "city": "RJ", "points": 2 }), json!({ "city": null }), json!({}),
        ]).prop_map(Some),
    ];
    let bound = || prop::option::weighted(0.3, (0..6_i64).prop_map(day));
    let filters = (bound(), bound(), prop::option::weighted(0.3, any::<bool>()), attributes);
    (filters, prop::collection::vec(0..people, 0..4)).prop_map(|((after, before, email, attributes), members)| {
        let filters = AudienceFilters {
            created_after: after,
            created_before: before,
            has_email: email,
            attributes: attributes.and_then(|value: Value| value.as_object().cloned()),
            ..AudienceFilters::default()
        };
        (filters, members)
    })
}

/// Evaluates the filters as the documentation describes them.
fn matches_filters(person: &Person, filters: &AudienceFilters) -> bool {
    let attributes = filters.attributes.clone().unwrap_or_default();
    let none = Map::new() == attributes
        && (filters.created_after, filters.created_before, filters.has_email) == (None, None, None);
    let has = |key: &str, value: &Value| match key {
        "city" => person.city.map(|city| json!(city)).as_ref() == Some(value),
        _ => person.points.map(|points| json!(points)).as_ref() == Some(value),
    };
    !none
        && filters.created_after.is_none_or(|after| day(person.days) >= after)
        && filters.created_before.is_none_or(|before| day(person.days) < before)
        && filters
            .has_email
            .is_none_or(|has_email| person.email.is_some_and(|email| !email.is_empty()) == has_email)
        && attributes.iter().all(|(key, value)| has(key, value))
}

async fn stored(fixture: &DbFixture, people: &[Person]) -> Vec<ContactId> {
    let mut ids = Vec::new();
    for (number, person) in people.iter().enumerate() {
        let (contact, mut attributes) = (ContactId(id()), Map::new());
        attributes.extend(person.city.map(|city| ("city".to_owned(), json!(city))));
        attributes.extend(person.points.map(|points| ("points".to_owned(), json!(points))));
        let statement = format!(
            "INSERT INTO contacts (account_id, id, name, phone, email, attributes, created_at, deleted_at, opted_out_at)
             VALUES ('{}', '{contact}', 'C', {}, {}, '{}', '{}', {}, {})",
            fixture.account,
            if person.phone { format!("'+55119{number:08}'") } else { "NULL".into() },
            person.email.map_or("NULL".into(), |email| format!("'{email}'")),
            Value::Object(attributes),
            day(person.days),
            if person.deleted { "now()" } else { "NULL" },
            if person.opted_out { "now()" } else { "NULL" },
        );
        fixture.sql(&statement).await;
        ids.push(contact);
    }
    ids
}

/// Starts a campaign for the segment and returns the contacts of its sends.
async fn frozen_audience(fixture: &DbFixture, segment: SegmentId) -> BTreeSet<ContactId> {
    let campaign = Campaign {
        template_id: Some(fixture.stored_template().await),
        segment_id: Some(segment),
        ..fixture.draft()
    };
    fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    let preview_facts = fixture
        .campaigns()
        .preview_facts(fixture.account, campaign.id, 100)
        .await;
    let preview_facts = preview_facts.unwrap().unwrap();
    let started = fixture
        .runs()
        .start(&fixture.start_of(&campaign), None, LEASE)
        .await
        .unwrap();
    assert!(
        matches!(
            started,
            StartOutcome::Started { .. } | StartOutcome::Refused(CampaignRefusal::NoRecipients)
        ),
        "{started:?}"
    );
    let query = format!(
        "SELECT contact_id::text FROM campaign_sends WHERE campaign_id = '{}'",
        campaign.id
    );
    let rows = fixture.client.query(&query, &[]).await.unwrap();
    let frozen: BTreeSet<ContactId> = rows
        .into_iter()
        .map(|row| ContactId(row.get::<_, &str>(0).parse().unwrap()))
        .collect();
    // The preview counts and lists the same contacts, ordered by id.
    let previewed: Vec<ContactId> = preview_facts.first.iter().map(|contact| contact.id).collect();
    assert_eq!(previewed, frozen.iter().copied().collect::<Vec<_>>());
    assert_eq!(
        preview_facts.recipients_by.total(),
        i64::try_from(frozen.len()).unwrap()
    );
    frozen
}

async fn compare(people: Vec<Person>, definitions: Vec<(AudienceFilters, Vec<usize>)>) {
    let fixture = DbFixture::new().await;
    // Contacts of another account MUST NOT be counted.
    fixture.add_contacts_to(fixture.another_account().await, 3).await;
    let ids = stored(&fixture, &people).await;
    for (filters, members) in &definitions {
        let segment = create_segment(&fixture, &named("S", filters.clone())).await.id;
        for member in members {
            let (account, contact) = (fixture.account, ids[*member]);
            let values = format!("('{account}', '{segment}', '{contact}')");
            fixture
                .sql(&format!(
                    "INSERT INTO segment_members VALUES {values} ON CONFLICT DO NOTHING"
                ))
                .await;
        }
    }
    let page = segments(&fixture)
        .list(fixture.account, &cursor_query(None, 100))
        .await
        .unwrap()
        .data;
    assert_eq!(page.len(), definitions.len());
    for (segment, (filters, members)) in page.iter().rev().zip(&definitions) {
        let belongs =
            |at: &usize| !people[*at].deleted && (members.contains(at) || matches_filters(&people[*at], filters));
        let expected: BTreeSet<ContactId> = (0..people.len()).filter(belongs).map(|at| ids[at]).collect();
        assert_eq!(
            segment.members,
            i64::try_from(expected.len()).unwrap(),
            "{filters:?} {members:?}"
        );
        let found = segments(&fixture).find(fixture.account, segment.id).await.unwrap();
        assert_eq!(found.map(timeless), Some(timeless(segment.clone())));
        let query = ContactQuery {
            filter: ContactFilter {
                segment_id: Some(segment.id),
                ..ContactFilter::default()
            },
            page: cursor_query(None, 100),
        };
        let listed = fixture.contacts().list(fixture.account, &query).await.unwrap().data;
        assert_eq!(
            listed.iter().map(|contact| contact.id).collect::<BTreeSet<_>>(),
            expected
        );
        let can_be_sent = |at: &usize| people[*at].phone && !people[*at].opted_out;
        let sent: BTreeSet<ContactId> = (0..people.len())
            .filter(belongs)
            .filter(can_be_sent)
            .map(|at| ids[at])
            .collect();
        assert_eq!(
            frozen_audience(&fixture, segment.id).await,
            sent,
            "{filters:?} {members:?}"
        );
    }
}

/// A segment's member count, contact list, campaign preview and campaign audience are the same set of contacts.
#[tokio::test(flavor = "multi_thread")]
async fn segment_count_list_preview_and_audience_agree() {
    let mut runner = TestRunner::new(Config::with_cases(1));
    for _ in 0..6 {
        let strategy = prop::collection::vec(person(), 1..30)
            .prop_flat_map(|people| (prop::collection::vec(segment(people.len()), 1..8), Just(people)));
        let (definitions, people) = strategy.new_tree(&mut runner).unwrap().current();
        compare(people, definitions).await;
    }
}
