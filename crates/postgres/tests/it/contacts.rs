//! Contacts and tags.

use recado_domain::contacts::{
    BatchOutcome, Contact, ContactChange, ContactDraft, ContactFilter, ContactQuery, ContactStore, ImportRow, Phone,
    Tag, TagStore, Upserted,
};
use recado_domain::shared::{AccountId, ContactId, CursorQuery, SegmentId, StoreError, TagId, UpdateOutcome};
use recado_postgres::PgTags;
use serde_json::{Map, Value, json};
use time::Duration;
use uuid::Uuid;

use crate::contact_updates::{renamed, update};
use crate::support::{DbFixture, NOW, id, position};

pub(crate) fn draft(name: &str, phone: Option<&str>) -> ContactDraft {
    ContactDraft {
        name: name.into(),
        phone: phone.map(|phone| Phone::parse(phone).unwrap()),
        ..ContactDraft::default()
    }
}

pub(crate) fn attributes(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn first_page() -> ContactQuery {
    ContactQuery {
        filter: ContactFilter::default(),
        page: CursorQuery {
            cursor: None,
            limit: 100,
        },
    }
}

pub(crate) async fn tag(fixture: &DbFixture, account: AccountId, name: &str) -> TagId {
    let tag = Tag {
        id: id().into(),
        name: name.into(),
        color: Some("#22c55e".into()),
    };
    PgTags::new(fixture.tenants.clone())
        .insert(account, &tag)
        .await
        .unwrap();
    tag.id
}

pub(crate) async fn add(fixture: &DbFixture, draft: &ContactDraft, tags: &[TagId]) -> Contact {
    fixture
        .contacts()
        .insert(fixture.account, id().into(), draft, tags, NOW)
        .await
        .unwrap()
}

async fn names(fixture: &DbFixture, filter: ContactFilter) -> Vec<String> {
    let query = ContactQuery { filter, ..first_page() };
    let page = fixture.contacts().list(fixture.account, &query).await.unwrap();
    page.data.into_iter().map(|contact| contact.name).collect()
}

#[tokio::test]
async fn contact_is_stored_with_its_tags_by_name() {
    let fixture = DbFixture::new().await;
    let (vip, new) = (
        tag(&fixture, fixture.account, "vip").await,
        tag(&fixture, fixture.account, "New").await,
    );
    let written = ContactDraft {
        email: Some("ana@example.com".into()),
        attributes: attributes(json!({ "coupon": "ANA5", "points": 12, "member": true })),
        ..draft("Ana", Some("+5511961234567"))
    };
    let contact = add(&fixture, &written, &[vip, new, vip]).await;
    assert_eq!(
        contact.tags.iter().map(|tag| tag.name.as_str()).collect::<Vec<_>>(),
        ["New", "vip"]
    );
    assert_eq!((contact.created_at, contact.updated_at), (NOW, NOW));
    assert_eq!(contact.attributes, written.attributes);
    let found = fixture.contacts().find(fixture.account, contact.id).await.unwrap();
    assert_eq!(found, Some(contact.clone()));
    let listed = fixture.contacts().list(fixture.account, &first_page()).await.unwrap();
    assert_eq!(listed.data, [contact]);
}

#[tokio::test]
async fn contact_phone_is_unique_until_deletion() {
    let fixture = DbFixture::new().await;
    let contacts = fixture.contacts();
    let ana = add(&fixture, &draft("Ana", Some("+5511961234567")), &[]).await;
    let bia = add(&fixture, &draft("Bia", Some("+5511961234568")), &[]).await;
    let twice = contacts
        .insert(
            fixture.account,
            id().into(),
            &draft("X", Some("+5511961234567")),
            &[],
            NOW,
        )
        .await;
    assert!(
        matches!(twice, Err(StoreError::Duplicate { field: "phone" })),
        "{twice:?}"
    );
    let moved = ContactChange {
        phone: Some(Phone::parse("+5511961234567")),
        ..ContactChange::default()
    };
    let moved = contacts.update(fixture.account, bia.id, Some(1), &moved, NOW).await;
    assert!(
        matches!(moved, Err(StoreError::Duplicate { field: "phone" })),
        "{moved:?}"
    );
    // Contacts of other accounts and deleted contacts do not occupy the phone.
    let other = fixture.another_account().await;
    contacts
        .insert(other, id().into(), &draft("Y", Some("+5511961234567")), &[], NOW)
        .await
        .unwrap();
    assert!(contacts.delete(fixture.account, ana.id, NOW).await.unwrap().is_done());
    add(&fixture, &draft("Z", Some("+5511961234567")), &[]).await;
}

#[tokio::test]
async fn contact_with_unknown_or_foreign_tags_is_rejected() {
    let fixture = DbFixture::new().await;
    let foreign = tag(&fixture, fixture.another_account().await, "vip").await;
    for wrong in [TagId(id()), foreign] {
        let refused = fixture
            .contacts()
            .insert(fixture.account, id().into(), &draft("X", None), &[wrong], NOW)
            .await;
        assert!(
            matches!(refused, Err(StoreError::UnknownReference { field: "tag_ids" })),
            "{refused:?}"
        );
    }
    let ana = add(&fixture, &draft("Ana", None), &[]).await;
    let tagged = ContactChange {
        tag_ids: Some(vec![foreign]),
        ..renamed("B")
    };
    let refused = fixture
        .contacts()
        .update(fixture.account, ana.id, Some(1), &tagged, NOW)
        .await;
    assert!(
        matches!(refused, Err(StoreError::UnknownReference { field: "tag_ids" })),
        "{refused:?}"
    );
    assert_eq!(names(&fixture, ContactFilter::default()).await, ["Ana"]);
}

#[tokio::test]
async fn contact_deleted_or_foreign_is_not_found() {
    let fixture = DbFixture::new().await;
    let contacts = fixture.contacts();
    let other = fixture.another_account().await;
    let ana = add(&fixture, &draft("Ana", None), &[]).await;
    assert_eq!(contacts.find(other, ana.id).await.unwrap(), None);
    let foreign = contacts
        .update(other, ana.id, Some(ana.version), &renamed("X"), NOW)
        .await;
    assert_eq!(foreign.unwrap(), UpdateOutcome::Missing);
    assert!(!contacts.delete(other, ana.id, NOW).await.unwrap().is_done());
    assert_eq!(contacts.list(other, &first_page()).await.unwrap().data, []);
    assert!(contacts.delete(fixture.account, ana.id, NOW).await.unwrap().is_done());
    assert!(!contacts.delete(fixture.account, ana.id, NOW).await.unwrap().is_done());
    assert_eq!(contacts.find(fixture.account, ana.id).await.unwrap(), None);
    let change = renamed("X");
    let deleted = contacts
        .update(fixture.account, ana.id, Some(ana.version + 1), &change, NOW)
        .await;
    assert_eq!(deleted.unwrap(), UpdateOutcome::Missing);
    assert_eq!(names(&fixture, ContactFilter::default()).await, Vec::<String>::new());
}

#[tokio::test]
async fn contact_pages_are_newest_first() {
    let fixture = DbFixture::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        add(&fixture, &draft(name, None), &[]).await;
    }
    let (mut seen, mut cursor) = (String::new(), None);
    loop {
        let query = ContactQuery {
            page: CursorQuery { cursor, limit: 2 },
            ..first_page()
        };
        let page = fixture.contacts().list(fixture.account, &query).await.unwrap();
        assert_eq!(page.has_more, page.next_cursor.is_some());
        seen.extend(page.data.into_iter().map(|contact| contact.name));
        cursor = position(page.next_cursor);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, "edcba");
}

