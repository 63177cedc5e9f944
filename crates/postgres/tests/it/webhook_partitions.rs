//! The partitions of webhook events, logs and the inbox: what dropping a day removes, and which partitions are read.

use recado_domain::shared::{WebhookEventId, WebhookId, WebhookKind};
use recado_domain::webhooks::{
    Attempt, ClaimRequest, DeliveryQueue, DeliveryState, FeedQuery, InboundLogEntry, InboundStore, LogQuery,
    WebhookEvent, WebhookLogStore,
};
use recado_postgres::{PgInbound, PgPartitions, RetentionDays};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::support::{DbFixture, LEASE};
use crate::webhook_events::endpoint;
use crate::webhooks::{attempt, claim, emit, finish, queue, states, store};

/// Drops what would be older than its term after this many days.
async fn drop_after(fixture: &DbFixture, days: i64) -> usize {
    let partitions = PgPartitions::new(fixture.owner.clone());
    let later = OffsetDateTime::now_utc() + Duration::days(days);
    partitions.drop_expired(&RetentionDays::default(), later).await.unwrap()
}

async fn rows(fixture: &DbFixture, table: &str) -> i64 {
    fixture.number(&format!("SELECT count(*) FROM {table}")).await
}

impl DbFixture {
    /// New connections plan as for tables with many rows: these few would rather be scanned.
    pub(crate) async fn plan_by_key(&self) {
        let database = self.text("current_database()").await.unwrap();
        for name in ["seqscan", "bitmapscan", "hashjoin", "mergejoin"] {
            self.sql(&format!("ALTER DATABASE \"{database}\" SET enable_{name} = off"))
                .await;
        }
    }

    /// The partitions of a table that were scanned since the counters were reset. Those of future intervals, which
    /// have no rows, do not count: newest first begins with them.
    pub(crate) async fn scanned_partitions(&mut self, table: &str) -> Vec<String> {
        self.close().await;
        let scanned = format!(
            "SELECT string_agg(s.relname, ' ' ORDER BY s.relname) FROM pg_stat_user_tables s
             JOIN pg_inherits i ON i.inhrelid = s.relid AND i.inhparent = '{table}'::regclass
             WHERE coalesce(s.idx_scan, 0) + s.seq_scan > 0 AND (s.relname LIKE '%\\_earlier'
               OR s.relname <= '{table}_' || to_char(now() AT TIME ZONE 'UTC', '\"y\"YYYY\"m\"MM\"d\"DD'))"
        );
        let scanned = self.text(&scanned).await.unwrap_or_default();
        scanned.split_whitespace().map(str::to_owned).collect()
    }
}

fn newest_logs() -> LogQuery {
    LogQuery {
        limit: 9,
        ..LogQuery::default()
    }
}

#[tokio::test]
async fn webhook_days_are_dropped_after_thirty_days() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    endpoint(&fixture, account, "{*}", true).await;
    emit(&fixture, account, WebhookKind::MessageSent, 3).await;
    let claimed = claim(&fixture, &[], 9).await;
    let log_id = |attempt: Attempt| Attempt {
        log_id: Uuid::now_v7().into(),
        ..attempt
    };
    let attempts = [
        log_id(attempt(&claimed[0], Some(500), DeliveryState::Failed)),
        log_id(attempt(&claimed[1], Some(204), DeliveryState::Delivered)),
    ];
    finish(&fixture, &attempts).await;
    drop_after(&fixture, 30).await;
    assert_eq!(
        (
            rows(&fixture, "webhook_events").await,
            rows(&fixture, "webhook_logs").await
        ),
        (3, 2)
    );
    // A waiting delivery still refers to an event that is dropped.
    assert!(drop_after(&fixture, 32).await >= 2);
    assert_eq!(
        (
            rows(&fixture, "webhook_events").await,
            rows(&fixture, "webhook_logs").await
        ),
        (0, 0)
    );
    assert_eq!(states(&fixture).await, "failed1 waiting0");
    let page = store(&fixture)
        .feed(
            account,
            &FeedQuery {
                after: None,
                kind: None,
                limit: 9,
            },
        )
        .await
        .unwrap();
    assert_eq!((page.data.len(), page.has_more), (0, false));
    let event = claimed[0].key.event_id;
    assert!(
        !store(&fixture)
            .redeliver(account, claimed[0].key.endpoint_id, event)
            .await
            .unwrap()
            .is_done()
    );
}

#[tokio::test]
async fn delivery_of_a_dropped_event_is_removed_when_claimed() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    emit(&fixture, fixture.account, WebhookKind::MessageSent, 2).await;
    fixture
        .sql("DELETE FROM webhook_events WHERE payload ->> 'n' = '0'")
        .await;
    let claimed = claim(&fixture, &[], 9).await;
    assert_eq!((claimed.len(), &claimed[0].data), (1, &json!({ "n": 1 })));
    assert_eq!(rows(&fixture, "webhook_deliveries").await, 1);
    assert_eq!(rows(&fixture, "webhook_logs").await, 0);
}

