//! The partitions of orders and metric events: what is reported again after its month was dropped is not counted
//! again, the sums stay, and lookups read few partitions.

use futures_util::future::join_all;
use recado_domain::analytics::{ActivityRead, AnalyticsStore};
use recado_domain::ingestion::{
    EventDraft, IngestionOutcome, IngestionResult, IngestionStore, OrderDraft, OrderStatus,
};
use recado_domain::rollups::RollupStore;
use recado_postgres::{PgAnalytics, PgIngestion, PgPartitions, PgRollups, RetentionDays};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::ingestion::{contact, event, order};
use crate::support::DbFixture;

fn store(fixture: &DbFixture) -> PgIngestion {
    PgIngestion::new(fixture.tenants.clone())
}

/// Records orders as the product does: an id begins with the time of the report.
async fn report(fixture: &DbFixture, drafts: &[OrderDraft]) -> IngestionResult {
    let ids: Vec<_> = drafts.iter().map(|_| Uuid::now_v7().into()).collect();
    let now = OffsetDateTime::now_utc();
    let outcome = store(fixture).orders(fixture.account, &ids, drafts, now).await.unwrap();
    result(outcome)
}

fn result(outcome: IngestionOutcome) -> IngestionResult {
    match outcome {
        IngestionOutcome::Done(result) => result,
        IngestionOutcome::UnknownReferences(unknown) => panic!("{unknown:?}"),
    }
}

async fn record(fixture: &DbFixture, events: &[EventDraft]) -> IngestionResult {
    let now = OffsetDateTime::now_utc();
    result(store(fixture).events(fixture.account, events, now).await.unwrap())
}

async fn drop_all(fixture: &DbFixture, terms: RetentionDays) {
    let later = OffsetDateTime::now_utc() + Duration::days(62);
    let partitions = PgPartitions::new(fixture.owner.clone());
    partitions.drop_expired(&terms, later).await.unwrap();
}

async fn assert_exact(fixture: &DbFixture) {
    let rollups = PgRollups::new(fixture.owner.clone());
    assert_eq!(rollups.verify(fixture.account).await.unwrap(), []);
    assert_eq!(rollups.rebuild(fixture.account).await.unwrap(), 0);
}

/// The sums of every rollup of orders or metric events.
async fn sums(fixture: &DbFixture, tables: &[&str]) -> Vec<Option<String>> {
    let mut sums = vec![];
    for table in tables {
        sums.push(
            fixture
                .text(&format!("(SELECT json_agg(r ORDER BY r::text)::text FROM {table} r)"))
                .await,
        );
    }
    sums
}

const ORDER_SUMS: [&str; 3] = ["order_rollups", "product_rollups", "attribution_rollups"];
const EVENT_SUMS: [&str; 3] = ["metrics", "metric_contacts", "metric_rollups"];

