//! Webhook endpoints, deliveries, logs and the feed.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use recado_domain::shared::{
    AccountId, Event, InsertOutcome, NotificationDraft, NotificationKind, PageQuery, Sealed, UpdateOutcome,
    WebhookEventId, WebhookId, WebhookKind, WebhookLogId,
};
use recado_domain::webhooks::{
    Attempt, ClaimRequest, ClaimedDelivery, DeliveryQueue, DeliveryState, Direction, DisabledReason, FeedQuery, Health,
    HealthUpdate, InboundStore, LogQuery, LogStatus, SealedSecrets, StoredWebhook, Webhook, WebhookEvent,
    WebhookLogStore, WebhookStore,
};
use recado_postgres::{PgDeliveryQueue, PgInbound, PgWebhooks};
use recado_testkit::DEADLINE;
use serde_json::json;
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, LEASE, NOW, id};
use crate::webhook_events::endpoint;

pub(crate) fn store(fixture: &DbFixture) -> PgWebhooks {
    PgWebhooks::new(fixture.tenants.clone())
}

pub(crate) fn queue(fixture: &DbFixture) -> PgDeliveryQueue {
    PgDeliveryQueue::new(fixture.owner.clone())
}

fn stored(name: &str) -> StoredWebhook {
    StoredWebhook {
        webhook: Webhook {
            id: id().into(),
            name: name.into(),
            url: Some("https://e.example".into()),
            events: vec!["*".into(), "test.ping".into()],
            direction: Direction::Outbound,
            is_active: true,
            secret_hint: "beef".into(),
            disabled_at: None,
            disabled_reason: None,
            created_at: NOW,
            updated_at: NOW,
        },
        secrets: SealedSecrets {
            current: Sealed(vec![1, 2]),
            previous: None,
        },
        version: 1,
    }
}

/// Emits and relays `count` events of a kind. The data of each holds its number.
pub(crate) async fn emit(fixture: &DbFixture, account: AccountId, kind: WebhookKind, count: usize) {
    let items = (0..count).map(|n| json!({ "n": n })).collect();
    fixture.append_events(account, &[Event::webhook(kind, items)]).await;
    fixture.relay().await;
}

/// Claims deliveries: at most the given count of each listed endpoint, and `others` of every other endpoint.
pub(crate) async fn claim(fixture: &DbFixture, endpoints: &[(WebhookId, i64)], others: i64) -> Vec<ClaimedDelivery> {
    let request = ClaimRequest {
        endpoints: endpoints.to_vec(),
        others,
        limit: 1000,
    };
    queue(fixture).claim(&request, LEASE).await.unwrap()
}

pub(crate) fn attempt(claimed: &ClaimedDelivery, status: Option<u16>, state: DeliveryState) -> Attempt {
    Attempt {
        key: claimed.key,
        claim: claimed.claim,
        log_id: WebhookLogId(id()),
        number: claimed.attempts + 1,
        kind: claimed.kind.clone(),
        status,
        error: status.is_none().then(|| "timed_out".to_owned()),
        duration: Duration::milliseconds(7),
        at: OffsetDateTime::now_utc(),
        state,
    }
}

pub(crate) async fn finish(fixture: &DbFixture, attempts: &[Attempt]) {
    queue(fixture).finish(attempts, &[]).await.unwrap();
}

pub(crate) async fn states(fixture: &DbFixture) -> String {
    let query = "SELECT string_agg(state || attempt, ' ' ORDER BY state || attempt) FROM webhook_deliveries";
    fixture.text(query).await.unwrap_or_default()
}

async fn make_due(fixture: &DbFixture) {
    fixture
        .sql("UPDATE webhook_deliveries SET next_attempt_at = now()")
        .await;
}

