//! Search of contacts with and without the search index, and pages that end with the scan.

use std::collections::BTreeSet;

use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore};
use recado_domain::shared::{AccountId, CursorQuery, SegmentId, TagId};
use recado_postgres::{DatabaseTls, PgContacts, has_contact_search, prepare_contact_search};
use uuid::Uuid;

use crate::support::{DbFixture, id, position};

/// More rows than a page reads before it uses the index.
const CONTACTS: i64 = 2_600;
/// More rows than a page reads without the index.
const MANY_CONTACTS: i64 = 50_010;

/// Inserts contacts named `Contact 1` to `Contact <count>`, the later ones with greater ids.
async fn add_numbered(fixture: &DbFixture, account: AccountId, count: i64) {
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, email)
             SELECT '{account}', (lpad(to_hex(i), 12, '0') || substr(md5('{account}' || i), 13))::uuid,
               'Contact ' || i, '+55119' || lpad(i::text, 8, '0'), 'c' || i || '@example.com'
             FROM generate_series(1, {count}) i"
        ))
        .await;
}

async fn rename(fixture: &DbFixture, account: AccountId, number: i64, fields: &str) {
    fixture
        .sql(&format!(
            "UPDATE contacts SET {fields} WHERE account_id = '{account}' AND name = 'Contact {number}'"
        ))
        .await;
}

fn search(text: &str) -> ContactFilter {
    ContactFilter {
        search: Some(text.into()),
        ..ContactFilter::default()
    }
}

/// Follows the cursor to the end. Returns the names in their order and the number of pages.
async fn walk(contacts: &PgContacts, account: AccountId, filter: &ContactFilter, limit: i64) -> (Vec<String>, usize) {
    let (mut names, mut cursor, mut pages) = (vec![], None, 0);
    loop {
        let query = ContactQuery {
            filter: filter.clone(),
            page: CursorQuery { cursor, limit },
        };
        let page = contacts.list(account, &query).await.unwrap();
        assert!(page.data.len() <= usize::try_from(limit).unwrap());
        assert_eq!(page.has_more, page.next_cursor.is_some());
        names.extend(page.data.into_iter().map(|contact| contact.name));
        pages += 1;
        cursor = position::<Uuid>(page.next_cursor);
        if cursor.is_none() {
            return (names, pages);
        }
    }
}

/// A fixture with the search index, and the store that uses it.
async fn with_index() -> (DbFixture, PgContacts) {
    let fixture = DbFixture::new().await;
    let tls = DatabaseTls::default();
    assert!(!has_contact_search(&fixture.owner).await.unwrap());
    assert!(prepare_contact_search(&fixture.db.url(), &tls).await.unwrap());
    assert!(has_contact_search(&fixture.owner).await.unwrap());
    assert!(
        prepare_contact_search(&fixture.db.url(), &tls).await.unwrap(),
        "an existing index is kept"
    );
    let contacts = fixture.contacts().with_search_index(fixture.owner.clone());
    (fixture, contacts)
}

#[tokio::test]
async fn contact_search_finds_the_same_with_and_without_index() {
    let (fixture, indexed) = with_index().await;
    let account = fixture.account;
    add_numbered(&fixture, account, CONTACTS).await;
    rename(&fixture, account, 7, "name = 'Zélia 50% off_x'").await;
    rename(&fixture, account, 8, "name = 'Ana', phone = '+5511961234567'").await;
    rename(&fixture, account, 9, "name = 'Zélia deleted', deleted_at = now()").await;
    rename(
        &fixture,
        account,
        10,
        "name = 'by mail', email = 'zelia+5511961234567@example.com'",
    )
    .await;
    rename(
        &fixture,
        account,
        11,
        "name = 'split', phone = NULL, email = 'elia 5@example.com'",
    )
    .await;
    rename(&fixture, account, 12, "name = 'Zélia first'").await;
    add_numbered(&fixture, fixture.another_account().await, 20).await;
    let texts = [
        "zélia",
        "ZÉLIA",
        "0% off",
        "f_x",
        "%",
        "_",
        "961234567",
        "11 6123-4567",
        "(11) 96123",
        "+55 (11) 96123-4567",
        "zelia+55",
        "contact 25",
        "c2599@",
        "12",
        "é",
        "Ana\n+5511",
        "no such contact",
        "t 100",
        "11961234567@",
    ];
    for text in texts {
        let plain = walk(&fixture.contacts(), account, &search(text), 50).await.0;
        assert_eq!(walk(&indexed, account, &search(text), 50).await.0, plain, "{text}");
        let distinct: BTreeSet<&String> = plain.iter().collect();
        assert_eq!(distinct.len(), plain.len(), "{text}");
    }
    let found = walk(&indexed, account, &search("zélia"), 50).await;
    // The index answers in one page, although the contacts are beyond the first rows.
    assert_eq!(found, (vec!["Zélia first".to_owned(), "Zélia 50% off_x".to_owned()], 1));
    // By pages of one item.
    assert_eq!(walk(&indexed, account, &search("zélia"), 1).await.0, found.0);
}

