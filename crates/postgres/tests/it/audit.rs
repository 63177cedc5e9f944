//! Reading the audit log.

use std::time::{Duration, Instant};

use recado_domain::audit::{AuditFilter, AuditLog, AuditStore};
use recado_domain::shared::{AccountId, Page, PageQuery, StoreError};
use recado_testkit::DEADLINE;

use crate::support::{DbFixture, NOW, event, id};

async fn read(fixture: &DbFixture, account: AccountId, filter: &AuditFilter, page: i64, limit: i64) -> Page<AuditLog> {
    let page = PageQuery::new(Some(page), Some(limit), 50, 100);
    fixture.audit().page(account, filter, page).await.unwrap()
}

async fn all(fixture: &DbFixture, account: AccountId) -> Page<AuditLog> {
    read(fixture, account, &AuditFilter::default(), 1, 100).await
}

fn only(entity_type: Option<&str>, action: Option<&str>) -> AuditFilter {
    AuditFilter {
        entity_type: entity_type.map(Into::into),
        action: action.map(Into::into),
    }
}

/// Inserts `count` entries of one type and action without the relay: one for each second before 12:00 UTC, the oldest
/// first, as the relay does.
async fn insert_entries(fixture: &DbFixture, account: AccountId, entity_type: &str, action: &str, count: i64) {
    fixture
        .sql(&format!(
            "INSERT INTO audit_logs (account_id, id, action, entity_type, created_at)
             SELECT '{account}', gen_random_uuid(), '{action}', '{entity_type}', '2026-03-01 12:00Z'::timestamptz - i * interval '1 second'
             FROM generate_series({count}, 1, -1) i"
        ))
        .await;
}

#[tokio::test]
async fn audit_entry_is_read_as_written() {
    let fixture = DbFixture::new().await;
    let entity = id();
    fixture
        .sql(&format!(
            "INSERT INTO audit_logs VALUES ('{0}', '{entity}', '{1}', 'update', 'campaign', '{entity}',
               '{{\"a\": 1}}', '10.0.0.1', '2026-03-01 12:00:00.123456Z')",
            fixture.account, fixture.user
        ))
        .await;
    let page = all(&fixture, fixture.account).await;
    let expected = AuditLog {
        id: entity.into(),
        account_id: fixture.account,
        user_id: Some(fixture.user),
        action: "update".into(),
        entity_type: "campaign".into(),
        entity_id: Some(entity),
        changes: Some(serde_json::json!({ "a": 1 })),
        ip_address: Some("10.0.0.1".into()),
        created_at: NOW,
    };
    assert_eq!((page.data, page.total), (vec![expected], 1));
}

#[tokio::test]
async fn audit_pages_hold_every_entry_once_newest_first() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    insert_entries(&fixture, fixture.account, "campaign", "create", 25).await;
    // The same times again: the id decides the order.
    insert_entries(&fixture, fixture.account, "campaign", "delete", 25).await;
    insert_entries(&fixture, other_account, "campaign", "create", 3).await;
    let mut seen = Vec::new();
    for number in 1..=6 {
        let page = read(&fixture, fixture.account, &AuditFilter::default(), number, 10).await;
        assert_eq!((page.total, page.page, page.limit), (50, number, 10));
        assert_eq!(page.data.len(), if number == 6 { 0 } else { 10 });
        assert!(page.data.iter().all(|entry| entry.account_id == fixture.account));
        seen.extend(page.data.into_iter().map(|entry| (entry.created_at, entry.id.0)));
    }
    assert_eq!(seen.len(), 50);
    assert!(seen.is_sorted_by(|newer, older| newer > older), "{seen:?}");
    let far = read(&fixture, fixture.account, &AuditFilter::default(), i64::MAX, 100).await;
    assert_eq!((far.data.len(), far.total), (0, 50));
    assert_eq!(all(&fixture, other_account).await.total, 3);
    assert_eq!(all(&fixture, id().into()).await.total, 0);
}