#[tokio::test]
async fn endpoint_update_is_guarded_by_its_version() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    let (store, mut first) = (store(&fixture), stored("a"));
    assert_eq!(
        store.insert(account, &first, 2, &[]).await.unwrap(),
        InsertOutcome::Done
    );
    assert_eq!(
        store.find(account, first.webhook.id).await.unwrap(),
        Some(first.clone())
    );
    assert_eq!(store.find(other_account, first.webhook.id).await.unwrap(), None);
    first.webhook.is_active = false;
    first.webhook.disabled_at = Some(NOW);
    first.webhook.disabled_reason = Some(DisabledReason::Gone);
    first.webhook.updated_at = NOW + Duration::SECOND;
    first.secrets.previous = Some((Sealed(vec![9]), NOW));
    let written = store.update(account, &first, &[]).await.unwrap();
    assert_eq!(written, UpdateOutcome::Done(()));
    let stale = store.update(account, &first, &[]).await.unwrap();
    assert_eq!(stale, UpdateOutcome::Stale);
    first.version += 1;
    assert_eq!(
        store.find(account, first.webhook.id).await.unwrap(),
        Some(first.clone())
    );
    let missing = store.update(other_account, &first, &[]).await.unwrap();
    assert_eq!(missing, UpdateOutcome::Missing);
    let more = join_all(["b", "c", "d"].map(|name| {
        let store = store.clone();
        async move { store.insert(account, &stored(name), 2, &[]).await.unwrap() }
    }))
    .await;
    let inserted = more.iter().filter(|outcome| **outcome == InsertOutcome::Done).count();
    assert_eq!(inserted, 1, "the limit leaves one more endpoint: {more:?}");
    let page = store
        .page(account, PageQuery::new(None, Some(1), 20, 100))
        .await
        .unwrap();
    assert_eq!((page.total, page.total_pages, page.data.len()), (2, 2, 1));
    let beyond = store
        .page(account, PageQuery::new(Some(9), None, 20, 100))
        .await
        .unwrap();
    assert_eq!((beyond.total, beyond.data.len()), (2, 0));
    assert!(
        !store
            .delete(other_account, first.webhook.id, &[])
            .await
            .unwrap()
            .is_done()
    );
    assert!(store.delete(account, first.webhook.id, &[]).await.unwrap().is_done());
    assert!(!store.delete(account, first.webhook.id, &[]).await.unwrap().is_done());
}

#[tokio::test]
async fn endpoint_id_is_unique_over_all_accounts() {
    let fixture = DbFixture::new().await;
    let (store, mut endpoint) = (store(&fixture), stored("a"));
    endpoint.webhook.direction = Direction::Inbound;
    endpoint.webhook.url = None;
    let inserted = store.insert(fixture.account, &endpoint, 2, &[]).await.unwrap();
    assert_eq!(inserted, InsertOutcome::Done);
    let other_account = fixture.another_account().await;
    assert!(store.insert(other_account, &endpoint, 2, &[]).await.is_err());
    assert_eq!(store.find(other_account, endpoint.webhook.id).await.unwrap(), None);
    let inbound = PgInbound::new(fixture.tenants.clone(), fixture.owner.clone());
    let (account, found) = inbound.endpoint(endpoint.webhook.id).await.unwrap().unwrap();
    assert_eq!((account, found.webhook.id), (fixture.account, endpoint.webhook.id));
    assert!(
        store
            .delete(fixture.account, endpoint.webhook.id, &[])
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(inbound.endpoint(endpoint.webhook.id).await.unwrap(), None);
    assert_eq!(
        store.insert(other_account, &endpoint, 2, &[]).await.unwrap(),
        InsertOutcome::Done
    );
}

#[tokio::test]
async fn previous_secret_signs_until_the_database_clock_ends_it() {
    let fixture = DbFixture::new().await;
    let endpoint = stored("a");
    store(&fixture)
        .insert(fixture.account, &endpoint, 2, &[])
        .await
        .unwrap();
    for (until, signs) in [("1 hour", true), ("-1 second", false)] {
        fixture
            .sql(&format!(
                "UPDATE webhook_endpoints SET previous_secret = '\\x09', previous_secret_until = now() + interval '{until}'"
            ))
            .await;
        emit(&fixture, fixture.account, WebhookKind::MessageSent, 1).await;
        let claimed = claim(&fixture, &[], 10).await;
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].secrets.previous.is_some(), signs, "{until}");
    }
}