#[tokio::test]
async fn contact_search_matches_characters_literally() {
    let fixture = DbFixture::new().await;
    let email = ContactDraft {
        email: Some("Bia_X@example.com".into()),
        ..draft("Bia", None)
    };
    add(&fixture, &email, &[]).await;
    add(&fixture, &draft("50% off \\ Ana", Some("+5511961234567")), &[]).await;
    let search = async |text: &str| {
        names(
            &fixture,
            ContactFilter {
                search: Some(text.into()),
                ..ContactFilter::default()
            },
        )
        .await
    };
    assert_eq!(search("bIA").await, ["Bia"]);
    assert_eq!(search("bia_x@").await, ["Bia"]);
    assert_eq!(search("0% o").await, ["50% off \\ Ana"]);
    assert_eq!(search("\\ a").await, ["50% off \\ Ana"]);
    assert_eq!(search("961234567").await, ["50% off \\ Ana"]);
    for number in ["551161234567", "11 6123-4567", "(11) 96123", "+55 (11) 96123-4567"] {
        assert_eq!(search(number).await, ["50% off \\ Ana"], "{number}");
    }
    assert_eq!(search("12 6123-4567").await, Vec::<String>::new());
    assert_eq!(search("_").await, ["Bia"]);
    assert_eq!(search("' OR 1=1 --").await, Vec::<String>::new());
}