#[tokio::test]
async fn order_of_a_dropped_month_is_not_counted_again() {
    let fixture = DbFixture::new().await;
    let drafts = [
        order("1", OrderStatus::Paid, "10"),
        order("2", OrderStatus::Pending, "5"),
    ];
    assert_eq!(report(&fixture, &drafts).await.accepted, 2);
    let before = sums(&fixture, &ORDER_SUMS).await;
    drop_all(&fixture, RetentionDays::default()).await;
    assert_eq!(fixture.number("SELECT count(*) FROM orders").await, 2, "kept for ever");
    let terms = RetentionDays {
        orders: Some(30),
        ..RetentionDays::default()
    };
    drop_all(&fixture, terms).await;
    let left = "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM order_items)";
    assert_eq!(fixture.number(left).await, 0);
    assert_eq!(sums(&fixture, &ORDER_SUMS).await, before);
    assert_exact(&fixture).await;
    // A refund and a repetition of dropped orders, and a new order.
    let again = [
        order("1", OrderStatus::Refunded, "10"),
        order("2", OrderStatus::Pending, "5"),
        order("3", OrderStatus::Paid, "7"),
    ];
    let recorded = report(&fixture, &again).await;
    assert_eq!((recorded.accepted, recorded.duplicates), (1, 2));
    assert_eq!(fixture.number("SELECT count(*) FROM orders").await, 1);
    assert_exact(&fixture).await;
    // A sum that is less than its kept rows is still found and repaired.
    fixture.sql("UPDATE order_rollups SET revenue = 0, paid = 0").await;
    let rollups = PgRollups::new(fixture.owner.clone());
    assert!(!rollups.verify(fixture.account).await.unwrap().is_empty());
    assert!(rollups.rebuild(fixture.account).await.unwrap() > 0);
    let revenue = "SELECT sum(revenue) FROM order_rollups WHERE bucket_minutes = 15";
    assert_eq!(fixture.number(revenue).await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_reports_store_one_order() {
    let fixture = DbFixture::new().await;
    for round in 0..5 {
        let draft = [order(&format!("{round}"), OrderStatus::Paid, "10")];
        let reports = join_all((0..6).map(|_| report(&fixture, &draft))).await;
        let accepted: usize = reports.iter().map(|result| result.accepted).sum();
        assert_eq!(accepted, 1);
        assert_eq!(fixture.number("SELECT count(*) FROM orders").await, round + 1);
        assert_eq!(fixture.number("SELECT count(*) FROM order_keys").await, round + 1);
    }
    assert_exact(&fixture).await;
}

#[tokio::test]
async fn event_of_a_dropped_month_is_not_counted_again() {
    let fixture = DbFixture::new().await;
    let ana = contact(&fixture).await;
    let now = OffsetDateTime::now_utc();
    let refund = EventDraft {
        value: recado_domain::shared::Amount::parse("-3"),
        ..event("visit", ana, now - Duration::days(40))
    };
    let events = [event("visit", ana, now), refund];
    assert_eq!(record(&fixture, &events).await.accepted, 2);
    let before = sums(&fixture, &EVENT_SUMS).await;
    let terms = RetentionDays {
        metric_events: Some(30),
        ..RetentionDays::default()
    };
    drop_all(&fixture, terms).await;
    assert_eq!(fixture.number("SELECT count(*) FROM metric_events").await, 0);
    assert_eq!(sums(&fixture, &EVENT_SUMS).await, before);
    assert_exact(&fixture).await;
    // The id decides, whatever the report says.
    let later = EventDraft {
        occurred_at: now + Duration::minutes(1),
        ..events[0].clone()
    };
    let recorded = record(&fixture, &[later, events[1].clone()]).await;
    assert_eq!((recorded.accepted, recorded.duplicates), (0, 2));
    assert_eq!(sums(&fixture, &EVENT_SUMS).await, before);
}

#[tokio::test]
async fn ingestion_reads_few_partitions() {
    let mut fixture = DbFixture::new().await;
    let ana = contact(&fixture).await;
    let now = OffsetDateTime::now_utc();
    let month = "to_char(now() AT TIME ZONE 'UTC', '_\"y\"YYYY\"m\"MM')";
    let month = fixture.text(month).await.unwrap();
    // Enough rows that the planner prefers a key to all orders of the account.
    fixture
        .sql(&format!(
            "INSERT INTO orders (account_id, id, platform, external_id, status, total, placed_at)
             SELECT '{}', (lpad(to_hex((extract(epoch FROM now() - i % 10 * interval '40 days') * 1000)::bigint), 12, '0')
               || '7' || substr(md5(i::text), 1, 19))::uuid, 'outra', i::text, 'pending', 1, now()
             FROM generate_series(1, 4000) i;
             INSERT INTO order_keys SELECT account_id, platform, external_id, id FROM orders ON CONFLICT DO NOTHING;
             INSERT INTO order_items SELECT account_id, id, 1, 'p', 'n', 1, 1 FROM orders;
             ANALYZE",
            fixture.account
        ))
        .await;
    fixture.plan_by_key().await;
    let paid = order("1", OrderStatus::Paid, "10");
    report(&fixture, &[order("1", OrderStatus::Pending, "10")]).await;
    fixture.count_reads().await;
    assert_eq!(report(&fixture, std::slice::from_ref(&paid)).await.accepted, 1);
    assert_eq!(fixture.scanned_partitions("orders").await, [format!("orders{month}")]);
    assert_eq!(
        fixture.scanned_partitions("order_items").await,
        [format!("order_items{month}")]
    );
    let mut events: Vec<EventDraft> = (1..9)
        .map(|day| event("visit", ana, now - Duration::days(60 * day)))
        .collect();
    events.push(event("visit", ana, now));
    record(&fixture, &events).await;
    fixture.count_reads().await;
    let read = PgAnalytics::new(fixture.tenants.clone())
        .activity(fixture.account, "visit", None, 0)
        .await
        .unwrap();
    let ActivityRead::Events(page) = read else {
        panic!("the metric exists")
    };
    assert_eq!(page.len(), 1);
    assert_eq!(
        fixture.scanned_partitions("metric_events").await,
        [format!("metric_events{month}")]
    );
    fixture.count_reads().await;
    let old = Some(events[2].id);
    let read = PgAnalytics::new(fixture.tenants.clone())
        .activity(fixture.account, "visit", old, 1)
        .await
        .unwrap();
    let ActivityRead::Events(page) = read else {
        panic!("the cursor exists")
    };
    assert_eq!(
        page.iter().map(|event| event.id).collect::<Vec<_>>(),
        [events[3].id, events[4].id]
    );
    assert_eq!(
        fixture.scanned_partitions("metric_events").await,
        ["metric_events_earlier"],
        "later than the cursor"
    );
}