#[tokio::test]
async fn delivery_claims_are_exclusive_and_limited_per_endpoint() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let full = WebhookId(endpoint(&fixture, account, "{message.sent}", true).await);
    let free = WebhookId(endpoint(&fixture, account, "{message.sent}", true).await);
    emit(&fixture, account, WebhookKind::MessageSent, 50).await;
    let first = claim(&fixture, &[(full, 0)], 7).await;
    assert_eq!((first.len(), first[0].key.endpoint_id), (7, free));
    assert_eq!(
        (first[0].claim, first[0].attempts, &first[0].data),
        (1, 0, &json!({ "n": 0 }))
    );
    assert_eq!(
        (first[0].health, first[0].kind.as_str()),
        (Health::Well, "message.sent")
    );
    let rest = join_all((0..4).map(|_| claim(&fixture, &[], 20))).await;
    let keys: Vec<_> = rest.iter().flatten().chain(&first).map(|claimed| claimed.key).collect();
    let unique: BTreeSet<_> = keys.iter().map(|key| (key.endpoint_id, key.event_id)).collect();
    assert_eq!(unique.len(), keys.len());
    let mut all = keys.len();
    while let more @ 1.. = claim(&fixture, &[], 20).await.len() {
        all += more;
    }
    assert_eq!(all, 100);
    // Any worker may claim a released delivery, and one whose lease has expired.
    let released = [(first[0].key, first[0].claim), (first[1].key, 99)];
    queue(&fixture).release(&released).await.unwrap();
    let again = claim(&fixture, &[], 20).await;
    assert_eq!((again.len(), again[0].claim, again[0].key), (1, 2, first[0].key));
    make_due(&fixture).await;
    assert_eq!(claim(&fixture, &[], 500).await.len(), 100);
}

#[tokio::test]
async fn only_active_endpoints_of_active_accounts_are_served() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let endpoint_id = endpoint(&fixture, account, "{*}", true).await;
    emit(&fixture, account, WebhookKind::MessageSent, 1).await;
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert_eq!(claim(&fixture, &[], 9).await.len(), 0);
    fixture.sql("UPDATE accounts SET status = 'active'").await;
    fixture.sql("UPDATE webhook_endpoints SET is_active = false").await;
    assert_eq!(claim(&fixture, &[], 9).await.len(), 0);
    fixture.sql("UPDATE webhook_endpoints SET is_active = true").await;
    assert_eq!(claim(&fixture, &[], 9).await[0].key.endpoint_id.0, endpoint_id);
}

#[tokio::test]
async fn attempt_results_are_written_once_with_a_log_each() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    emit(&fixture, fixture.account, WebhookKind::MessageSent, 3).await;
    let claimed = claim(&fixture, &[], 9).await;
    let attempts = [
        attempt(&claimed[0], Some(204), DeliveryState::Delivered),
        attempt(&claimed[1], Some(500), DeliveryState::Waiting(Duration::hours(1))),
        attempt(&claimed[2], None, DeliveryState::Failed),
    ];
    for _ in 0..2 {
        finish(&fixture, &attempts).await;
        assert_eq!(states(&fixture).await, "failed1 waiting1");
    }
    let logs = store(&fixture)
        .logs(
            fixture.account,
            &LogQuery {
                limit: 9,
                ..LogQuery::default()
            },
        )
        .await
        .unwrap();
    let seen: Vec<_> = logs
        .iter()
        .map(|log| (log.response_status, log.error.as_deref()))
        .collect();
    assert_eq!(seen.len(), 3);
    for expected in [(Some(204), None), (Some(500), None), (None, Some("timed_out"))] {
        assert!(seen.contains(&expected), "{seen:?}");
    }
    let waiting = logs.iter().find(|log| log.response_status == Some(500)).unwrap();
    assert_eq!((waiting.duration_ms, waiting.attempt), (Some(7), 1));
    assert!(waiting.next_attempt_at.unwrap() > OffsetDateTime::now_utc() + Duration::minutes(59));
    assert_eq!(
        (&waiting.payload["type"], &waiting.payload["data"]),
        (&json!("message.sent"), &json!({ "n": 1 }))
    );
    assert_eq!(waiting.payload["id"], json!(waiting.message_id));
    assert_eq!(claim(&fixture, &[], 9).await.len(), 0, "the retry is not due yet");
    make_due(&fixture).await;
    let again = claim(&fixture, &[], 9).await;
    assert_eq!((again.len(), again[0].attempts, again[0].key), (1, 1, claimed[1].key));
}