#[tokio::test]
async fn audit_filters_apply_to_page_and_total() {
    let fixture = DbFixture::new().await;
    for (entity_type, action, count) in [
        ("campaign", "create", 4),
        ("campaign", "delete", 3),
        ("message_template", "delete", 2),
    ] {
        insert_entries(&fixture, fixture.account, entity_type, action, count).await;
    }
    for (filter, total) in [
        (only(None, None), 9),
        (only(Some("campaign"), None), 7),
        (only(None, Some("delete")), 5),
        (only(Some("campaign"), Some("delete")), 3),
        (only(Some("campaign"), Some("login")), 0),
        (only(Some("' OR true --"), None), 0),
    ] {
        let page = read(&fixture, fixture.account, &filter, 1, 2).await;
        assert_eq!(page.total, total, "{filter:?}");
        assert_eq!(page.data.len(), usize::try_from(total.min(2)).unwrap());
        for entry in page.data {
            assert!(
                filter
                    .entity_type
                    .as_ref()
                    .is_none_or(|expected| *expected == entry.entity_type)
            );
            assert!(filter.action.as_ref().is_none_or(|expected| *expected == entry.action));
        }
    }
}

#[tokio::test]
async fn audit_total_is_stored_if_large_and_counted_if_small() {
    let fixture = DbFixture::new().await;
    insert_entries(&fixture, fixture.account, "campaign", "create", 5).await;
    let store_count = async |n: i64| {
        fixture
            .sql(&format!(
                "INSERT INTO audit_counts
                 VALUES ('{0}', '2026-03-01', 'campaign', 'create', {n}), ('{0}', '2026-03-01', 'api_key', 'create', 7)
                 ON CONFLICT (account_id, month, entity_type, action) DO UPDATE SET n = excluded.n",
                fixture.account
            ))
            .await;
    };
    store_count(99_999).await;
    assert_eq!(
        read(&fixture, fixture.account, &only(Some("campaign"), None), 1, 10)
            .await
            .total,
        5
    );
    // The sum of both stored counts exceeds the limit up to which the entries are counted.
    assert_eq!(all(&fixture, fixture.account).await.total, 100_006);
    store_count(100_000).await;
    assert_eq!(
        read(&fixture, fixture.account, &only(Some("campaign"), None), 1, 10)
            .await
            .total,
        100_000
    );
    assert_eq!(
        read(&fixture, fixture.account, &only(None, Some("delete")), 1, 10)
            .await
            .total,
        0
    );
}

#[tokio::test]
async fn audit_read_relays_pending_events_of_its_account() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    for round in 1..=20 {
        let entity = id();
        fixture.append_events(fixture.account, &[event(entity)]).await;
        fixture.append_events(other_account, &[event(id())]).await;
        let page = all(&fixture, fixture.account).await;
        assert_eq!((page.total, page.data[0].entity_id), (round, Some(entity)));
    }
    assert_eq!(
        fixture.number("SELECT count(*) FROM outbox_events").await,
        20,
        "the events of the other account remain"
    );
    // More events than one relay transaction moves.
    fixture
        .sql(&format!(
            "INSERT INTO outbox_events (account_id, payload) SELECT '{}', p.payload
             FROM generate_series(1, 1200) CROSS JOIN (SELECT payload FROM outbox_events LIMIT 1) p",
            fixture.account
        ))
        .await;
    assert_eq!(all(&fixture, fixture.account).await.total, 1220);
    fixture.assert_audit_counts().await;
}

#[tokio::test]
async fn audit_read_waits_a_bounded_time_for_locked_events() {
    let fixture = DbFixture::new().await;
    fixture.append_events(fixture.account, &[event(id())]).await;
    // Another transaction has deleted the event and has not committed.
    fixture.sql("BEGIN; DELETE FROM outbox_events").await;
    let began = Instant::now();
    let page = all(&fixture, fixture.account).await;
    let waited = began.elapsed();
    assert_eq!(page.total, 0, "the page holds the committed entries");
    assert!(waited > Duration::from_millis(800) && waited < DEADLINE, "{waited:?}");
    fixture.sql("ROLLBACK").await;
    assert_eq!(all(&fixture, fixture.account).await.total, 1);

    fixture.append_events(fixture.account, &[event(id())]).await;
    fixture.sql("BEGIN; DELETE FROM outbox_events").await;
    let store = fixture.audit();
    let account = fixture.account;
    let page = PageQuery::new(None, None, 50, 100);
    let reader = tokio::spawn(async move { store.page(account, &AuditFilter::default(), page).await });
    let blocked =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let deadline = Instant::now() + DEADLINE;
    while fixture.number(blocked).await == 0 && !reader.is_finished() {
        assert!(Instant::now() < deadline, "the reader never waits");
    }
    fixture
        .sql(&format!(
            "INSERT INTO audit_logs (account_id, id, action, entity_type) VALUES ('{account}', '{}', 'create', 'x'); COMMIT",
            id()
        ))
        .await;
    assert_eq!(
        reader.await.unwrap().unwrap().total,
        2,
        "the page holds the entry that it waited for"
    );
}

