//! Imports of contacts with WhatsApp user ids.

use recado_domain::contacts::{BatchOutcome, ContactStore, ImportRow, RefusedRow, RowRefusal, Upserted};
use recado_domain::shared::ContactId;
use serde_json::json;

use crate::contacts::{attributes, draft, upserted};
use crate::support::{DbFixture, NOW, id};

const ANA: &str = "+5511961234567";
const BIA: &str = "+5511961234568";
const CAIO: &str = "+5511961234569";

fn row(name: &str, phone: Option<&str>, user: Option<&str>) -> ImportRow {
    let mut contact = draft(name, phone);
    contact.wa_user_id = user.map(str::to_owned);
    ImportRow {
        contact,
        tags: vec![name.to_lowercase()],
    }
}

async fn import(fixture: &DbFixture, rows: &[ImportRow]) -> BatchOutcome {
    let ids: Vec<ContactId> = rows.iter().map(|_| ContactId(id())).collect();
    let contacts = fixture.contacts();
    contacts.upsert(fixture.account, &ids, rows, NOW).await.unwrap()
}

/// The contacts by creation: name, phone number, user id and tags.
async fn stored(fixture: &DbFixture) -> Vec<String> {
    let text = fixture
        .text(
            "SELECT string_agg(format('%s %s %s %s', c.name, coalesce(c.phone, '-'), coalesce(c.wa_user_id, '-'),
               (SELECT string_agg(t.name, '+' ORDER BY t.name) FROM contact_tags l
                JOIN tags t ON t.account_id = l.account_id AND t.id = l.tag_id WHERE l.contact_id = c.id)),
               ';' ORDER BY c.id) FROM contacts c",
        )
        .await;
    text.unwrap_or_default().split(';').map(str::to_owned).collect()
}

#[tokio::test]
async fn import_finds_contacts_by_phone_else_by_user_id() {
    let fixture = DbFixture::new().await;
    let first = [
        row("Ana", Some(ANA), None),
        row("Bia", None, Some("BR.2")),
        row("Caio", Some(CAIO), Some("BR.3")),
    ];
    let counts = |imported, updated| BatchOutcome::Written(Upserted { imported, updated });
    assert_eq!(import(&fixture, &first).await, counts(3, 0));
    assert_eq!(import(&fixture, &first).await, counts(0, 3));
    // The contacts get the missing keys.
    let second = [
        row("Bia", Some(BIA), Some("BR.2")),
        row("Ana", Some(ANA), Some("BR.1")),
        row("Caio", None, Some("BR.3")),
    ];
    assert_eq!(import(&fixture, &second).await, counts(0, 3));
    let expected = [
        format!("Ana {ANA} BR.1 ana"),
        format!("Bia {BIA} BR.2 bia"),
        format!("Caio {CAIO} BR.3 caio"),
    ];
    assert_eq!(stored(&fixture).await, expected);
    assert_eq!(
        fixture.number("SELECT sum(contacts)::bigint FROM contact_counts").await,
        3
    );
    // A user id that a number reported identifies the contact, too, and does not replace the one that was seen last.
    fixture
        .sql(
            "INSERT INTO contact_identities (account_id, contact_id, scope, wa_user_id, first_seen_at, last_seen_at)
             SELECT account_id, id, 'portfolio', 'BR.2b', now(), now() FROM contacts WHERE wa_user_id = 'BR.2'",
        )
        .await;
    assert_eq!(import(&fixture, &[row("Bia", None, Some("BR.2b"))]).await, counts(0, 1));
    assert_eq!(stored(&fixture).await, expected);
    // Another account's contact has the same user id, and a deleted contact is created anew.
    let other_account = fixture.another_account().await;
    let theirs = fixture
        .contacts()
        .upsert(other_account, &[ContactId(id())], &first[1..2], NOW)
        .await;
    assert_eq!(upserted(theirs).imported, 1);
    fixture.sql("UPDATE contacts SET deleted_at = now()").await;
    assert_eq!(import(&fixture, &second).await, counts(3, 0));
}