#[tokio::test]
async fn attempt_with_a_lost_claim_is_only_logged() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    emit(&fixture, fixture.account, WebhookKind::MessageSent, 1).await;
    let lost = claim(&fixture, &[], 9).await;
    make_due(&fixture).await;
    let second = claim(&fixture, &[], 9).await;
    finish(&fixture, &[attempt(&lost[0], Some(200), DeliveryState::Delivered)]).await;
    finish(&fixture, &[attempt(&lost[0], None, DeliveryState::Failed)]).await;
    assert_eq!(states(&fixture).await, "waiting0");
    finish(&fixture, &[attempt(&second[0], Some(200), DeliveryState::Delivered)]).await;
    assert_eq!(states(&fixture).await, "");
    assert_eq!(fixture.number("SELECT count(*) FROM webhook_logs").await, 3);
}

#[tokio::test]
async fn attempt_before_a_redelivery_is_only_logged() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    emit(&fixture, fixture.account, WebhookKind::MessageSent, 1).await;
    let stalled = claim(&fixture, &[], 9).await;
    make_due(&fixture).await;
    let second = claim(&fixture, &[], 9).await;
    let delivered = [attempt(&second[0], Some(200), DeliveryState::Delivered)];
    finish(&fixture, &delivered).await;
    let key = second[0].key;
    for _ in 0..2 {
        let redelivered = store(&fixture)
            .redeliver(key.account_id, key.endpoint_id, key.event_id)
            .await;
        assert!(redelivered.unwrap().is_done());
        let third = claim(&fixture, &[], 9).await;
        finish(&fixture, &[attempt(&stalled[0], None, DeliveryState::Failed)]).await;
        finish(&fixture, &delivered).await;
        assert_eq!(states(&fixture).await, "waiting0");
        finish(&fixture, &[attempt(&third[0], Some(200), DeliveryState::Delivered)]).await;
        assert_eq!(states(&fixture).await, "");
    }
}

/// A delivered event stays delivered if the endpoint is disabled or a redelivery is requested while the result is
/// written. The endpoint is not called again with the same event id.
#[tokio::test]
async fn concurrent_change_does_not_revive_a_delivered_event() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    for (change, expected) in [
        ("state = 'dropped', leased = false, failed_at = now()", "dropped0"),
        ("leased = false, next_attempt_at = now()", "waiting0"),
    ] {
        fixture.sql("DELETE FROM webhook_deliveries").await;
        emit(&fixture, fixture.account, WebhookKind::MessageSent, 2).await;
        let claimed = claim(&fixture, &[], 9).await;
        let writer = fixture.db.client().await;
        writer
            .batch_execute(&format!("BEGIN; UPDATE webhook_deliveries SET {change}"))
            .await
            .unwrap();
        let delivered = [attempt(&claimed[0], Some(200), DeliveryState::Delivered)];
        let commit = async {
            fixture.blocked(1).await;
            writer.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(finish(&fixture, &delivered), commit);
        assert_eq!(states(&fixture).await, expected, "{change}");
    }
    assert_eq!(
        fixture.number("SELECT count(*) FROM webhook_logs").await,
        2,
        "one log per attempt"
    );
}

fn failing(known: Health, since: OffsetDateTime) -> HealthUpdate {
    HealthUpdate::Failing {
        known,
        since,
        at: since,
    }
}

