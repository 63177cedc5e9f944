//! Ingestion of orders, metric events and clicks, and their rollups under races and after repairs.

use std::sync::Arc;

use recado_domain::analytics::{ActivityRead, AnalyticsStore};
use recado_domain::automations::{Automation, AutomationStatus, AutomationStore};
use recado_domain::ingestion::{
    EventDraft, Granularity, IngestionOutcome, IngestionResult, IngestionStore, OrderDraft, OrderItem, OrderStatus, Who,
};
use recado_domain::links::{ClickBatch, ClickKey, Link, LinkStore, LinkTarget};
use recado_domain::rollups::RollupStore;
use recado_domain::shared::{Amount, MetricEventId, StoreError};
use recado_postgres::{PgAnalytics, PgAutomations, PgIngestion, PgLinks, PgRollups};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::support::{DbFixture, NOW, id};

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

pub(crate) fn order(external_id: &str, status: OrderStatus, total: &str) -> OrderDraft {
    let item = OrderItem {
        product_id: "p".into(),
        name: "Bolo".into(),
        quantity: amount("1.5"),
        price: amount(total),
        cost: Some(amount("0.25")),
    };
    OrderDraft {
        platform: "loja".into(),
        external_id: external_id.into(),
        phone: None,
        status,
        total: amount(total),
        items: vec![item],
        gateway_fee: None,
        campaign_id: None,
        automation_id: None,
        link_code: None,
        placed_at: NOW,
        paid_at: None,
    }
}

pub(crate) fn event(metric: &str, contact: Uuid, at: time::OffsetDateTime) -> EventDraft {
    EventDraft {
        id: id().into(),
        metric_name: metric.into(),
        display_name: None,
        category: None,
        who: Who::Contact(contact.into()),
        value: Some(amount("1.5")),
        currency: None,
        source: "site".into(),
        properties: serde_json::Map::new(),
        occurred_at: at,
    }
}

async fn upsert_orders(store: &PgIngestion, fixture: &DbFixture, drafts: &[OrderDraft]) -> IngestionResult {
    let ids: Vec<_> = drafts.iter().map(|_| id().into()).collect();
    match store.orders(fixture.account, &ids, drafts, NOW).await.unwrap() {
        IngestionOutcome::Done(recorded) => recorded,
        IngestionOutcome::UnknownReferences(unknown_references) => panic!("{unknown_references:?}"),
    }
}

pub(crate) async fn contact(fixture: &DbFixture) -> Uuid {
    let contact = id();
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name) VALUES ('{0}', '{contact}', 'Ana');
             INSERT INTO contact_counts VALUES ('{0}', (now() AT TIME ZONE 'UTC')::date, 1)",
            fixture.account
        ))
        .await;
    contact
}