/// One row names the contact's phone number and the other its user id: both are written, in the order of the file.
#[tokio::test]
async fn import_writes_two_rows_of_one_contact_in_order() {
    let fixture = DbFixture::new().await;
    import(&fixture, &[row("Ana", Some(ANA), Some("BR.1"))]).await;
    let mut by_id = row("First", None, Some("BR.1"));
    by_id.contact.attributes = attributes(json!({ "a": 1, "b": 1 }));
    let mut by_phone = row("Last", Some(ANA), None);
    by_phone.contact.attributes = attributes(json!({ "b": 2 }));
    let outcome = import(&fixture, &[by_id, by_phone]).await;
    assert_eq!(
        outcome,
        BatchOutcome::Written(Upserted {
            imported: 0,
            updated: 2
        })
    );
    assert_eq!(stored(&fixture).await, [format!("Last {ANA} BR.1 ana+first+last")]);
    let merged = fixture.text("SELECT attributes::text FROM contacts").await;
    assert_eq!(merged.as_deref(), Some(r#"{"a": 1, "b": 2}"#));
}

#[tokio::test]
async fn import_refuses_user_ids_of_other_contacts() {
    let fixture = DbFixture::new().await;
    let first = [
        row("Ana", Some(ANA), Some("BR.1")),
        row("Bia", Some(BIA), None),
        row("Du", None, Some("BR.4")),
    ];
    import(&fixture, &first).await;
    let before = stored(&fixture).await;
    let rows = [
        row("New", Some(CAIO), Some("BR.5")),
        row("X", Some(BIA), Some("BR.4")),
        row("Y", Some(ANA), Some("BR.9")),
        row("Z", Some("+5511961234560"), Some("BR.1")),
    ];
    let refused = [
        (1, RowRefusal::UserIdTaken),
        (2, RowRefusal::UserIdDiffers),
        (3, RowRefusal::UserIdTaken),
    ];
    let refused = refused.map(|(position, reason)| RefusedRow { position, reason });
    assert_eq!(import(&fixture, &rows).await, BatchOutcome::Refused(refused.to_vec()));
    assert_eq!(stored(&fixture).await, before);
    // Attributes beyond the limit are refused by user id, too.
    let mut wide = row("Du", None, Some("BR.4"));
    wide.contact.attributes = (0..101).map(|n| (format!("a{n}"), json!(n))).collect();
    let reason = RowRefusal::Attributes(attributes(json!({})));
    let refused = vec![RefusedRow { position: 1, reason }];
    assert_eq!(
        import(&fixture, &[row("New", Some(CAIO), None), wide]).await,
        BatchOutcome::Refused(refused)
    );
    assert_eq!(stored(&fixture).await, before);
}

/// Each import writes the contacts in another order and by another key, so that no common order of locks exists.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_imports_by_different_keys_succeed() {
    let fixture = DbFixture::new().await;
    let phone = |n: usize| format!("+55119{:08}", 61_000_000 + n);
    // User ids in the opposite order of phone numbers.
    let user = |n: usize| format!("BR.{:04}", 999 - n);
    let both = |n: usize| row("Both", Some(&phone(n)), Some(&user(n)));
    let by_one_key = |key: usize| -> Vec<ImportRow> {
        let row = |n: usize| match (key + n) % 3 {
            0 => both(n),
            1 => row("Phone", Some(&phone(n)), None),
            _ => row("Id", None, Some(&user(n))),
        };
        (0..300).map(row).chain((300..400).map(both)).collect()
    };
    import(&fixture, &(0..300).map(both).collect::<Vec<_>>()).await;
    let phones = (0..400).map(|n| row("Phone", Some(&phone(n)), None)).collect();
    let batches = [by_one_key(0), phones, by_one_key(1), by_one_key(2)];
    let imports = batches.into_iter().enumerate().map(|(n, mut rows)| {
        let (contacts, account) = (fixture.contacts(), fixture.account);
        if n % 2 == 1 {
            rows.reverse();
        }
        let ids: Vec<ContactId> = rows.iter().map(|_| ContactId(id())).collect();
        async move { upserted(contacts.upsert(account, &ids, &rows, NOW).await) }
    });
    let done = futures_util::future::join_all(imports).await;
    assert_eq!(done.iter().map(|upserted| upserted.imported).sum::<u64>(), 100);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM contacts WHERE phone IS NOT NULL AND wa_user_id IS NOT NULL")
            .await,
        400
    );
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(fixture.number(deadlocks).await, 0);
}
