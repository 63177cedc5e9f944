//! Queues behind an old snapshot: a claim costs the same as without it, and the marks lose and delay no row beyond the
//! interval of full reads. The queue without dead rows has as many rows that are not due, so its indexes are as deep.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use recado_domain::callbacks::CallbackStore;
use recado_domain::mail::MailQueue;
use recado_domain::shared::{CallbackId, EventKind};
use recado_domain::webhooks::{ClaimRequest, DeliveryQueue};
use recado_postgres::{OwnerPool, PgCallbacks, PgDeliveryQueue, PgMailQueue, PgOutbox};
use tokio_postgres::Client;

use crate::support::{DbFixture, LEASE, event, id};
use crate::webhook_events::endpoint;

/// Claims of a measurement, each of one row.
const CLAIMS: usize = 20;
/// The longest time between two full reads, and some time for a slow machine.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(60 + 15);
/// A connection reports its statistics at most once a second.
const STATISTICS_INTERVAL: Duration = Duration::from_millis(1100);

/// Rows that are inserted and deleted while a snapshot is held: `RECADO_DEAD_ROWS`, or enough to be noticed.
fn dead_rows() -> usize {
    let rows = std::env::var("RECADO_DEAD_ROWS")
        .ok()
        .and_then(|rows| rows.parse().ok());
    rows.unwrap_or(40_000)
}

/// One connection, so that its statistics include every claim.
fn pool(fixture: &DbFixture) -> OwnerPool {
    let mut config = fixture.db.config();
    config.size = 1;
    OwnerPool::new(&config).unwrap()
}

/// Opens a transaction whose snapshot prevents the removal of row versions.
async fn hold_snapshot(fixture: &DbFixture) -> Client {
    let holder = fixture.db.client().await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM accounts";
    holder.batch_execute(begin).await.unwrap();
    holder
}

/// Pages of a table and its indexes that were read so far.
async fn pages(fixture: &DbFixture, table: &str) -> i64 {
    fixture.sql("SELECT pg_stat_clear_snapshot()").await;
    let query = format!(
        "SELECT heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)
         FROM pg_statio_user_tables WHERE relname = '{table}'"
    );
    fixture.number(&query).await
}

/// The mean number of pages that a call reads. `CLAIMS + 5` calls are made.
async fn pages_per_call(fixture: &DbFixture, table: &str, call: &impl AsyncFn()) -> f64 {
    fixture.sql("SELECT pg_stat_force_next_flush()").await;
    for _ in 0..4 {
        call().await;
    }
    tokio::time::sleep(STATISTICS_INTERVAL).await;
    call().await;
    let before = pages(fixture, table).await;
    for _ in 1..CLAIMS {
        call().await;
    }
    tokio::time::sleep(STATISTICS_INTERVAL).await;
    call().await;
    let read = pages(fixture, table).await - before;
    f64::from(i32::try_from(read).unwrap()) / f64::from(u8::try_from(CLAIMS).unwrap())
}

/// Asserts that calls cost at most twice as much with dead rows behind a held snapshot. `live` inserts the rows of a
/// measurement. A full read may fall into one, and transactions of other tests may hold the mark of the outbox back, so
/// there are several tries. The gaps between them grow: full reads can be as far apart as tries with a fixed gap, and
/// would fall into every one.
async fn assert_same_cost(fixture: &DbFixture, table: &str, live: &str, without: f64, call: impl AsyncFn()) {
    assert!(without > 1.0, "nothing was read");
    let mut costs = Vec::new();
    for gap in (1..=8).map(|n| Duration::from_secs(2 * n)) {
        fixture.sql(live).await;
        let with = pages_per_call(fixture, table, &call).await;
        if with <= 2.0 * without {
            return;
        }
        costs.push(with);
        tokio::time::sleep(gap).await;
    }
    panic!("{table}: {without} pages without, {costs:?} with dead rows");
}

/// The cost without dead rows. A full read may fall into a measurement, so the lower of two counts.
async fn cost_without(fixture: &DbFixture, table: &str, live: &str, call: &impl AsyncFn()) -> f64 {
    fixture.sql(live).await;
    let first = pages_per_call(fixture, table, call).await;
    fixture.sql(live).await;
    pages_per_call(fixture, table, call).await.min(first)
}