async fn assert_verified(fixture: &DbFixture) {
    let rollups = PgRollups::new(fixture.owner.clone());
    assert_eq!(rollups.verify(fixture.account).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_two_writers_are_counted_once() {
    let fixture = DbFixture::new().await;
    let store = Arc::new(PgIngestion::new(fixture.tenants.clone()));
    for round in 0..10 {
        let drafts = |status, reverse: bool| -> Vec<OrderDraft> {
            let mut drafts: Vec<_> = (0..8)
                .map(|at| order(&format!("{round}-{at}"), status, "10.01"))
                .collect();
            if reverse {
                drafts.reverse();
            }
            drafts
        };
        let (a, b) = (drafts(OrderStatus::Pending, false), drafts(OrderStatus::Paid, true));
        let (a, b) = tokio::join!(upsert_orders(&store, &fixture, &a), upsert_orders(&store, &fixture, &b));
        assert!(a.accepted >= 8 || b.accepted >= 8, "{a:?} {b:?}");
        assert_eq!(fixture.number("SELECT count(*) FROM orders").await, (round + 1) * 8);
        assert_verified(&fixture).await;
    }
}

#[tokio::test]
async fn order_rollups_follow_the_current_order() {
    let fixture = DbFixture::new().await;
    let store = PgIngestion::new(fixture.tenants.clone());
    let sums = "SELECT pending || ' ' || paid || ' ' || refunded || ' ' || trim_scale(revenue) || ' '
        || trim_scale(product_costs) || ' ' || trim_scale(gateway_fees)
        FROM order_rollups WHERE bucket_minutes = 1440 AND placed > 0";
    let mut paid = order("1", OrderStatus::Paid, "10.01");
    paid.gateway_fee = Some(amount("0.5"));
    for (draft, expected) in [
        (order("1", OrderStatus::Pending, "10"), "1 0 0 0 0 0"),
        (paid, "0 1 0 10.01 0.375 0.5"),
        (order("1", OrderStatus::Paid, "20"), "0 1 0 20 0.375 0.5"),
        (order("1", OrderStatus::Refunded, "20"), "0 0 1 0 0 0"),
    ] {
        let recorded = upsert_orders(&store, &fixture, &[draft.clone(), draft.clone()]).await;
        assert_eq!((recorded.accepted, recorded.duplicates), (1, 1));
        assert_eq!(upsert_orders(&store, &fixture, &[draft]).await.accepted, 0);
        assert_eq!(fixture.text(sums).await.as_deref(), Some(expected));
        assert_verified(&fixture).await;
    }
    // A new payment day moves the sums to another bucket.
    let mut moved = order("1", OrderStatus::Paid, "20");
    moved.paid_at = Some(NOW - Duration::days(3));
    upsert_orders(&store, &fixture, &[moved]).await;
    let revenue = "SELECT string_agg(bucket_start::date || ' ' || trim_scale(revenue), ', ' ORDER BY bucket_start)
       FROM order_rollups
        WHERE bucket_minutes = 1440";
    assert_eq!(
        fixture.text(revenue).await.as_deref(),
        Some("2026-02-26 20, 2026-03-01 0")
    );
    assert_verified(&fixture).await;
}

#[tokio::test]
async fn order_attribution_change_moves_the_revenue() {
    let fixture = DbFixture::new().await;
    let store = PgIngestion::new(fixture.tenants.clone());
    let campaign = fixture.stored_draft().await;
    let automation = Automation {
        id: id().into(),
        name: "Boas-vindas".into(),
        status: AutomationStatus::Active,
        created_at: NOW,
        updated_at: NOW,
    };
    let automations = PgAutomations::new(fixture.tenants.clone());
    automations.insert(fixture.account, &automation).await.unwrap();
    let plain = order("1", OrderStatus::Paid, "10");
    let of_campaign = OrderDraft {
        campaign_id: Some(campaign.id),
        ..plain.clone()
    };
    let of_automation = OrderDraft {
        automation_id: Some(automation.id),
        ..plain.clone()
    };
    let attributed = "SELECT string_agg(kind || ' ' || trim_scale(revenue), ', ' ORDER BY kind)
        FROM attribution_rollups WHERE bucket_minutes = 1440 AND orders > 0";
    for (draft, accepted, expected) in [
        (&plain, 1, None),
        (&of_campaign, 1, Some("campaign 10")),
        (&of_automation, 1, Some("automation 10")),
        (&of_automation, 0, Some("automation 10")),
        (&plain, 0, Some("automation 10")),
    ] {
        assert_eq!(
            upsert_orders(&store, &fixture, std::slice::from_ref(draft))
                .await
                .accepted,
            accepted
        );
        assert_eq!(fixture.text(attributed).await.as_deref(), expected);
        assert_verified(&fixture).await;
    }
}

#[tokio::test]
async fn rollups_verify_reports_and_rebuild_repairs_wrong_sums() {
    let fixture = DbFixture::new().await;
    let store = PgIngestion::new(fixture.tenants.clone());
    upsert_orders(
        &store,
        &fixture,
        &[
            order("1", OrderStatus::Paid, "10"),
            order("2", OrderStatus::Pending, "7"),
        ],
    )
    .await;
    let ana = contact(&fixture).await;
    let events = [event("visit", ana, NOW), event("visit", ana, NOW - Duration::HOUR)];
    store.events(fixture.account, &events, NOW).await.unwrap();
    let rollups = PgRollups::new(fixture.owner.clone());
    fixture
        .sql(
            "UPDATE order_rollups SET revenue = revenue + 1 WHERE bucket_minutes = 15; DELETE FROM product_rollups;
             UPDATE metrics SET total_events = 7, last_event_at = NULL; DELETE FROM metric_contacts;
             UPDATE metric_rollups SET last_contacts = last_contacts + 1 WHERE events > 0;
             INSERT INTO cart_rollups SELECT account_id, 15, '2026-01-01', 3, 1 FROM metrics",
        )
        .await;
    let found = rollups.verify(fixture.account).await.unwrap();
    let mut names: Vec<&str> = found.iter().map(|difference| difference.rollup).collect();
    names.dedup();
    let expected = [
        "order_rollups",
        "product_rollups",
        "cart_rollups",
        "metrics",
        "metric_contacts",
        "metric_rollups",
    ];
    assert_eq!(names, expected);
    let description = found[0].to_string();
    assert!(
        description.contains("order_rollups") && description.contains("loja") && description.contains("11"),
        "{description}"
    );
    assert!(rollups.rebuild(fixture.account).await.unwrap() > 0);
    assert_verified(&fixture).await;
    assert_eq!(rollups.rebuild(fixture.account).await.unwrap(), 0);
    let last = fixture
        .text("SELECT last_event_at = (SELECT max(occurred_at) FROM metric_events) FROM metrics")
        .await;
    assert_eq!(last.as_deref(), Some("true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rollup_rebuild_is_exact_under_concurrent_writes() {
    let fixture = DbFixture::new().await;
    let store = PgIngestion::new(fixture.tenants.clone());
    let ana = contact(&fixture).await;
    let rollups = PgRollups::new(fixture.owner.clone());
    let writer = async {
        for round in 0..40 {
            let status = if round % 3 == 0 {
                OrderStatus::Pending
            } else {
                OrderStatus::Paid
            };
            upsert_orders(
                &store,
                &fixture,
                &[order(&(round % 7).to_string(), status, &format!("{round}.5"))],
            )
            .await;
            let at = NOW - Duration::hours((round * 7) % 50);
            store
                .events(fixture.account, &[event("visit", ana, at)], NOW)
                .await
                .unwrap();
        }
    };
    let rebuilder = async {
        for _ in 0..10 {
            fixture
                .sql("UPDATE order_rollups SET revenue = revenue + 3; UPDATE metric_contacts SET event_count = 0")
                .await;
            rollups.rebuild(fixture.account).await.unwrap();
        }
    };
    tokio::join!(writer, rebuilder);
    assert_verified(&fixture).await;
}

#[tokio::test]
async fn ingestion_rejects_ids_of_other_accounts() {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    let store = PgIngestion::new(fixture.tenants.clone());
    let (mine, theirs) = (contact(&fixture).await, id());
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{other}', '{theirs}', 'Bia', '+5511961234567');
             INSERT INTO campaigns (account_id, id, name) VALUES ('{other}', '{theirs}', 'c');
             INSERT INTO campaigns (account_id, id, name, deleted_at) VALUES ('{}', '{mine}', 'c', now());
             INSERT INTO automations (account_id, id, name, status) VALUES ('{other}', '{theirs}', 'a', 'active');
             INSERT INTO links (account_id, id, short_code, original_url) VALUES ('{other}', '{theirs}', 'code', 'u')",
            fixture.account
        ))
        .await;
    for campaign in [theirs, mine, id()] {
        let mut draft = order("1", OrderStatus::Paid, "1");
        draft.campaign_id = Some(campaign.into());
        draft.automation_id = Some(theirs.into());
        draft.link_code = Some("code".into());
        let drafts = [order("0", OrderStatus::Paid, "1"), draft];
        let outcome = store
            .orders(fixture.account, &[id().into(), id().into()], &drafts, NOW)
            .await
            .unwrap();
        let IngestionOutcome::UnknownReferences(unknown_references) = outcome else {
            panic!("{outcome:?}")
        };
        let fields: Vec<_> = unknown_references
            .iter()
            .map(|reference| (reference.index, reference.field))
            .collect();
        assert_eq!(fields, [(1, "campaign_id"), (1, "automation_id"), (1, "link_code")]);
    }
    let events = [event("visit", mine, NOW), event("visit", theirs, NOW)];
    let outcome = store.events(fixture.account, &events, NOW).await.unwrap();
    assert!(
        matches!(outcome, IngestionOutcome::UnknownReferences(unknown_references) if unknown_references[0].index == 1),
        "a foreign contact"
    );
    assert_eq!(
        fixture
            .number("SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM metric_events)")
            .await,
        0
    );
    // A phone does not match another account's contact.
    let mut draft = order("1", OrderStatus::Paid, "1");
    draft.phone = recado_domain::contacts::Phone::parse("+5511961234567");
    upsert_orders(&store, &fixture, &[draft]).await;
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM orders WHERE contact_id IS NULL")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn automations_beyond_the_plan_limit_are_inserted() {
    let fixture = DbFixture::new().await;
    let store = PgAutomations::new(fixture.tenants.clone());
    let automation = || Automation {
        id: id().into(),
        name: "Boas-vindas".into(),
        status: AutomationStatus::Draft,
        created_at: NOW,
        updated_at: NOW,
    };
    let (first, second, third) = (automation(), automation(), automation());
    let inserted = tokio::join!(
        store.insert(fixture.account, &first),
        store.insert(fixture.account, &second),
        store.insert(fixture.account, &third)
    );
    assert!(matches!(inserted, (Ok(()), Ok(()), Ok(()))), "{inserted:?}");
    // The free plan includes one automation.
    assert_eq!(fixture.number("SELECT count(*) FROM automations").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clicks_are_all_counted() {
    let fixture = DbFixture::new().await;
    let store = PgLinks::new(fixture.tenants.clone(), fixture.owner.clone());
    let link = |code: &str| Link {
        id: id().into(),
        short_code: code.into(),
        short_url: String::new(),
        original_url: "https://loja.example/".into(),
        campaign_id: None,
        contact_id: None,
        clicks: 0,
        created_at: NOW,
    };
    store.insert(fixture.account, &link("a")).await.unwrap();
    let other_account = fixture.another_account().await;
    let taken = store.insert(other_account, &link("a")).await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "short_code" })),
        "{taken:?}"
    );
    let target = store.target("a").await.unwrap().unwrap();
    assert_eq!(target.original_url, "https://loja.example/");
    let writers = [id(), id()];
    for round in 0..10 {
        let at = NOW + Duration::minutes(round * 10);
        let [x, y] = writers.map(|writer| batch(writer, round + 1, &target, at, 1));
        let (x, y) = tokio::join!(store.add_clicks(&x), store.add_clicks(&y));
        // Two concurrent batches may conflict: a deferred batch is added later.
        let mut number = 100 + round;
        let deferred = [x.unwrap(), y.unwrap()].concat();
        for _ in deferred {
            number += 100;
            let later = batch(id(), number, &target, at, 1);
            assert_eq!(store.add_clicks(&later).await.unwrap(), []);
        }
    }
    assert_eq!(store.target("b").await.unwrap(), None);
    assert_eq!(fixture.number("SELECT clicks FROM links").await, 20);
    assert_eq!(
        fixture
            .number("SELECT sum(clicks)::bigint FROM link_rollups WHERE bucket_minutes = 15")
            .await,
        20
    );
    assert_verified(&fixture).await;
}