#[tokio::test]
async fn indexed_search_obeys_tag_and_segment() {
    let (fixture, indexed) = with_index().await;
    let (account, tag, rule, members) = (fixture.account, TagId(id()), SegmentId(id()), SegmentId(id()));
    add_numbered(&fixture, account, CONTACTS).await;
    for number in 1..=4 {
        rename(&fixture, account, number, &format!("name = 'Zoe {number}'")).await;
    }
    fixture
        .sql(&format!(
            "UPDATE contacts SET attributes = '{{\"city\":\"SP\"}}' WHERE name IN ('Zoe 2', 'Contact 5');
             INSERT INTO tags (account_id, id, name) VALUES ('{account}', '{tag}', 'vip');
             INSERT INTO contact_tags SELECT account_id, id, '{tag}' FROM contacts WHERE name <> 'Zoe 1';
             INSERT INTO segments (account_id, id, name, filters) VALUES
               ('{account}', '{rule}', 'rule', '{{\"attributes\":{{\"city\":\"SP\"}}}}'), ('{account}', '{members}', 'm', NULL);
             INSERT INTO segment_members SELECT account_id, '{rule}', id FROM contacts WHERE name = 'Zoe 3';
             INSERT INTO segment_members SELECT account_id, '{members}', id FROM contacts WHERE name <> 'Zoe 4'"
        ))
        .await;
    let filter = |tag_id, segment_id| ContactFilter {
        tag_id,
        segment_id,
        ..search("zoe")
    };
    for contacts in [fixture.contacts(), indexed] {
        let names = async |tag, segment| walk(&contacts, account, &filter(tag, segment), 10).await.0.join(", ");
        assert_eq!(names(None, None).await, "Zoe 4, Zoe 3, Zoe 2, Zoe 1");
        assert_eq!(names(Some(tag), None).await, "Zoe 4, Zoe 3, Zoe 2");
        assert_eq!(names(None, Some(rule)).await, "Zoe 3, Zoe 2");
        assert_eq!(names(None, Some(members)).await, "Zoe 3, Zoe 2, Zoe 1");
        assert_eq!(names(Some(tag), Some(members)).await, "Zoe 3, Zoe 2");
        assert_eq!(names(None, Some(SegmentId(id()))).await, "");
    }
}

#[tokio::test]
async fn page_without_index_ends_with_the_scan() {
    let fixture = DbFixture::new().await;
    let (account, rule) = (fixture.account, SegmentId(id()));
    add_numbered(&fixture, account, MANY_CONTACTS).await;
    for number in [3, 5] {
        rename(
            &fixture,
            account,
            number,
            "attributes = '{\"city\":\"SP\"}', name = 'Zoe ' || name",
        )
        .await;
    }
    fixture
        .sql(&format!(
            "INSERT INTO segments (account_id, id, name, filters) VALUES
               ('{account}', '{rule}', 'rule', '{{\"attributes\":{{\"city\":\"SP\"}}}}')"
        ))
        .await;
    // A search whose store has no index, although one is asked for.
    let contacts = fixture.contacts().with_search_index(fixture.owner.clone());
    let by_segment = ContactFilter {
        segment_id: Some(rule),
        ..ContactFilter::default()
    };
    for filter in [search("zoe"), by_segment] {
        let query = ContactQuery {
            filter: filter.clone(),
            page: CursorQuery {
                cursor: None,
                limit: 10,
            },
        };
        let first = contacts.list(account, &query).await.unwrap();
        assert_eq!((first.data.len(), first.has_more), (0, true));
        let (names, pages) = walk(&contacts, account, &filter, 10).await;
        assert_eq!((names.join(", ").as_str(), pages), ("Zoe Contact 5, Zoe Contact 3", 2));
    }
    // The row at which the scan ends belongs to the next page.
    rename(&fixture, account, 10, "name = 'Zoe last'").await;
    let names = walk(&contacts, account, &search("zoe"), 10).await.0.join(", ");
    assert_eq!(names, "Zoe last, Zoe Contact 5, Zoe Contact 3");
    rename(&fixture, account, 11, "name = 'Zoe scanned'").await;
    let (names, pages) = walk(&contacts, account, &search("zoe"), 1).await;
    assert_eq!((names.len(), pages), (4, 4));
}
