//! The partitions of the audit log: what dropping a month removes, and which partitions a page reads.

use recado_domain::audit::{AuditFilter, AuditStore};
use recado_domain::rollups::RollupStore;
use recado_domain::shared::PageQuery;
use recado_postgres::{PgPartitions, PgRollups, RetentionDays};
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, event, id};

async fn total(fixture: &DbFixture, filter: &AuditFilter) -> (usize, i64) {
    let page = PageQuery::new(None, Some(3), 50, 100);
    let page = fixture.audit().page(fixture.account, filter, page).await.unwrap();
    (page.data.len(), page.total)
}

#[tokio::test]
async fn audit_months_are_dropped_with_their_counts() {
    let fixture = DbFixture::new().await;
    fixture
        .append_events(fixture.account, &[event(id()), event(id())])
        .await;
    fixture.relay().await;
    let partitions = PgPartitions::new(fixture.owner.clone());
    let later = OffsetDateTime::now_utc() + Duration::days(365 + 62);
    partitions.drop_expired(&RetentionDays::default(), later).await.unwrap();
    assert_eq!(total(&fixture, &AuditFilter::default()).await, (2, 2), "kept for ever");
    let terms = RetentionDays {
        audit: Some(365),
        ..RetentionDays::default()
    };
    partitions
        .drop_expired(&terms, later - Duration::days(62))
        .await
        .unwrap();
    assert_eq!(
        total(&fixture, &AuditFilter::default()).await,
        (2, 2),
        "within the term"
    );
    partitions.drop_expired(&terms, later).await.unwrap();
    assert_eq!(total(&fixture, &AuditFilter::default()).await, (0, 0));
    fixture.assert_audit_counts().await;
    // The next entry has a partition again.
    let differences = PgRollups::new(fixture.owner.clone())
        .verify(fixture.account)
        .await
        .unwrap();
    assert_eq!(differences, []);
}

#[tokio::test]
async fn audit_page_reads_the_newest_month_first() {
    let mut fixture = DbFixture::new().await;
    fixture
        .sql(&format!(
            "INSERT INTO audit_logs (account_id, id, action, entity_type, created_at)
             SELECT '{}', gen_random_uuid(), 'export', 'x', now() - i * interval '1 day' * 60 FROM generate_series(0, 9) i;
             INSERT INTO audit_logs (account_id, id, action, entity_type)
             SELECT '{0}', gen_random_uuid(), 'export', 'x' FROM generate_series(1, 9);
             INSERT INTO audit_counts VALUES ('{0}', '2026-03-01', 'x', 'export', 100000)",
            fixture.account
        ))
        .await;
    for filter in [
        AuditFilter::default(),
        AuditFilter {
            action: Some("export".into()),
            ..AuditFilter::default()
        },
    ] {
        fixture.count_reads().await;
        assert_eq!(total(&fixture, &filter).await, (3, 100_000));
        assert_eq!(fixture.scanned_partitions("audit_logs").await.len(), 1, "{filter:?}");
    }
}
