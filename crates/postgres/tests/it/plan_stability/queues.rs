//! Queues and keys of an account that the planner's statistics do not contain.

use recado_domain::direct_messages::DirectMessageQueue as _;
use recado_domain::idempotency::{IdempotencyStore, KeyState, LEASE};
use recado_domain::shared::AccountId;
use recado_postgres::{PgDirectMessageQueues, PgIdempotency, PgQueues};

use super::fixture::{PART, ROWS};
use crate::error_codes::ERROR_CODES;
use crate::idempotency::claim;
use crate::support::{DbFixture, event, id};

pub(super) async fn relayed_events_use_index_lookups(mut fixture: DbFixture) {
    let audit = serde_json::to_string(&event(id())).unwrap();
    let webhook = r#"{"kind": "webhook", "type": "message.sent", "items": [{}]}"#;
    fixture
        .sql(&format!(
            "INSERT INTO audit_logs (account_id, id, action, entity_type, created_at)
               SELECT '{0}', gen_random_uuid(), 'update', 'campaign', now() FROM generate_series(1, {ROWS});
             INSERT INTO outbox_events (account_id, payload)
               SELECT '{0}', p::jsonb FROM unnest(ARRAY['{audit}', '{webhook}']) p, generate_series(1, {PART})",
            fixture.account
        ))
        .await;
    fixture.count_reads().await;
    assert_eq!(fixture.relay().await, 2 * PART);
    fixture.assert_looked_up("relayed events").await;
}

pub(super) async fn idempotency_keys_use_index_lookups(mut fixture: DbFixture) {
    let keys = |scopes: &str| {
        format!(
            "INSERT INTO idempotency_keys (scope, key, holder, leased_until)
               SELECT s, 'k' || i, s, now() + interval '1 hour' FROM {scopes}, generate_series(1, {ROWS}) i;
             INSERT INTO idempotency_key_counts (scope, day, slot, keys)
               SELECT s, current_date - i, 0, 1 FROM {scopes}, generate_series(1, {ROWS}) i;"
        )
    };
    let others = keys("(SELECT md5('s' || n)::uuid FROM generate_series(1, 10) n) o (s)");
    let own = keys(&format!("(SELECT '{}'::uuid) o (s)", fixture.account));
    fixture
        .sql(&format!(
            "{others} ANALYZE idempotency_keys, idempotency_key_counts; {own}"
        ))
        .await;
    fixture.count_reads().await;
    let store = PgIdempotency::new(fixture.owner.clone());
    for i in 1..=PART {
        for (key, state) in [
            (format!("new{i}"), KeyState::Free),
            (format!("k{i}"), KeyState::Running),
        ] {
            assert_eq!(store.claim(&claim(&fixture, &key), LEASE).await.unwrap(), state);
        }
    }
    drop(store);
    fixture.assert_looked_up("claimed idempotency keys").await;
}

/// Queue depths are counted over all accounts, but only rows that wait are read.
pub(super) async fn queue_depths_read_waiting_rows_only(mut fixture: DbFixture) {
    fixture
        .sql(&format!(
            "UPDATE webhook_deliveries SET state = 'failed', failed_at = now();
             UPDATE campaign_sends SET unknown_at = now() FROM generate_series(1, {PART}) i
               WHERE account_id = '{0}' AND id = key('{0}', i)",
            fixture.account
        ))
        .await;
    fixture.count_reads().await;
    let queues = PgQueues::new(fixture.owner.clone()).read().await.unwrap();
    let unknown = queues.iter().find(|queue| queue.name == "sends_unknown").unwrap();
    assert_eq!(unknown.depth, i64::try_from(PART).unwrap());
    fixture.assert_looked_up("queue depths").await;
}

/// Many accounts have settings. Two of them hold messages, and one has changed its settings since.
pub(super) async fn held_messages_are_found_by_those_that_are_held(mut fixture: DbFixture) {
    let (account, other) = (fixture.account, fixture.another_account().await);
    let held = |account: AccountId| {
        format!(
            "UPDATE direct_messages SET hold_rule = 'cap', due_at = now() + interval '1 day', status = 'pending',
               held_settings_at = '2026-01-02' WHERE account_id = '{account}' AND id IN
               (SELECT key('{account}', i) FROM generate_series(1, {PART}) i);"
        )
    };
    fixture
        .sql(&format!(
            "SET session_replication_role = replica;
             INSERT INTO account_settings (account_id, quiet_hours, holds_changed_at, updated_at)
               SELECT a, '{{}}', '2026-01-03', now() FROM (SELECT '{account}'::uuid UNION ALL
                 SELECT gen_random_uuid() FROM generate_series(1, 2 * {ROWS})) s (a);
             INSERT INTO account_settings (account_id, quiet_hours, holds_changed_at, updated_at)
               VALUES ('{other}', '{{}}', '2026-01-02', now());
             INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, send_at, expires_at,
                 created_by, created_at, updated_at)
               SELECT '{other}', key('{other}', i), key('{other}', i), key('{other}', 0), 'text', '{{}}', now(), now(),
                 '{other}', now(), now() FROM generate_series(1, {PART}) i ON CONFLICT DO NOTHING;
             {} {} SET session_replication_role = origin",
            held(account),
            held(other),
        ))
        .await;
    fixture.count_reads().await;
    let (limit, part) = (i64::try_from(ROWS).unwrap(), u64::try_from(PART).unwrap());
    let queues = PgDirectMessageQueues::new(fixture.tenants.clone(), fixture.owner.clone(), ERROR_CODES);
    assert_eq!(queues.release_holds(limit).await.unwrap(), part);
    assert_eq!(queues.release_holds(limit).await.unwrap(), 0);
    drop(queues);
    fixture.assert_looked_up("held messages").await;
}