/// Waits until a call succeeds, at most for the interval of full reads.
async fn eventually(what: &str, call: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !call().await {
        assert!(began.elapsed() < FULL_READ_INTERVAL, "{what} was not found");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn callback_claims_ignore_dead_rows_behind_a_snapshot() {
    let fixture = DbFixture::new().await;
    let callbacks = PgCallbacks::new(pool(&fixture));
    let insert = "INSERT INTO whatsapp_callbacks (id, body, due_at) SELECT gen_random_uuid(), '', clock_timestamp()";
    let live = format!("{insert} FROM generate_series(1, {CLAIMS} + 5)");
    fixture
        .sql(&format!(
            "{insert} + interval '1 day' FROM generate_series(1, {})",
            dead_rows()
        ))
        .await;
    let claim = async || {
        let claimed = callbacks.claim(LEASE).await.unwrap().unwrap();
        callbacks.delete(claimed.id).await.unwrap();
    };
    let without = cost_without(&fixture, "whatsapp_callbacks", &live, &claim).await;
    let _holder = hold_snapshot(&fixture).await;
    fixture
        .sql(&format!(
            "{insert} FROM generate_series(1, {}); DELETE FROM whatsapp_callbacks WHERE due_at < now() + interval '1 hour'",
            dead_rows()
        ))
        .await;
    assert_same_cost(&fixture, "whatsapp_callbacks", &live, without, claim).await;
    // A callback that became visible behind the mark, and its neighbour.
    let late = [id(), id()];
    for id in late {
        let due = "now() - interval '1 hour'";
        let insert = format!("INSERT INTO whatsapp_callbacks (id, body, due_at) VALUES ('{id}', '', {due})");
        fixture.sql(&insert).await;
    }
    for _ in late {
        eventually("a late callback", async || {
            let claimed = callbacks.claim(LEASE).await.unwrap();
            claimed.is_some_and(|claimed| late.contains(&claimed.id.0))
        })
        .await;
    }
}

#[tokio::test]
async fn relay_looks_ignore_dead_rows_behind_a_snapshot() {
    let fixture = DbFixture::new().await;
    let outbox = PgOutbox::new(pool(&fixture));
    let insert = format!(
        "INSERT INTO outbox_events (account_id, payload) SELECT '{}', jsonb_build_object('kind', 'audit',
           'action', 'create', 'entity_type', 'contact')",
        fixture.account
    );
    let live = format!("{insert} FROM generate_series(1, {CLAIMS} + 5)");
    let others = insert.replace("'audit'", "'webhook'");
    fixture
        .sql(&format!("{others} FROM generate_series(1, {})", dead_rows()))
        .await;
    let relay = async |limit| outbox.relay(EventKind::Audit, limit).await.unwrap();
    let relay_one = async || assert_eq!(relay(1).await, 1);
    let without = cost_without(&fixture, "outbox_events", &live, &relay_one).await;
    let _holder = hold_snapshot(&fixture).await;
    fixture
        .sql(&format!(
            "{insert} FROM generate_series(1, {}); DELETE FROM outbox_events WHERE kind = 'audit'",
            dead_rows()
        ))
        .await;
    assert_same_cost(&fixture, "outbox_events", &live, without, relay_one).await;
    // The mark waits for an open transaction that has taken a smaller number.
    let writer = fixture.db.client().await;
    writer.batch_execute(&format!("BEGIN; {insert}")).await.unwrap();
    fixture.sql(&insert).await;
    assert_eq!(relay(9).await, 1);
    for _ in 0..5 {
        assert_eq!(relay(9).await, 0);
    }
    writer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(relay(9).await, 1, "the event of the open transaction is moved at once");
    // A mark passes transactions that stay open for longer. A full read finds their events.
    let late = insert.replace(
        "(account_id, payload)",
        "(account_id, payload, seq) OVERRIDING SYSTEM VALUE",
    );
    fixture
        .sql(
            &late
                .replacen("SELECT '", "SELECT v.a, v.p, 1 FROM (SELECT '", 1)
                .replace("'contact')", "'contact')) v (a, p)")
                .replace("SELECT '", "SELECT uuid '"),
        )
        .await;
    eventually("a late event", async || relay(9).await == 1).await;
}

#[tokio::test]
async fn mail_claims_ignore_dead_rows_behind_a_snapshot() {
    let fixture = DbFixture::new().await;
    let queue = PgMailQueue::new(pool(&fixture));
    let insert = "INSERT INTO outgoing_mail (id, account_id, content, due_at)
        SELECT gen_random_uuid(), md5((n % 20)::text)::uuid, '', clock_timestamp()";
    let live = format!("{insert} FROM generate_series(1, {CLAIMS} + 5) n");
    let later = insert.replace("clock_timestamp()", "clock_timestamp() + interval '1 day'");
    fixture
        .sql(&format!("{later} FROM generate_series(1, {}) n", dead_rows()))
        .await;
    let claim = async || {
        let claimed = queue.claim(LEASE, None).await.unwrap().unwrap();
        queue.delete(claimed.mail.id).await.unwrap();
    };
    let without = cost_without(&fixture, "outgoing_mail", &live, &claim).await;
    let _holder = hold_snapshot(&fixture).await;
    fixture
        .sql(&format!(
            "{insert} FROM generate_series(1, {}) n; DELETE FROM outgoing_mail WHERE due_at < now() + interval '1 hour'",
            dead_rows()
        ))
        .await;
    // The mark of new accounts follows after a second.
    tokio::time::sleep(STATISTICS_INTERVAL).await;
    assert_eq!(queue.claim(LEASE, None).await.unwrap(), None);
    assert_same_cost(&fixture, "outgoing_mail", &live, without, claim).await;
    let late = id();
    let due = "now() - interval '1 hour'";
    let insert =
        format!("INSERT INTO outgoing_mail (id, account_id, content, due_at) VALUES ('{late}', '{late}', '', {due})");
    fixture.sql(&insert).await;
    eventually("a late mail", async || {
        let claimed = queue.claim(LEASE, None).await.unwrap();
        claimed.is_some_and(|claimed| claimed.mail.id.0 == late)
    })
    .await;
}

const ONE: ClaimRequest = ClaimRequest {
    endpoints: Vec::new(),
    others: 10,
    limit: 1,
};

#[tokio::test]
async fn delivery_claims_ignore_dead_rows_behind_a_snapshot() {
    let fixture = DbFixture::new().await;
    let queue = PgDeliveryQueue::new(pool(&fixture));
    let (account, hook) = (fixture.account, endpoint(&fixture, fixture.account, "{*}", true).await);
    fixture.sql("SET session_replication_role = replica").await;
    let insert = |endpoint: &str, rows: usize| {
        format!(
            "WITH v AS (INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
               SELECT '{account}', overlay(gen_random_uuid()::text PLACING left(first_id(now())::text, 13) FROM 1)::uuid, 'x', '{{}}', now() FROM generate_series(1, {rows}) RETURNING id)
             INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id, next_attempt_at)
             SELECT '{account}', id, {endpoint}, clock_timestamp() FROM v"
        )
    };
    let own = format!("uuid '{hook}'");
    let claim = async || {
        let claimed = queue.claim(&ONE, LEASE).await.unwrap();
        assert_eq!(claimed.len(), 1);
    };
    let later = insert(&own, dead_rows()).replace("clock_timestamp()", "clock_timestamp() + interval '1 day'");
    fixture.sql(&later).await;
    let live = insert(&own, CLAIMS + 5);
    let without = cost_without(&fixture, "webhook_deliveries", &live, &claim).await;
    let _holder = hold_snapshot(&fixture).await;
    let (half, others) = (dead_rows() / 2, "md5(left(id::text, 2))::uuid");
    fixture
        .sql(&format!(
            "{}; {}; DELETE FROM webhook_deliveries WHERE next_attempt_at < now() + interval '1 hour'",
            insert(&own, half),
            insert(others, half)
        ))
        .await;
    tokio::time::sleep(STATISTICS_INTERVAL).await;
    assert_eq!(queue.claim(&ONE, LEASE).await.unwrap(), []);
    assert_same_cost(&fixture, "webhook_deliveries", &live, without, claim).await;
    assert_eq!(queue.claim(&ONE, LEASE).await.unwrap(), []);
    let late = insert(&own, 1).replace("clock_timestamp()", "now() - interval '1 hour'");
    fixture.sql(&late).await;
    eventually("a late delivery", async || {
        !queue.claim(&ONE, LEASE).await.unwrap().is_empty()
    })
    .await;
}

