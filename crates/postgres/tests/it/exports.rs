//! Exports in parts: every record once and newest first, for any size of the parts.

use recado_domain::analytics::{ExportKind, ExportPosition, ExportRecord, ExportStore, Period, Window, Zone};
use recado_postgres::PgExports;

use crate::support::{DbFixture, NOW};

/// All records, read in parts of `size` records.
async fn all(fixture: &DbFixture, kind: ExportKind, size: i64) -> Vec<(ExportPosition, ExportRecord)> {
    let store = PgExports::new(fixture.tenants.clone());
    let window = Window::new(Period::Month, &Zone::UTC, NOW).unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let part = store.part(fixture.account, kind, &window, after, size).await.unwrap();
        assert!(part.len() <= usize::try_from(size).unwrap());
        let Some((last, _)) = part.last() else { return found };
        after = Some(*last);
        found.extend(part);
    }
}

/// Messages of conversations and of three campaigns, two of which started at the same time. Some rows are outside the
/// window.
async fn filled() -> DbFixture {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(9).await;
    let account = fixture.account;
    let template = fixture.stored_template().await;
    fixture
        .sql(&format!(
            "INSERT INTO conversations (account_id, id, contact_id, last_message_at)
             SELECT account_id, id, id, now() FROM contacts;
             INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, created_at)
             SELECT account_id, gen_random_uuid(), id, 'inbound', 'text', 'oi ' || n, 'received',
               '{NOW}'::timestamptz - n * interval '3 days'
             FROM contacts CROSS JOIN generate_series(0, 12) n;
             INSERT INTO campaigns (account_id, id, name, template_id)
             SELECT '{account}', md5('c' || n)::uuid, 'c' || n, '{template}' FROM generate_series(1, 4) n;
             INSERT INTO campaign_counter_slots (account_id, campaign_id, created_at)
             SELECT '{account}', md5('c' || n)::uuid, '{NOW}'::timestamptz - (n / 2) * interval '3 days'
             FROM generate_series(1, 4) n;
             UPDATE campaign_counter_slots SET created_at = '2020-01-01' WHERE campaign_id = md5('c4')::uuid;
             INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, created_at)
             SELECT n.account_id, send_id(n.created_at, n.campaign_id, c.id), n.campaign_id, c.id, 'sent', n.created_at
             FROM campaign_counters n CROSS JOIN contacts c"
        ))
        .await;
    fixture
}

#[tokio::test]
async fn export_of_messages_is_complete_and_newest_first() {
    let fixture = filled().await;
    let whole = all(&fixture, ExportKind::Messages, 1000).await;
    // The window contains ten of thirteen times, and three of four campaigns.
    assert_eq!(whole.len(), 9 * 10 + 9 * 3);
    let times: Vec<_> = whole.iter().map(|(position, _)| position.at).collect();
    assert!(times.is_sorted_by(|a, b| a >= b));
    for size in [1, 2, 7, 26, 27, 28] {
        assert_eq!(all(&fixture, ExportKind::Messages, size).await, whole, "{size}");
    }
    let sent: Vec<_> = whole
        .iter()
        .filter(|(_, record)| matches!(record, ExportRecord::Message { direction, .. } if direction == "outbound"))
        .collect();
    assert_eq!(sent.len(), 27);
    let ExportRecord::Message { kind, status, text, .. } = &sent[0].1 else {
        panic!("{sent:?}")
    };
    assert_eq!(
        (kind.as_str(), status.as_str(), text.as_deref()),
        ("template", "sent", Some("Oi {{1}}"))
    );
}

#[tokio::test]
async fn export_of_contacts_and_campaigns_matches_their_lists() {
    let fixture = filled().await;
    fixture
        .sql(
            "UPDATE contacts SET deleted_at = now() WHERE name = 'Contact 3';
             UPDATE campaigns SET deleted_at = now() WHERE name = 'c2'",
        )
        .await;
    for (kind, count) in [(ExportKind::Contacts, 8), (ExportKind::Campaigns, 3)] {
        let whole = all(&fixture, kind, 1000).await;
        assert_eq!(whole.len(), count);
        for size in [1, 3, 8] {
            assert_eq!(all(&fixture, kind, size).await, whole, "{kind} {size}");
        }
    }
    let mut other = DbFixture::new().await;
    other.account = fixture.account;
    assert_eq!(all(&other, ExportKind::Contacts, 10).await, []);
}