#[tokio::test]
async fn audit_log_locked_or_missing_is_an_error() {
    let fixture = DbFixture::new().await;
    fixture.append_events(fixture.account, &[event(id())]).await;
    fixture.sql("BEGIN; LOCK TABLE audit_logs").await;
    let page = PageQuery::new(None, None, 50, 100);
    let locked = fixture
        .audit()
        .page(fixture.account, &AuditFilter::default(), page)
        .await;
    assert!(matches!(locked, Err(StoreError::Unavailable(_))), "{locked:?}");
    fixture
        .sql("ROLLBACK; ALTER TABLE audit_logs RENAME TO elsewhere")
        .await;
    let missing = fixture
        .audit()
        .page(fixture.account, &AuditFilter::default(), page)
        .await;
    assert!(matches!(missing, Err(StoreError::Failed(_))), "{missing:?}");
    fixture.sql("ALTER TABLE elsewhere RENAME TO audit_logs").await;
    assert_eq!(all(&fixture, fixture.account).await.total, 1);
}

/// The plan of a query and the blocks that it read from the buffer cache.
async fn blocks(fixture: &DbFixture, query: &str) -> (String, i64) {
    let plan = fixture
        .client
        .query(&format!("EXPLAIN (ANALYZE, BUFFERS) {query}"), &[])
        .await
        .unwrap();
    let lines: Vec<String> = plan.into_iter().map(|row| row.get(0)).collect();
    let plan = lines.join("\n");
    let first = lines.iter().find(|line| line.contains("Buffers:")).unwrap();
    let hits = first.split("hit=").nth(1).unwrap_or("0").split(' ').next().unwrap();
    let hits = hits.parse().unwrap();
    (plan, hits)
}

#[tokio::test]
async fn audit_queries_use_index_only_scans() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    insert_entries(&fixture, account, "campaign", "create", 20_000).await;
    insert_entries(&fixture, account, "message_template", "delete", 10).await;
    fixture
        .sql(&format!(
            "INSERT INTO outbox_events (account_id, payload)
               SELECT gen_random_uuid(), '{{\"kind\":\"audit\"}}' FROM generate_series(1, 20000);
             INSERT INTO outbox_events (account_id, payload) VALUES ('{account}', '{{\"kind\":\"audit\"}}')"
        ))
        .await;
    fixture.sql("VACUUM ANALYZE").await;
    let order = "ORDER BY created_at DESC, id DESC LIMIT 50";
    for (query, most) in [
        (
            format!("SELECT id FROM audit_logs WHERE account_id = '{account}' {order} OFFSET 5000"),
            120,
        ),
        (
            format!(
                "SELECT id FROM audit_logs WHERE account_id = '{account}' AND entity_type = 'message_template' {order}"
            ),
            12,
        ),
        (
            format!("SELECT id FROM audit_logs WHERE account_id = '{account}' AND action = 'delete' {order}"),
            12,
        ),
        (
            format!(
                "SELECT EXISTS (SELECT FROM outbox_events WHERE account_id = '{account}' AND kind = 'audit'
                   AND retry_at IS NULL)"
            ),
            8,
        ),
    ] {
        let (plan, read) = blocks(&fixture, &query).await;
        // PostgreSQL may scan partitions without rows.
        let scanned = plan
            .lines()
            .any(|line| line.contains("Seq Scan") && !line.contains(" rows=0"));
        assert!(plan.contains("Index Only Scan") && !scanned, "{plan}");
        assert!(read <= most, "{read} blocks: {plan}");
    }
}
