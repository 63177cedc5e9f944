//! Reports of a month, for an account that the planner's statistics do not contain: they read the rollups of that time.

use recado_domain::analytics::{AnalyticsStore, ExportKind, ExportStore, InsightStore, Period, Window, Zone};
use recado_postgres::{PgAnalytics, PgExports, PgInsights};
use time::OffsetDateTime;

use super::fixture::{FIRST_PAGE, PART, ROWS};
use crate::support::DbFixture;

/// SQL that inserts a daily row of each rollup for every key of the accounts, and the runs of a campaign on each day.
fn rollups(accounts: &str) -> String {
    let mut inserts = String::new();
    for (table, keys, values) in [
        ("order_rollups", "platform, placed, paid, revenue", "'loja', 1, 1, 1"),
        ("cart_rollups", "carts", "1"),
        ("product_rollups", "product_id, quantity, revenue", "'p', 1, 1"),
        (
            "attribution_rollups",
            "kind, attributed_to_id, orders, revenue",
            "'campaign', key(a, n), 1, 1",
        ),
        ("link_rollups", "link_id, clicks", "key(a, 1), 1"),
        (
            "automation_rollups",
            "automation_id, completed, latency",
            "key(a, 1), 1, 1",
        ),
        ("message_rollups", "received", "1"),
    ] {
        inserts.push_str(&format!(
            "INSERT INTO {table} (account_id, bucket_minutes, bucket_start, {keys})
               SELECT a, 1440, date_trunc('day', now(), 'UTC') - n * interval '1 day', {values} FROM r;"
        ));
    }
    inserts.push_str(
        "INSERT INTO campaign_counter_slots (account_id, campaign_id, created_at)
           SELECT a, key(a, n), now() - n * interval '1 day' FROM r
           ON CONFLICT (account_id, campaign_id, slot) DO UPDATE SET created_at = excluded.created_at;",
    );
    let rows = format!(
        "FROM (SELECT account_id AS a, (row_number() OVER (PARTITION BY account_id ORDER BY id))::int AS n
           FROM campaigns WHERE {accounts}) r"
    );
    inserts.replace("FROM r", &rows)
}

pub(super) async fn reports_of_a_month_read_few_rows(mut fixture: DbFixture) {
    let account = fixture.account;
    fixture
        .sql(&format!(
            "SET session_replication_role = replica;
             UPDATE campaigns c SET executed_at = now() - n * interval '1 day' FROM generate_series(1, {ROWS}) n
               WHERE c.id = key(c.account_id, n);
             {} ANALYZE; {}
             SET session_replication_role = origin",
            rollups(&format!("account_id <> '{account}'")),
            rollups(&format!("account_id = '{account}'")),
        ))
        .await;
    // The latest campaign has few of the sends.
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET campaign_id = key('{account}', 2) FROM generate_series(1, 2 * {PART}) i
               WHERE account_id = '{account}' AND id = key('{account}', i);
             UPDATE campaign_counter_slots SET created_at = now() - interval '1 hour'
               WHERE account_id = '{account}' AND campaign_id = key('{account}', 2)"
        ))
        .await;
    for campaign in [1, 2] {
        fixture.freeze(campaign).await;
    }
    let window = Window::new(Period::Month, &Zone::UTC, OffsetDateTime::now_utc()).unwrap();
    let days = window.dates.len();
    let analytics = |fixture: &DbFixture| PgAnalytics::new(fixture.tenants.clone());
    // Each report is read twice, so that enough rows are read to be counted.
    fixture.count_reads().await;
    for _ in 0..2 {
        let revenue = analytics(&fixture).revenue(account, &window, 10).await.unwrap();
        assert_eq!(revenue.days.len(), days);
    }
    fixture.assert_looked_up("revenue").await;
    fixture.count_reads().await;
    for _ in 0..2 {
        let ecommerce = analytics(&fixture).ecommerce(account, &window, 10).await.unwrap();
        assert_eq!(ecommerce.days.len(), days);
    }
    fixture.assert_looked_up("e-commerce").await;
    fixture.count_reads().await;
    for _ in 0..2 {
        analytics(&fixture).automations(account, &window, 10).await.unwrap();
    }
    fixture.assert_looked_up("automations").await;
    fixture.count_reads().await;
    for _ in 0..2 {
        let insights = PgInsights::new(fixture.tenants.clone());
        assert_eq!(insights.messages(account, &window).await.unwrap().len(), days);
        assert_eq!(insights.campaigns(account, &window, 25).await.unwrap().len(), 25);
    }
    fixture.assert_looked_up("messages and campaigns").await;
    fixture.count_reads().await;
    let part = PgExports::new(fixture.tenants.clone())
        .part(account, ExportKind::Messages, &window, None, FIRST_PAGE.limit)
        .await;
    assert_eq!(part.unwrap().len(), PART);
    fixture.assert_few_of(ROWS, "a part of an export").await;
}