#[tokio::test]
async fn search_for_a_whole_number_finds_its_contact_alone() {
    let fixture = DbFixture::new().await;
    let vip = tag(&fixture, fixture.account, "vip").await;
    let ana = add(&fixture, &draft("Ana", Some("+5511961234567")), &[vip]).await;
    add(&fixture, &draft("again +5511961234567", Some("+5511961234568")), &[]).await;
    add(&fixture, &draft("+5511961239999", None), &[]).await;
    let other = fixture.another_account().await;
    fixture.add_contacts_to(other, 1).await;
    let (account, members, rule) = (fixture.account, SegmentId(id()), SegmentId(id()));
    fixture
        .sql(&format!(
            "INSERT INTO segments (account_id, id, name, filters) VALUES
               ('{account}', '{members}', 'm', NULL), ('{account}', '{rule}', 'r', '{{\"has_email\": true}}');
             INSERT INTO segment_members (account_id, segment_id, contact_id) VALUES ('{account}', '{members}', '{}')",
            ana.id
        ))
        .await;
    let found = async |text: &str, tag_id, segment_id| {
        let search = Some(text.into());
        let filter = ContactFilter {
            search,
            tag_id,
            segment_id,
        };
        names(&fixture, filter).await.join(", ")
    };
    for number in ["+5511961234567", "(11) 6123-4567", "11961234567"] {
        assert_eq!(found(number, None, None).await, "Ana", "{number}");
        assert_eq!(found(number, Some(vip), None).await, "Ana", "{number}");
        assert_eq!(found(number, Some(TagId(id())), None).await, "", "{number}");
        assert_eq!(found(number, None, Some(members)).await, "Ana", "{number}");
        assert_eq!(found(number, None, Some(rule)).await, "", "{number}");
    }
    // A number that no contact of the account has, or no longer has, is a text like any other.
    assert_eq!(found("+5511961239999", None, None).await, "+5511961239999");
    assert_eq!(found("+5511900000001", None, None).await, "");
    fixture
        .sql("UPDATE contacts SET deleted_at = now() WHERE name = 'Ana'")
        .await;
    assert_eq!(found("+5511961234567", None, None).await, "again +5511961234567");
}

#[tokio::test]
async fn contact_list_filters_by_tag_or_segment() {
    let fixture = DbFixture::new().await;
    let vip = tag(&fixture, fixture.account, "vip").await;
    let member = add(&fixture, &draft("member", None), &[]).await;
    let coupon = ContactDraft {
        attributes: attributes(json!({ "city": "SP" })),
        ..draft("match", None)
    };
    add(&fixture, &coupon, &[]).await;
    add(&fixture, &draft("bearer", None), &[vip]).await;
    let (account, segment, plain) = (fixture.account, SegmentId(id()), SegmentId(id()));
    fixture
        .sql(&format!(
            "INSERT INTO segments (account_id, id, name, filters) VALUES
               ('{account}', '{segment}', 's', '{{\"attributes\":{{\"city\":\"SP\"}}}}'),
               ('{account}', '{plain}', 'p', NULL);
             INSERT INTO segment_members (account_id, segment_id, contact_id) VALUES
               ('{account}', '{segment}', '{0}'), ('{account}', '{plain}', '{0}')",
            member.id
        ))
        .await;
    let by = |tag_id, segment_id| ContactFilter {
        search: None,
        tag_id,
        segment_id,
    };
    assert_eq!(names(&fixture, by(Some(vip), None)).await, ["bearer"]);
    assert_eq!(names(&fixture, by(None, Some(segment))).await, ["match", "member"]);
    assert_eq!(names(&fixture, by(None, Some(plain))).await, ["member"]);
    assert_eq!(
        names(&fixture, by(None, Some(SegmentId(id())))).await,
        Vec::<String>::new()
    );
    fixture.sql("UPDATE segments SET deleted_at = now()").await;
    assert_eq!(names(&fixture, by(None, Some(segment))).await, Vec::<String>::new());
}