#[tokio::test]
async fn abandoned_deliveries_are_purged_with_their_events_term() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    emit(&fixture, fixture.account, WebhookKind::MessageSent, 5).await;
    let claimed = claim(&fixture, &[], 4).await;
    let attempts: Vec<Attempt> = claimed
        .iter()
        .map(|delivery| attempt(delivery, Some(500), DeliveryState::Failed))
        .collect();
    finish(&fixture, &attempts).await;
    assert_eq!(queue(&fixture).sweep(Duration::days(30), 100).await.unwrap(), 0);
    let mut swept = vec![];
    for _ in 0..3 {
        swept.push(queue(&fixture).sweep(Duration::seconds(-60), 3).await.unwrap());
    }
    assert_eq!((swept, states(&fixture).await), (vec![3, 1, 0], "waiting0".to_owned()));
}

fn inbound_entry(endpoint: WebhookId, message: &str, status: i32, at: OffsetDateTime) -> InboundLogEntry {
    InboundLogEntry {
        id: Uuid::now_v7().into(),
        endpoint_id: endpoint,
        message_id: message.into(),
        event_type: "order.recorded".into(),
        payload: json!({}),
        response_status: status,
        error: None,
        at,
    }
}

#[tokio::test]
async fn received_message_is_logged_once_over_months() {
    let fixture = DbFixture::new().await;
    let (account, endpoint) = (fixture.account, WebhookId(Uuid::now_v7()));
    let inbound = PgInbound::new(fixture.tenants.clone(), fixture.owner.clone());
    let now = OffsetDateTime::now_utc();
    let refused = inbound_entry(endpoint, "m", 422, now);
    inbound.log(account, &refused).await.unwrap();
    assert!(!inbound.is_taken(account, endpoint, "m").await.unwrap());
    let earlier = inbound_entry(endpoint, "m", 200, now - Duration::days(29));
    inbound.log(account, &earlier).await.unwrap();
    assert!(inbound.is_taken(account, endpoint, "m").await.unwrap());
    assert!(!inbound.is_taken(account, WebhookId(Uuid::now_v7()), "m").await.unwrap());
    let other_account = fixture.another_account().await;
    assert!(!inbound.is_taken(other_account, endpoint, "m").await.unwrap());
    let entries: Vec<InboundLogEntry> = (0..8)
        .map(|number| inbound_entry(endpoint, if number < 4 { "m" } else { "n" }, 200, now))
        .collect();
    let logged = entries.iter().map(|entry| inbound.log(account, entry));
    for result in futures_util::future::join_all(logged).await {
        result.unwrap();
    }
    let received =
        "SELECT string_agg(message_id, '' ORDER BY message_id) FROM webhook_logs WHERE response_status = 200";
    assert_eq!(fixture.text(received).await.unwrap(), "mn");
    assert_eq!(rows(&fixture, "webhook_inbox").await, 2);
    drop_after(&fixture, 1).await;
    assert!(inbound.is_taken(account, endpoint, "m").await.unwrap());
}

#[tokio::test]
async fn lookups_by_id_and_new_logs_read_one_partition() {
    let mut fixture = DbFixture::new().await;
    let account = fixture.account;
    let endpoint = WebhookId(endpoint(&fixture, account, "{*}", true).await);
    emit(&fixture, account, WebhookKind::MessageSent, 9).await;
    let claimed = claim(&fixture, &[], 9).await;
    let attempts: Vec<Attempt> = claimed
        .iter()
        .map(|delivery| Attempt {
            log_id: Uuid::now_v7().into(),
            ..attempt(delivery, Some(500), DeliveryState::Failed)
        })
        .collect();
    finish(&fixture, &attempts).await;
    let today = "SELECT 'webhook_logs' || to_char(now() AT TIME ZONE 'UTC', '_\"y\"YYYY\"m\"MM\"d\"DD')";
    let today = vec![fixture.text(today).await.unwrap()];
    fixture.count_reads().await;
    assert_eq!(store(&fixture).logs(account, &newest_logs()).await.unwrap().len(), 9);
    assert_eq!(fixture.scanned_partitions("webhook_logs").await, today);
    let by_event = fixture.scanned_partitions("webhook_events").await;
    assert_eq!(by_event, [today[0].replace("logs", "events")]);
    fixture.count_reads().await;
    assert!(
        store(&fixture)
            .logged(account, attempts[0].log_id)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(fixture.scanned_partitions("webhook_logs").await, today);
    fixture.count_reads().await;
    let event = claimed[0].key.event_id;
    assert!(
        store(&fixture)
            .redeliver(account, endpoint, event)
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(fixture.scanned_partitions("webhook_events").await, by_event);
    fixture.count_reads().await;
    let request = ClaimRequest {
        endpoints: vec![],
        others: 9,
        limit: 9,
    };
    assert_eq!(queue(&fixture).claim(&request, LEASE).await.unwrap().len(), 1);
    assert_eq!(fixture.scanned_partitions("webhook_events").await, by_event);
    fixture.count_reads().await;
    let ping = WebhookEvent {
        id: WebhookEventId(Uuid::now_v7()),
        kind: "test.ping".into(),
        timestamp: OffsetDateTime::now_utc(),
        account_id: account,
        data: json!({}),
    };
    assert!(store(&fixture).ping(account, endpoint, &ping).await.unwrap().is_done());
    assert_eq!(fixture.scanned_partitions("webhook_events").await, by_event);
}