#[tokio::test]
async fn endpoint_health_updates_are_guarded_by_known_health() {
    let fixture = DbFixture::new().await;
    let endpoint_id = WebhookId(endpoint(&fixture, fixture.account, "{*}", true).await);
    let apply = async |health_update: HealthUpdate| {
        queue(&fixture)
            .finish(&[], &[(fixture.account, endpoint_id, health_update)])
            .await
            .unwrap()
    };
    let since = async || fixture.text("SELECT failing_since::text FROM webhook_endpoints").await;
    apply(failing(Health::Well, NOW)).await;
    let first = since().await;
    assert!(first.is_some());
    apply(failing(Health::Well, NOW + Duration::HOUR)).await;
    assert_eq!(since().await, first, "an update with outdated health is ignored");
    let known = Health::Failing { since: NOW, last: NOW };
    apply(failing(known, NOW)).await;
    apply(HealthUpdate::Recovered).await;
    assert_eq!(since().await, None);
    let notification = Event::Notification(NotificationDraft {
        kind: NotificationKind::Warning,
        title: "t".into(),
        message: "m".into(),
        data: json!({}),
    });
    let disabled = |reason, known| HealthUpdate::Disabled {
        known,
        reason,
        events: vec![notification.clone()],
    };
    apply(disabled(DisabledReason::Failing, known)).await;
    let active = "SELECT count(*) FROM webhook_endpoints WHERE is_active";
    assert_eq!(fixture.number(active).await, 1, "a recovered endpoint stays active");
    emit(&fixture, fixture.account, WebhookKind::MessageSent, 2).await;
    for _ in 0..2 {
        apply(disabled(DisabledReason::Gone, known)).await;
    }
    let found = store(&fixture)
        .find(fixture.account, endpoint_id)
        .await
        .unwrap()
        .unwrap()
        .webhook;
    assert_eq!(
        (found.is_active, found.disabled_reason),
        (false, Some(DisabledReason::Gone))
    );
    assert!(found.disabled_at.is_some() && found.updated_at >= found.created_at);
    assert_eq!(states(&fixture).await, "dropped0 dropped0");
    assert_eq!(
        fixture.number("SELECT count(*) FROM outbox_events").await,
        1,
        "one notification"
    );
}

#[tokio::test]
async fn disabling_drops_deliveries_and_recovery_restores_them() {
    let fixture = DbFixture::new().await;
    let (account, store) = (fixture.account, store(&fixture));
    let mut webhook = stored("a");
    store.insert(account, &webhook, 9, &[]).await.unwrap();
    let endpoint_id = webhook.webhook.id;
    emit(&fixture, account, WebhookKind::MessageSent, 5).await;
    let claimed = claim(&fixture, &[], 9).await;
    finish(
        &fixture,
        &[
            attempt(&claimed[0], Some(200), DeliveryState::Delivered),
            attempt(&claimed[1], Some(500), DeliveryState::Failed),
            attempt(&claimed[2], Some(500), DeliveryState::Waiting(Duration::HOUR)),
        ],
    )
    .await;
    webhook.webhook.is_active = false;
    webhook.webhook.updated_at = NOW + Duration::SECOND;
    store.update(account, &webhook, &[]).await.unwrap();
    webhook.version += 1;
    assert_eq!(states(&fixture).await, "dropped0 dropped0 dropped1 failed1");
    // The results of attempts in flight are recorded: a delivered event needs no recovery.
    finish(&fixture, &[attempt(&claimed[3], Some(200), DeliveryState::Delivered)]).await;
    finish(
        &fixture,
        &[attempt(&claimed[4], None, DeliveryState::Waiting(Duration::HOUR))],
    )
    .await;
    assert_eq!(states(&fixture).await, "dropped0 dropped1 failed1");
    webhook.webhook.is_active = true;
    webhook.webhook.updated_at = NOW + Duration::seconds(2);
    let written = store.update(account, &webhook, &[]).await.unwrap();
    assert_eq!(written, UpdateOutcome::Done(()));
    let (now, long_ago) = (OffsetDateTime::now_utc(), OffsetDateTime::now_utc() - Duration::HOUR);
    assert_eq!(
        store
            .recover(account, endpoint_id, now + Duration::HOUR, 9)
            .await
            .unwrap(),
        0
    );
    let other_account = fixture.another_account().await;
    assert_eq!(store.recover(other_account, endpoint_id, long_ago, 9).await.unwrap(), 0);
    assert_eq!(
        store.recover(account, endpoint_id, long_ago, 2).await.unwrap(),
        3,
        "two batches"
    );
    assert_eq!(store.recover(account, endpoint_id, long_ago, 2).await.unwrap(), 0);
    assert_eq!(states(&fixture).await, "waiting0 waiting0 waiting0");
    assert_eq!(claim(&fixture, &[], 9).await.len(), 3);
}