/// A backlog of one kind costs the relays of other kinds nothing, also with a plan from before the backlog.
#[tokio::test]
async fn callback_claims_planned_on_an_empty_queue_use_the_index() {
    let fixture = DbFixture::new().await;
    fixture
        .sql("ALTER TABLE whatsapp_callbacks SET (autovacuum_enabled = false)")
        .await;
    fixture.sql("VACUUM ANALYZE whatsapp_callbacks").await;
    let callbacks = PgCallbacks::new(pool(&fixture));
    let claim = async || assert!(callbacks.claim(LEASE).await.unwrap().is_none());
    for _ in 0..8 {
        claim().await;
    }
    fixture
        .sql(&format!(
            "INSERT INTO whatsapp_callbacks (id, body, due_at)
             SELECT gen_random_uuid(), '{{}}', now() + interval '1 hour' FROM generate_series(1, {})",
            dead_rows()
        ))
        .await;
    let pages = pages_per_call(&fixture, "whatsapp_callbacks", &claim).await;
    assert!(pages <= 12.0, "{pages} pages");
    // Also for the row that is claimed, and deleted by its id.
    fixture
        .sql("INSERT INTO whatsapp_callbacks (id, body, due_at) SELECT gen_random_uuid(), '{}', now() FROM generate_series(1, 100)")
        .await;
    let claim_and_delete = async || {
        let claimed = callbacks.claim(LEASE).await.unwrap().unwrap();
        callbacks.delete(claimed.id).await.unwrap();
    };
    let pages = pages_per_call(&fixture, "whatsapp_callbacks", &claim_and_delete).await;
    assert!(pages <= 60.0, "{pages} pages");
}