fn batch(writer: Uuid, number: i64, target: &LinkTarget, at: OffsetDateTime, clicks: i64) -> ClickBatch {
    let key = ClickKey {
        account_id: target.account_id,
        link_id: target.link_id,
        quarter: Granularity::Quarter.begin(at),
    };
    ClickBatch {
        writer,
        number,
        clicks: vec![(key, clicks)],
    }
}

#[tokio::test]
async fn click_batch_is_applied_once_and_skips_locked_links() {
    let fixture = DbFixture::new().await;
    let store = PgLinks::new(fixture.tenants.clone(), fixture.owner.clone());
    for code in ["held", "free"] {
        let link = Link {
            id: id().into(),
            short_code: code.into(),
            short_url: String::new(),
            original_url: "https://loja.example/".into(),
            campaign_id: None,
            contact_id: None,
            clicks: 0,
            created_at: NOW,
        };
        store.insert(fixture.account, &link).await.unwrap();
    }
    let held = store.target("held").await.unwrap().unwrap();
    let free = store.target("free").await.unwrap().unwrap();
    let missing = LinkTarget {
        link_id: id().into(),
        ..free.clone()
    };
    let mut first = batch(id(), 1, &held, NOW, 2);
    for other in [&free, &missing] {
        first.clicks.extend(batch(first.writer, 1, other, NOW, 5).clicks);
    }
    fixture
        .sql("BEGIN; SELECT FROM links WHERE short_code = 'held' FOR UPDATE")
        .await;
    let deferred = vec![held.link_id];
    // The second call repeats a batch whose response was lost.
    for _ in 0..2 {
        assert_eq!(store.add_clicks(&first).await.unwrap(), deferred);
    }
    fixture.sql("COMMIT").await;
    assert_eq!(store.add_clicks(&first).await.unwrap(), deferred);
    let second = batch(first.writer, 2, &held, NOW, 2);
    for _ in 0..2 {
        assert_eq!(store.add_clicks(&second).await.unwrap(), []);
    }
    let clicks = "SELECT string_agg(short_code || clicks, ' ' ORDER BY short_code) FROM links";
    assert_eq!(fixture.text(clicks).await.unwrap(), "free5 held2");
    let weeks = "SELECT string_agg(clicks::text, ' ' ORDER BY clicks) FROM link_rollups WHERE bucket_minutes = 10080";
    assert_eq!(fixture.text(weeks).await.unwrap(), "2 5");
}