/// An endpoint with failed deliveries, which a trigger fails again as soon as they are recovered.
async fn failing_again(fixture: &DbFixture, events: usize) -> WebhookId {
    let endpoint_id = WebhookId(endpoint(fixture, fixture.account, "{message.sent}", true).await);
    emit(fixture, fixture.account, WebhookKind::MessageSent, events).await;
    fixture
        .sql(
            "UPDATE webhook_deliveries SET state = 'failed', failed_at = now() - interval '1 minute';
             CREATE TABLE recovered (event_id uuid, slice bigint);
             GRANT INSERT ON recovered TO recado_tenant;
             CREATE FUNCTION fail_again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO recovered VALUES (NEW.event_id, txid_current());
               NEW.state := 'failed';
               NEW.failed_at := clock_timestamp();
               RETURN NEW;
             END $$;
             CREATE TRIGGER fail_again BEFORE UPDATE ON webhook_deliveries
               FOR EACH ROW WHEN (NEW.state = 'waiting') EXECUTE FUNCTION fail_again()",
        )
        .await;
    endpoint_id
}

#[tokio::test]
async fn recovery_is_batched_and_selects_each_delivery_once() {
    let fixture = DbFixture::new().await;
    let endpoint_id = failing_again(&fixture, 7).await;
    let long_ago = OffsetDateTime::now_utc() - Duration::HOUR;
    let store = store(&fixture);
    let recovered = store.recover(fixture.account, endpoint_id, long_ago, 3);
    let recovered = tokio::time::timeout(DEADLINE, recovered).await;
    assert_eq!(recovered.expect("the recovery ends").unwrap(), 7);
    let batches = "SELECT string_agg(n::text, ' ') FROM
         (SELECT count(*) AS n FROM recovered GROUP BY slice ORDER BY slice) t";
    assert_eq!(fixture.text(batches).await.as_deref(), Some("3 3 1"));
    assert_eq!(
        fixture.number("SELECT count(DISTINCT event_id) FROM recovered").await,
        7
    );
}

#[tokio::test]
async fn redelivery_and_ping_queue_one_delivery() {
    let fixture = DbFixture::new().await;
    let (account, store) = (fixture.account, store(&fixture));
    let other_account = fixture.another_account().await;
    let endpoint_id = WebhookId(endpoint(&fixture, account, "{message.sent}", true).await);
    endpoint(&fixture, account, "{*}", true).await;
    emit(&fixture, account, WebhookKind::MessageRead, 1).await;
    fixture.sql("DELETE FROM webhook_deliveries").await;
    let event = fixture.text("SELECT id FROM webhook_events").await.unwrap();
    let event = WebhookEventId(event.parse().unwrap());
    assert!(store.redeliver(account, endpoint_id, event).await.unwrap().is_done());
    assert!(
        !store
            .redeliver(other_account, endpoint_id, event)
            .await
            .unwrap()
            .is_done()
    );
    assert!(
        !store
            .redeliver(account, endpoint_id, WebhookEventId(id()))
            .await
            .unwrap()
            .is_done()
    );
    let claimed = claim(&fixture, &[], 9).await;
    assert_eq!((claimed.len(), claimed[0].key.event_id), (1, event));
    // A delivery with an attempt in flight is not queued a second time.
    assert!(store.redeliver(account, endpoint_id, event).await.unwrap().is_done());
    assert_eq!(claim(&fixture, &[], 9).await.len(), 0);
    finish(&fixture, &[attempt(&claimed[0], None, DeliveryState::Failed)]).await;
    assert!(store.redeliver(account, endpoint_id, event).await.unwrap().is_done());
    assert_eq!(claim(&fixture, &[], 9).await[0].attempts, 0);
    let log = fixture.text("SELECT id FROM webhook_logs").await.unwrap();
    let log = WebhookLogId(log.parse().unwrap());
    let logged = store.logged(account, log).await.unwrap().unwrap();
    assert_eq!((logged.endpoint_id, logged.event_id), (endpoint_id, Some(event)));
    assert!(store.logged(other_account, log).await.unwrap().is_none());
    let ping = WebhookEvent {
        id: id().into(),
        kind: "test.ping".into(),
        timestamp: NOW,
        account_id: account,
        data: json!({}),
    };
    assert!(!store.ping(account, WebhookId(id()), &ping).await.unwrap().is_done());
    assert!(store.ping(account, endpoint_id, &ping).await.unwrap().is_done());
    assert_eq!(claim(&fixture, &[], 9).await[0].key.event_id, ping.id);
    let feed = FeedQuery {
        after: None,
        kind: None,
        limit: 9,
    };
    assert_eq!(
        store.feed(account, &feed).await.unwrap().data.len(),
        1,
        "a ping is not in the feed"
    );
}