pub(crate) fn row(name: &str, phone: &str, tags: &[&str]) -> ImportRow {
    ImportRow {
        contact: draft(name, Some(phone)),
        tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
    }
}

/// The counts of a batch without refused rows.
pub(crate) fn upserted(outcome: Result<BatchOutcome, StoreError>) -> Upserted {
    match outcome.unwrap() {
        BatchOutcome::Written(upserted) => upserted,
        BatchOutcome::Refused(rows) => panic!("{rows:?}"),
    }
}

#[tokio::test]
async fn contact_import_inserts_and_merges() {
    let fixture = DbFixture::new().await;
    let contacts = fixture.contacts();
    let gold = tag(&fixture, fixture.account, "Gold").await;
    let stored = ContactDraft {
        email: Some("ana@example.com".into()),
        attributes: attributes(json!({ "coupon": "OLD", "points": 12 })),
        ..draft("Ana", Some("+5511961234567"))
    };
    let ana = add(&fixture, &stored, &[gold]).await;
    let mut changed = row("Ana Maria", "+5511961234567", &["vip", "VIP", "gold"]);
    changed.contact.attributes = attributes(json!({ "coupon": "NEW" }));
    let rows = [changed, row("Bia", "+5511961234568", &["vip"])];
    let ids = [ContactId(id()), ContactId(id())];
    let later = NOW + Duration::SECOND;
    let first = upserted(contacts.upsert(fixture.account, &ids, &rows, later).await);
    assert_eq!(
        first,
        Upserted {
            imported: 1,
            updated: 1
        }
    );
    let merged = contacts.find(fixture.account, ana.id).await.unwrap().unwrap();
    assert_eq!(
        (merged.name.as_str(), merged.email.as_deref()),
        ("Ana Maria", Some("ana@example.com"))
    );
    assert_eq!(merged.attributes, attributes(json!({ "coupon": "NEW", "points": 12 })));
    assert_eq!((merged.created_at, merged.updated_at), (NOW, later));
    let tags: Vec<String> = merged.tags.iter().map(|tag| tag.name.to_lowercase()).collect();
    assert_eq!(tags, ["gold", "vip"]);
    let bia = contacts.find(fixture.account, ids[1]).await.unwrap().unwrap();
    assert_eq!(bia.tags.len(), 1);
    let repeated = contacts
        .upsert(fixture.account, &[ContactId(id()), ContactId(id())], &rows, later)
        .await;
    let repeated = upserted(repeated);
    assert_eq!(
        repeated,
        Upserted {
            imported: 0,
            updated: 2
        }
    );
    assert_eq!(fixture.number("SELECT count(*) FROM tags").await, 2);
    assert_eq!(
        upserted(contacts.upsert(fixture.account, &[], &[], later).await),
        Upserted::default()
    );
}

#[tokio::test]
async fn contact_imports_of_the_same_rows_in_parallel_succeed() {
    let fixture = DbFixture::new().await;
    let rows: Vec<ImportRow> = (0..300)
        .map(|n| {
            row(
                &format!("C{n}"),
                &format!("+55119{:08}", 61_000_000 + n),
                &["vip", "new"],
            )
        })
        .collect();
    let imports = (0..4).map(|n| {
        let (contacts, mut rows, account) = (fixture.contacts(), rows.clone(), fixture.account);
        if n % 2 == 1 {
            rows.reverse();
        }
        let ids: Vec<ContactId> = rows.iter().map(|_| ContactId(id())).collect();
        async move { upserted(contacts.upsert(account, &ids, &rows, NOW).await) }
    });
    let done = futures_util::future::join_all(imports).await;
    assert_eq!(done.iter().map(|upserted| upserted.imported).sum::<u64>(), 300);
    assert_eq!(done.iter().map(|upserted| upserted.updated).sum::<u64>(), 900);
    assert_eq!(fixture.number("SELECT count(*) FROM contact_tags").await, 600);
}

