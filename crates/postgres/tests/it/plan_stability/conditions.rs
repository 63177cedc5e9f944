//! Every condition of a filter tree: by the contact for a page or a few contacts, and as a set for all contacts.

use recado_domain::campaigns::{Campaign, CampaignStore, SegmentConfig};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore};
use recado_domain::segments::{AudienceFilters, PreviewOutcome, SegmentDraft, SegmentStore};
use recado_domain::shared::{AccountId, TagId};
use recado_postgres::PgSegments;
use serde_json::{Value, json};
use uuid::Uuid;

use super::fixture::{FIRST_PAGE, PART, ROWS};
use crate::support::{DbFixture, NOW, id};

/// Conditions that most contacts of the fixture match, so that the first of a list are enough for a page.
fn conditions(key: Uuid) -> Vec<Value> {
    let none = |condition: Value| json!({ "not": condition });
    let few = json!({ "op": "lt", "value": 1000 });
    let outcomes = ["sent", "delivered", "read", "failed", "clicked", "replied", "not_read"];
    let campaigns = outcomes.into_iter().flat_map(|was| {
        let of = |id: Option<Uuid>| none(json!({ "campaign": { "id": id, "was": was, "within_days": 30 } }));
        [of(None), of(Some(key))]
    });
    let mut conditions: Vec<Value> = campaigns.collect();
    conditions.extend([
        none(json!({ "tag": { "id": key } })),
        json!({ "attribute": { "key": "a", "op": "ne", "value": 1 } }),
        json!({ "created": { "within_days": 30 } }),
        json!({ "last_inbound": { "never": true } }),
        none(json!({ "last_inbound": { "within_days": 30 } })),
        json!({ "campaign": { "was": "not_sent" } }),
        json!({ "campaign": { "id": key, "was": "not_sent", "within_days": 3 } }),
        none(json!({ "orders": {} })),
        json!({ "orders": { "count": few, "within_days": 30 } }),
        json!({ "orders": { "total": few, "product_id": "p", "status": "pending" } }),
        json!({ "metric": { "name": "metric 1", "count": few } }),
        json!({ "metric": { "name": "metric 1", "sum": few, "within_days": 30 } }),
        none(json!({ "rfm": { "segments": ["champions"] } })),
        json!({ "opted_out": false }),
        json!({ "has_phone": true }),
        json!({ "has_email": false }),
    ]);
    conditions
}

fn filters(node: &Value) -> AudienceFilters {
    serde_json::from_value(json!({ "all": [node] })).unwrap()
}

/// Gives orders and RFM segments to the account's contacts. The statistics contain none of them.
async fn add_rows(fixture: &DbFixture, account: AccountId, rows: usize) {
    fixture
        .sql(&format!(
            "UPDATE orders SET contact_id = id, paid_at = now() WHERE account_id = '{account}';
             INSERT INTO contact_rfm SELECT '{account}', key('{account}', i), 1, 1, 1, 'lost'
             FROM generate_series(1, {rows}) i ON CONFLICT DO NOTHING"
        ))
        .await;
}

pub(super) async fn pages_by_condition_read_few_rows(mut fixture: DbFixture) {
    let account = fixture.account;
    add_rows(&fixture, account, ROWS).await;
    for node in conditions(fixture.key(1).await) {
        let draft = SegmentDraft {
            name: "S".into(),
            description: None,
            filters: filters(&node),
        };
        let segments = PgSegments::new(fixture.tenants.clone());
        let segment = segments.insert(account, id().into(), &draft, NOW).await.unwrap();
        drop(segments);
        let query = ContactQuery {
            filter: ContactFilter {
                segment_id: Some(segment.id),
                ..ContactFilter::default()
            },
            page: FIRST_PAGE,
        };
        fixture.count_reads().await;
        let page = fixture.contacts().list(account, &query).await.unwrap();
        assert_eq!(page.data.len(), PART, "{node}");
        fixture.assert_few_of(ROWS, &format!("contacts of {node}")).await;
    }
}

pub(super) async fn audiences_by_tag_and_condition_read_few_rows(mut fixture: DbFixture) {
    let account = fixture.account;
    add_rows(&fixture, account, ROWS).await;
    let tag = TagId(fixture.key(50_000).await);
    fixture
        .sql(&format!(
            "INSERT INTO tags (account_id, id, name) VALUES ('{account}', '{tag}', 'rare');
             INSERT INTO contact_tags SELECT '{account}', key('{account}', i), '{tag}' FROM generate_series(1, {PART}) i"
        ))
        .await;
    for node in conditions(fixture.key(3).await) {
        let campaign = Campaign {
            id: id().into(),
            segment_config: Some(SegmentConfig {
                tag_ids: Some(vec![tag]),
                filters: Some(filters(&node)),
            }),
            ..fixture.draft()
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        fixture.count_reads().await;
        let facts = fixture
            .campaigns()
            .preview_facts(account, campaign.id, 3)
            .await
            .unwrap()
            .unwrap();
        assert!(facts.recipients_by.total() > 0, "{node}");
        fixture.assert_few_of(ROWS, &format!("recipients of {node}")).await;
    }
}

/// A count of all contacts reads each table once at most.
pub(super) async fn counts_by_condition_read_rows_once(mut fixture: DbFixture) {
    let account = fixture.account;
    add_rows(&fixture, account, ROWS).await;
    // For the average account of the statistics, a pass may read the table instead of an index.
    let pass = fixture.number("SELECT count(*) FROM contacts").await;
    let read = "SELECT coalesce(max(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint
                FROM pg_stat_user_tables";
    for node in conditions(fixture.key(1).await) {
        fixture.count_reads().await;
        let segments = PgSegments::new(fixture.tenants.clone());
        let preview = segments.preview(account, &filters(&node), &[], 0).await.unwrap();
        drop(segments);
        assert!(
            matches!(preview, PreviewOutcome::Done(preview) if preview.count > 0),
            "{node}"
        );
        fixture.close().await;
        let rows = fixture.number(read).await;
        assert!(rows <= pass, "{rows} rows of a table instead of {pass}: {node}");
    }
}