/// Inserts one log of each kind, in ascending order of time, alternating between two endpoints. Returns the endpoints.
async fn logged(fixture: &DbFixture) -> [uuid::Uuid; 2] {
    let account = fixture.account;
    let endpoints = [id(), id()];
    for (index, (direction, status)) in [
        ("outbound", "200"),
        ("outbound", "299"),
        ("outbound", "301"),
        ("outbound", "400"),
        ("outbound", "NULL"),
        ("inbound", "200"),
        ("inbound", "503"),
    ]
    .into_iter()
    .enumerate()
    {
        let (event, payload) = match direction {
            "outbound" => (format!("'{}'", id()), "NULL"),
            _ => ("NULL".to_owned(), "'{\"type\": \"x\"}'"),
        };
        fixture
            .sql(&format!(
                "INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id,
                   payload, response_status, created_at)
                 VALUES ('{account}', '{}', '{}', '{direction}', 'k{}', 'm{index}', {event}, {payload}, {status},
                   now() + interval '{index} s')",
                id(),
                endpoints[index % 2],
                index % 3
            ))
            .await;
    }
    endpoints
}

/// The message ids of logs, one after the other.
async fn found_logs(fixture: &DbFixture, query: LogQuery) -> String {
    let logs = store(fixture).logs(fixture.account, &query).await.unwrap();
    logs.iter().map(|log| log.message_id.clone()).collect()
}

#[tokio::test]
async fn webhook_logs_are_read_from_a_cursor() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    logged(&fixture).await;
    let all = LogQuery {
        limit: 100,
        ..LogQuery::default()
    };
    let found = async |query: LogQuery| found_logs(&fixture, query).await;
    let rows = store(&fixture).logs(account, &all).await.unwrap();
    let after = |at: usize| LogQuery {
        cursor: Some(rows[at].id),
        ..all.clone()
    };
    assert_eq!(found(after(2)).await, "m3m2m1m0");
    assert_eq!(found(after(6)).await, "");
}

#[tokio::test]
async fn webhook_logs_are_filtered_by_their_fields() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let endpoints = logged(&fixture).await;
    let found = async |query: LogQuery| found_logs(&fixture, query).await;
    let all = LogQuery {
        limit: 100,
        ..LogQuery::default()
    };
    assert_eq!(found(all.clone()).await, "m6m5m4m3m2m1m0");
    assert_eq!(
        found(LogQuery {
            limit: 2,
            ..all.clone()
        })
        .await,
        "m6m5"
    );
    let status = |status| LogQuery {
        status: Some(status),
        ..all.clone()
    };
    assert_eq!(found(status(LogStatus::Success)).await, "m5m1m0");
    assert_eq!(found(status(LogStatus::Failed)).await, "m6m4m3");
    let inbound = LogQuery {
        direction: Some(Direction::Inbound),
        ..all.clone()
    };
    assert_eq!(found(inbound.clone()).await, "m6m5");
    assert_eq!(
        found(LogQuery {
            status: Some(LogStatus::Failed),
            ..inbound
        })
        .await,
        "m6"
    );
    let by_endpoint = LogQuery {
        endpoint_id: Some(endpoints[0].into()),
        ..all.clone()
    };
    assert_eq!(found(by_endpoint.clone()).await, "m6m4m2m0");
    assert_eq!(
        found(LogQuery {
            event_type: Some("k0".into()),
            ..by_endpoint
        })
        .await,
        "m6m0"
    );
    let other_account = fixture.another_account().await;
    assert!(store(&fixture).logs(other_account, &all).await.unwrap().is_empty());
    let payloads = store(&fixture).logs(account, &all).await.unwrap();
    assert_eq!(
        (&payloads[0].payload, &payloads[6].payload),
        (&json!({ "type": "x" }), &json!({}))
    );
}