#[tokio::test]
async fn tag_name_is_unique_in_any_case_and_deleted_everywhere() {
    let fixture = DbFixture::new().await;
    let tags = PgTags::new(fixture.tenants.clone());
    let vip = tag(&fixture, fixture.account, "VIP").await;
    let twice = tags
        .insert(
            fixture.account,
            &Tag {
                id: id().into(),
                name: "vip".into(),
                color: None,
            },
        )
        .await;
    assert!(
        matches!(twice, Err(StoreError::Duplicate { field: "name" })),
        "{twice:?}"
    );
    let other = fixture.another_account().await;
    tag(&fixture, other, "vip").await;
    let new = tag(&fixture, fixture.account, "new").await;
    let all = CursorQuery { cursor: None, limit: 1 };
    let first = tags.list(fixture.account, &all).await.unwrap();
    assert_eq!((first.data[0].id, first.has_more), (new, true));
    let second = tags
        .list(
            fixture.account,
            &CursorQuery {
                cursor: position(first.next_cursor),
                limit: 1,
            },
        )
        .await
        .unwrap();
    assert_eq!((second.data[0].id, second.has_more), (vip, false));

    let ana = add(&fixture, &draft("Ana", None), &[vip]).await;
    assert!(!tags.delete(other, vip).await.unwrap().is_done());
    assert!(tags.delete(fixture.account, vip).await.unwrap().is_done());
    assert!(!tags.delete(fixture.account, vip).await.unwrap().is_done());
    assert_eq!(
        fixture
            .contacts()
            .find(fixture.account, ana.id)
            .await
            .unwrap()
            .unwrap()
            .tags,
        []
    );
}

#[tokio::test]
async fn contact_user_id_is_unique_until_deletion() {
    let fixture = DbFixture::new().await;
    let contacts = fixture.contacts();
    let with_user_id = |id: &str| ContactDraft {
        wa_user_id: Some(id.into()),
        ..draft("Ana", None)
    };
    let ana = add(&fixture, &with_user_id("BR.1"), &[]).await;
    assert_eq!((ana.phone.as_deref(), ana.wa_user_id.as_deref()), (None, Some("BR.1")));
    let bia = add(&fixture, &with_user_id("BR.2"), &[]).await;
    let taken = contacts
        .insert(fixture.account, id().into(), &with_user_id("BR.1"), &[], NOW)
        .await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "wa_user_id" })),
        "{taken:?}"
    );
    let moved = ContactChange {
        wa_user_id: Some(Some("BR.1".into())),
        ..ContactChange::default()
    };
    let taken = contacts
        .update(fixture.account, bia.id, Some(bia.version), &moved, NOW)
        .await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "wa_user_id" })),
        "{taken:?}"
    );
    let other = fixture.another_account().await;
    contacts
        .insert(other, id().into(), &with_user_id("BR.1"), &[], NOW)
        .await
        .unwrap();
    contacts.delete(fixture.account, ana.id, NOW).await.unwrap();
    let moved = update(&fixture, bia.id, &moved, NOW).await;
    assert_eq!(moved.wa_user_id.as_deref(), Some("BR.1"));
}

#[tokio::test]
async fn contact_opt_out_keeps_its_time_until_opt_in() {
    let fixture = DbFixture::new().await;
    let contacts = fixture.contacts();
    let later = NOW + Duration::SECOND;
    let with_opt_out = |opted_out| ContactDraft {
        opted_out,
        ..draft("Ana", Some("+5511961234567"))
    };
    let ana = add(&fixture, &with_opt_out(Some(true)), &[]).await;
    let first = ana.opted_out_at;
    assert!(first > Some(NOW), "the time is the database's clock");
    let update = async |opted_out| {
        let change = ContactChange {
            opted_out,
            ..ContactChange::default()
        };
        update(&fixture, ana.id, &change, later).await.opted_out_at
    };
    assert_eq!(update(None).await, first);
    assert_eq!(update(Some(true)).await, first);
    assert_eq!(update(Some(false)).await, None);
    assert_eq!(update(None).await, None);
    // An import opts contacts out, but never in.
    let mut rows = [row("Ana", "+5511961234567", &[]), row("Bia", "+5511961234568", &[])];
    let mut first = None;
    for (opted_out, at) in [
        (Some(true), NOW),
        (Some(false), later),
        (None, later),
        (Some(true), later),
    ] {
        rows.iter_mut().for_each(|row| row.contact.opted_out = opted_out);
        let ids = [ContactId(id()), ContactId(id())];
        upserted(contacts.upsert(fixture.account, &ids, &rows, at).await);
        let listed = contacts.list(fixture.account, &first_page()).await.unwrap().data;
        let out: Vec<_> = listed.iter().map(|contact| contact.opted_out_at).collect();
        assert!(out.iter().all(Option::is_some), "{out:?}");
        assert_eq!(first.get_or_insert(out.clone()), &out);
    }
}