#[tokio::test]
async fn activity_pages_neither_skip_nor_repeat_during_inserts() {
    let fixture = DbFixture::new().await;
    let (store, reports) = (
        PgIngestion::new(fixture.tenants.clone()),
        PgAnalytics::new(fixture.tenants.clone()),
    );
    let ana = contact(&fixture).await;
    let first: Vec<_> = (0..20)
        .map(|at| event("visit", ana, NOW - Duration::minutes(at / 3)))
        .collect();
    store.events(fixture.account, &first, NOW).await.unwrap();
    let (mut seen, mut cursor): (Vec<MetricEventId>, _) = (vec![], None);
    loop {
        let read = reports.activity(fixture.account, "visit", cursor, 3).await.unwrap();
        let ActivityRead::Events(items) = read else {
            panic!("{read:?}")
        };
        seen.extend(items.iter().take(3).map(|item| item.id));
        if items.len() <= 3 {
            break;
        }
        cursor = seen.last().copied();
        store
            .events(fixture.account, &[event("visit", ana, NOW)], NOW)
            .await
            .unwrap();
    }
    let mut all: Vec<MetricEventId> = first.iter().map(|event| event.id).collect();
    let order = |ids: &mut Vec<MetricEventId>| ids.sort();
    order(&mut all);
    let mut sorted = seen.clone();
    order(&mut sorted);
    assert_eq!(sorted, all);
    let unknown = reports
        .activity(fixture.account, "visit", Some(id().into()), 3)
        .await
        .unwrap();
    assert_eq!(unknown, ActivityRead::NoCursor);
    let none = reports.activity(fixture.account, "visits", cursor, 3).await.unwrap();
    assert_eq!(none, ActivityRead::NoMetric);
}