#[tokio::test]
async fn webhook_feed_is_read_to_its_end_and_beyond() {
    let fixture = DbFixture::new().await;
    let (account, store) = (fixture.account, store(&fixture));
    endpoint(&fixture, account, "{*}", true).await;
    let other_account = fixture.another_account().await;
    endpoint(&fixture, other_account, "{*}", true).await;
    let read_feed = async |after: Option<&str>, kind: Option<&str>, limit: i64| {
        let after = after.map(|id| WebhookEventId(id.parse().unwrap()));
        let query = FeedQuery {
            after,
            kind: kind.map(str::to_owned),
            limit,
        };
        let page = store.feed(account, &query).await.unwrap();
        let seen: Vec<String> = page
            .data
            .iter()
            .map(|event| format!("{}{}", event.kind, event.data["n"]))
            .collect();
        (seen.join(" "), page.next_cursor, page.has_more)
    };
    assert_eq!(read_feed(None, None, 5).await, (String::new(), None, false));
    emit(&fixture, account, WebhookKind::MessageSent, 3).await;
    emit(&fixture, other_account, WebhookKind::MessageSent, 3).await;
    emit(&fixture, account, WebhookKind::MessageRead, 2).await;
    let (seen, first, more) = read_feed(None, None, 2).await;
    assert_eq!((seen.as_str(), more), ("message.sent0 message.sent1", true));
    let (seen, end, more) = read_feed(first.as_deref(), None, 9).await;
    assert_eq!(
        (seen.as_str(), more),
        ("message.sent2 message.read0 message.read1", false)
    );
    let end = end.unwrap();
    assert_eq!(
        read_feed(Some(&end), None, 9).await,
        (String::new(), Some(end.clone()), false)
    );
    emit(&fixture, account, WebhookKind::MessageRead, 1).await;
    let (seen, latest, more) = read_feed(Some(&end), None, 9).await;
    assert_eq!((seen.as_str(), more), ("message.read0", false));
    // With a kind: the cursor also passes the events that do not match.
    let (seen, at, more) = read_feed(None, Some("message.sent"), 9).await;
    assert_eq!(
        (seen.as_str(), at == latest, more),
        ("message.sent0 message.sent1 message.sent2", true, false)
    );
    let (seen, _, more) = read_feed(None, Some("message.read"), 2).await;
    assert_eq!((seen.as_str(), more), ("message.read0 message.read1", true));
    assert_eq!(
        read_feed(None, Some("order.recorded"), 9).await,
        (String::new(), latest, false)
    );
    // A cursor stays valid after its event is deleted.
    fixture
        .sql(&format!("DELETE FROM webhook_events WHERE id = '{end}'"))
        .await;
    assert_eq!(read_feed(Some(&end), None, 9).await.0, "message.read0");
}

#[tokio::test]
async fn long_endpoint_queue_does_not_delay_others() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let long = WebhookId(endpoint(&fixture, account, "{message.sent}", true).await);
    let short = WebhookId(endpoint(&fixture, account, "{message.read}", true).await);
    fixture
        .sql(&format!(
            "INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
               SELECT '{account}', lpad(i::text, 32, '0')::uuid, 'message.sent', '{{}}', now() FROM generate_series(1, 20000) i;
             INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id)
               SELECT '{account}', lpad(i::text, 32, '0')::uuid, '{long}' FROM generate_series(1, 20000) i;
             ANALYZE webhook_deliveries"
        ))
        .await;
    // The shortest of several claims: a busy machine slows single ones down.
    let mut shortest = std::time::Duration::MAX;
    for _ in 0..5 {
        emit(&fixture, account, WebhookKind::MessageRead, 1).await;
        let began = std::time::Instant::now();
        let claimed = claim(&fixture, &[(long, 0)], 9).await;
        shortest = began.elapsed().min(shortest);
        assert_eq!((claimed.len(), claimed[0].key.endpoint_id), (1, short));
    }
    assert!(shortest < std::time::Duration::from_millis(500), "{shortest:?}");
}