/// Regression: a person who had opted out under one contact was written to under the other after its deletion.
#[tokio::test]
async fn opt_out_of_a_deleted_contact_stays_with_the_person() {
    for (opted_out, expected) in [("a", "a b"), ("b", "b"), ("other", "other")] {
        let fixture = DbFixture::new().await;
        let account = fixture.account;
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name, phone, opted_out_at)
                   SELECT '{account}', md5(name)::uuid, name, phone, CASE WHEN name = '{opted_out}' THEN now() END
                   FROM (VALUES ('a', '+1'), ('b', NULL), ('other', '+2')) AS v (name, phone);
                 UPDATE contacts c SET same_person_as = o.id FROM contacts o
                   WHERE (c.name, o.name) IN (('a', 'b'), ('b', 'a'))"
            ))
            .await;
        let a = "SELECT id::text FROM contacts WHERE name = 'a'";
        let a = fixture.text(a).await.unwrap().parse::<Uuid>().unwrap();
        let deleted = fixture.contacts().delete(account, a.into(), NOW).await.unwrap();
        assert!(deleted.is_done());
        let out = "SELECT string_agg(name, ' ' ORDER BY name) FROM contacts WHERE opted_out_at IS NOT NULL";
        assert_eq!(fixture.text(out).await.unwrap(), expected);
    }
}

/// The links of one person's contacts after the deletion of one: each that is left names another one, so that an opt-out
/// still counts for all.
#[tokio::test]
async fn contacts_of_one_person_stay_linked_after_a_deletion() {
    for deleted in ["a", "b", "c", "d"] {
        let fixture = DbFixture::new().await;
        let account = fixture.account;
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name, phone)
                   SELECT '{account}', md5(name)::uuid, name, phone
                   FROM (VALUES ('a', '+1'), ('b', NULL), ('c', NULL), ('d', NULL), ('other', '+2')) AS v (name, phone);
                 UPDATE contacts c SET same_person_as = o.id FROM contacts o
                   WHERE (c.name, o.name) IN (('a', 'b'), ('b', 'a'), ('c', 'a'), ('d', 'a'))"
            ))
            .await;
        let id = |name: &str| format!("SELECT id::text FROM contacts WHERE name = '{name}'");
        let gone = fixture.text(&id(deleted)).await.unwrap().parse::<Uuid>().unwrap();
        assert!(
            fixture
                .contacts()
                .delete(account, gone.into(), NOW)
                .await
                .unwrap()
                .is_done()
        );
        assert_eq!(
            fixture
                .text(&format!(
                    "SELECT same_person_as::text FROM contacts WHERE name = '{deleted}'"
                ))
                .await,
            None,
            "a deleted contact names none"
        );
        let left: Vec<&str> = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| *name != deleted)
            .collect();
        for name in &left {
            let group = format!(
                "SELECT string_agg(o.name, ' ' ORDER BY o.name) FROM contacts c
                 CROSS JOIN LATERAL same_person_contacts(c.account_id, c.same_person_as) p (id)
                 JOIN contacts o ON o.id = p.id WHERE c.name = '{name}'"
            );
            assert_eq!(
                fixture.text(&group).await,
                Some(left.join(" ")),
                "{name} without {deleted}"
            );
        }
        let names_itself = "SELECT count(*) FROM contacts WHERE same_person_as = id";
        assert_eq!(fixture.number(names_itself).await, 0);
    }
}

#[tokio::test]
async fn last_contact_of_a_person_names_none() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name)
               SELECT '{account}', md5(name)::uuid, name FROM (VALUES ('a'), ('b')) AS v (name);
             UPDATE contacts c SET same_person_as = o.id FROM contacts o WHERE c.id <> o.id"
        ))
        .await;
    let gone = fixture
        .text("SELECT id::text FROM contacts WHERE name = 'a'")
        .await
        .unwrap();
    let gone = gone.parse::<Uuid>().unwrap();
    fixture.contacts().delete(account, gone.into(), NOW).await.unwrap();
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM contacts WHERE same_person_as IS NOT NULL")
            .await,
        0
    );
}
