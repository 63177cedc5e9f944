//! Queue metrics and pool metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use recado_domain::shared::StoreError;
use recado_postgres::{OwnerPool, PgQueues, PoolLabels, PoolRegistry, Queue, TenantPool};

use crate::support::DbFixture;

async fn read(fixture: &DbFixture) -> BTreeMap<String, Queue> {
    let queues = PgQueues::new(fixture.owner.clone()).read().await.unwrap();
    queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect()
}

#[tokio::test]
async fn queues_of_an_empty_database_are_empty() {
    let fixture = DbFixture::new().await;
    fixture.sql("TRUNCATE outbox_events").await;
    let queues = read(&fixture).await;
    assert_eq!(queues.len(), 18, "{queues:?}");
    for queue in queues.values() {
        assert_eq!((queue.depth, queue.oldest), (0, Duration::ZERO), "{}", queue.name);
    }
}

#[tokio::test]
async fn queue_depth_comes_with_the_age_of_the_oldest_row() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "TRUNCATE outbox_events;
             INSERT INTO outbox_events (account_id, payload, created_at) VALUES
               ('{account}', '{{\"kind\": \"audit\"}}', now() - interval '50 s'),
               ('{account}', '{{\"kind\": \"audit\"}}', now() - interval '90 s'),
               ('{account}', '{{\"kind\": \"webhook\"}}', now() - interval '10 s');
             INSERT INTO outbox_events (account_id, payload, created_at, retry_at) VALUES
               ('{account}', '{{\"kind\": \"audit\"}}', now() - interval '900 s', now());
             INSERT INTO whatsapp_callbacks (id, body, due_at, received_at) VALUES
               (gen_random_uuid(), '', now(), now() - interval '30 s'),
               (gen_random_uuid(), '', now() + interval '60 s', now() - interval '40 s'),
               (gen_random_uuid(), '', 'infinity', now() - interval '800 s');
             INSERT INTO outgoing_mail (id, account_id, content, created_at) VALUES
               (gen_random_uuid(), '{account}', '', now() - interval '20 s');
             INSERT INTO campaigns (account_id, id, name, status, scheduled_at) VALUES
               ('{account}', gen_random_uuid(), 'late', 'scheduled', now() - interval '70 s'),
               ('{account}', gen_random_uuid(), 'not yet', 'scheduled', now() + interval '70 s')"
        ))
        .await;
    let queues = read(&fixture).await;
    for (name, depth, seconds) in [
        ("outbox_audit", 2, 90),
        ("outbox_webhook", 1, 10),
        ("outbox_notification", 0, 0),
        ("outbox_set_aside", 1, 900),
        ("whatsapp_callbacks", 2, 40),
        ("whatsapp_callbacks_set_aside", 1, 800),
        ("mail", 1, 20),
        ("schedule", 1, 70),
        ("runs_waiting", 0, 0),
    ] {
        let queue = &queues[name];
        assert_eq!(queue.depth, depth, "{name}");
        let oldest = queue.oldest.as_secs();
        assert!((seconds..seconds + 30).contains(&oldest), "{name}: {oldest}");
    }
}

#[tokio::test]
async fn delivery_queue_counts_due_rows_of_active_endpoints() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let event = "INSERT INTO webhook_events (account_id, id, seq, type, payload, occurred_at)";
    fixture
        .sql(&format!(
            "INSERT INTO webhook_endpoints (account_id, id, name, direction, url, events, is_active, secret, secret_hint)
               SELECT '{account}', id::uuid, 'e', 'outbound', 'https://e.example', '{{*}}'::text[], active, ''::bytea, '0000'
               FROM (VALUES ('00000000-0000-7000-8000-000000000001', true),
                            ('00000000-0000-7000-8000-000000000002', false)) AS e (id, active);
             {event} SELECT '{account}', ('00000000-0000-7000-8000-00000000001' || n)::uuid, n, 'x', '{{}}'::jsonb, now()
               FROM generate_series(1, 3) n;
             INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id, next_attempt_at)
               SELECT e.account_id, v.id, e.id, now() - v.seq * interval '100 s'
               FROM webhook_endpoints e JOIN webhook_events v ON v.account_id = e.account_id;
             UPDATE webhook_deliveries SET next_attempt_at = now() + interval '1 h'
               WHERE event_id = '00000000-0000-7000-8000-000000000013'"
        ))
        .await;
    let queue = &read(&fixture).await["webhook_deliveries"];
    assert_eq!(queue.depth, 2);
    assert!((200..230).contains(&queue.oldest.as_secs()), "{queue:?}");
}

/// The statement reads a bounded number of rows, even with a long backlog.
#[tokio::test]
async fn queue_depth_stops_at_its_maximum() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO outbox_events (account_id, payload)
             SELECT '{account}', '{{\"kind\": \"audit\"}}' FROM generate_series(1, 12000)"
        ))
        .await;
    assert_eq!(read(&fixture).await["outbox_audit"].depth, 10_000);
}

#[tokio::test]
async fn pool_stats_are_grouped_by_labels() {
    let fixture = DbFixture::new().await;
    let pool_registry = PoolRegistry::default();
    let config = fixture.db.config().counted(&pool_registry, "requests");
    let (first_pool, second_pool) = (TenantPool::new(&config).unwrap(), TenantPool::new(&config).unwrap());
    let mut small = config.clone();
    (small.size, small.wait_timeout) = (1, Duration::from_millis(50));
    let owner = OwnerPool::new(&small).unwrap();
    let (tenants, owners) = (
        PoolLabels {
            purpose: "requests",
            role: "tenant",
        },
        PoolLabels {
            purpose: "requests",
            role: "owner",
        },
    );
    assert_eq!(pool_registry.stats()[&tenants].usage.max, 2 * config.size);
    drop(second_pool);
    assert_eq!(pool_registry.stats()[&tenants].usage.max, config.size);
    // Two reads share one connection. The lock holds it longer than the second read may wait.
    let blocker = fixture.db.client().await;
    blocker
        .batch_execute("BEGIN; LOCK TABLE campaign_queue IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let queues = PgQueues::new(owner);
    let (first, second) = tokio::join!(queues.read(), queues.read());
    blocker.batch_execute("ROLLBACK").await.unwrap();
    assert!(
        [first, second]
            .iter()
            .any(|result| matches!(result, Err(StoreError::Unavailable(_))))
    );
    let stats = pool_registry.stats()[&owners];
    assert_eq!((stats.usage.max, stats.acquire_timeouts), (1, 1));
    drop(first_pool);
}