#[tokio::test]
async fn relay_looks_ignore_the_backlog_of_other_kinds() {
    let fixture = DbFixture::new().await;
    // A connection keeps the plan that it makes for the empty table.
    fixture
        .sql("ALTER TABLE outbox_events SET (autovacuum_enabled = false)")
        .await;
    fixture.sql("VACUUM ANALYZE outbox_events").await;
    let outbox = PgOutbox::new(pool(&fixture));
    let look = async || assert_eq!(outbox.relay(EventKind::Webhook, 50).await.unwrap(), 0);
    for analyze in ["", "; ANALYZE outbox_events"] {
        for _ in 0..8 {
            look().await;
        }
        fixture
            .sql(&format!(
                "INSERT INTO outbox_events (account_id, payload) SELECT '{}', '{{\"kind\": \"audit\"}}'
                 FROM generate_series(1, {}){analyze}",
                fixture.account,
                dead_rows()
            ))
            .await;
        let pages = pages_per_call(&fixture, "outbox_events", &look).await;
        assert!(pages <= 12.0, "{pages} pages{analyze}");
    }
}

#[tokio::test]
async fn two_relays_move_every_event_of_writers_that_commit_out_of_order() {
    const WRITERS: usize = 4;
    const EVENTS: usize = 30;
    let fixture = DbFixture::new().await;
    let payload = serde_json::to_string(&event(id())).unwrap();
    let write = async |writer: usize| {
        let client = fixture.db.client().await;
        for n in 0..EVENTS {
            let insert = format!(
                "BEGIN; INSERT INTO outbox_events (account_id, payload) VALUES ('{}', '{payload}')",
                fixture.account
            );
            client.batch_execute(&insert).await.unwrap();
            let pause = u64::try_from((writer * 7 + n * 11) % 30).unwrap();
            tokio::time::sleep(Duration::from_millis(pause)).await;
            client.batch_execute("COMMIT").await.unwrap();
        }
    };
    let written = i64::try_from(WRITERS * EVENTS).unwrap();
    let relay = async || {
        let outbox = fixture.outbox();
        let deadline = Instant::now() + FULL_READ_INTERVAL;
        while fixture.number("SELECT count(*) FROM audit_logs").await < written {
            outbox.relay(EventKind::Audit, 3).await.unwrap();
            assert!(Instant::now() < deadline, "an event was not moved");
        }
    };
    tokio::join!(join_all((0..WRITERS).map(write)), relay(), relay());
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM audit_logs").await, written);
    fixture.assert_audit_counts().await;
}

/// One worker finds rows that become due in any way without waiting for a full read.
#[tokio::test]
async fn worker_continues_with_new_released_and_retried_rows() {
    let fixture = DbFixture::new().await;
    let callbacks = PgCallbacks::new(fixture.owner.clone());
    for _ in 0..3 {
        assert_eq!(callbacks.claim(LEASE).await.unwrap(), None);
        let stored = CallbackId(id());
        callbacks.store(stored, b"{}", time::Duration::ZERO).await.unwrap();
        assert_eq!(callbacks.claim(LEASE).await.unwrap().unwrap().id, stored);
        callbacks.postpone(stored, time::Duration::ZERO).await.unwrap();
        assert_eq!(callbacks.claim(LEASE).await.unwrap().unwrap().id, stored);
        callbacks.delete(stored).await.unwrap();
    }
    let queue = PgDeliveryQueue::new(fixture.owner.clone());
    let account = fixture.account;
    let claim = async || queue.claim(&ONE, LEASE).await.unwrap();
    for _ in 0..3 {
        assert_eq!(claim().await, []);
        let hook = endpoint(&fixture, account, "{*}", true).await;
        let event = id();
        fixture
            .sql(&format!(
                "INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
                   VALUES ('{account}', '{event}', 'x', '{{}}', now());
                 INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id)
                   VALUES ('{account}', '{event}', '{hook}')"
            ))
            .await;
        let claimed = claim().await;
        assert_eq!(claimed.len(), 1);
        assert_eq!(claim().await, []);
        queue.release(&[(claimed[0].key, claimed[0].claim)]).await.unwrap();
        let again = claim().await;
        assert_eq!((again.len(), again[0].key), (1, claimed[0].key));
    }
}
