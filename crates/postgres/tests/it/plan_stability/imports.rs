//! Imports into an account that the planner's statistics do not contain.

use recado_domain::contacts::{BatchOutcome, ContactDraft, ContactStore, ImportRow, MAX_ATTRIBUTES};
use recado_domain::shared::ContactId;
use serde_json::Map;

use super::fixture::PART;
use super::phone;
use crate::contacts::{draft, upserted};
use crate::support::{DbFixture, NOW, id};

pub(super) async fn contact_imports_use_index_lookups(mut fixture: DbFixture) {
    let rows: Vec<_> = (1..=PART)
        .map(|i| ImportRow {
            contact: ContactDraft {
                phone: Some(phone(i)),
                ..draft("Bia", None)
            },
            tags: vec![format!("tag {}", i % 7)],
        })
        .collect();
    let ids: Vec<_> = rows.iter().map(|_| ContactId(id())).collect();
    fixture.count_reads().await;
    let upserted = upserted(fixture.contacts().upsert(fixture.account, &ids, &rows, NOW).await);
    assert_eq!(upserted.updated, 40);
    fixture.assert_looked_up("contacts of an import").await;
    let too_wide = (0..=MAX_ATTRIBUTES)
        .map(|n| (format!("k{n}"), serde_json::Value::Null))
        .collect();
    let wide = |row: &ImportRow| {
        let mut row = row.clone();
        row.contact.attributes = Map::clone(&too_wide);
        row
    };
    let rows: Vec<_> = rows.iter().map(wide).collect();
    fixture.count_reads().await;
    let refused = fixture
        .contacts()
        .upsert(fixture.account, &ids, &rows, NOW)
        .await
        .unwrap();
    assert!(matches!(refused, BatchOutcome::Refused(rows) if rows.len() == PART));
    fixture.assert_looked_up("contacts of a refused import").await;
    let with_user_id = |(i, row): (usize, &ImportRow)| {
        let mut row = row.clone();
        row.contact.attributes.clear();
        row.contact.wa_user_id = Some(format!("BR.import{i}"));
        row
    };
    let rows: Vec<_> = rows.iter().enumerate().map(with_user_id).collect();
    fixture.count_reads().await;
    let written = fixture
        .contacts()
        .upsert(fixture.account, &ids, &rows, NOW)
        .await
        .unwrap();
    assert!(matches!(written, BatchOutcome::Written(_)));
    fixture.assert_looked_up("contacts of an import by user id").await;
}
