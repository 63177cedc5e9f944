//! An account whose rows the planner's statistics do not contain, and the rows that queries read of it.

use std::time::{Duration, Instant};

use recado_domain::shared::{AccountId, CursorQuery, TimeCursor};
use recado_testkit::DEADLINE;
use uuid::Uuid;

use crate::support::DbFixture;

/// The account's rows per table.
pub(super) const ROWS: usize = 1000;
/// The rows that a call reads or writes.
pub(super) const PART: usize = 40;

pub(super) const FIRST_PAGE: CursorQuery = CursorQuery {
    cursor: None,
    limit: 40,
};

pub(super) fn newest() -> CursorQuery<TimeCursor> {
    CursorQuery {
        cursor: None,
        limit: FIRST_PAGE.limit,
    }
}

/// The accounts in the planner's statistics.
#[derive(Clone, Copy)]
pub(super) enum PlannerStatistics {
    /// One account with ten times the rows.
    Large,
    /// Many accounts with a few rows each: the average account is smaller than a batch of keys.
    Small,
}

/// The number of small accounts, and the rows per table of each.
const SMALL_ACCOUNTS: usize = 300;
const SMALL_ROWS: usize = 5;

/// SQL that inserts `rows` rows into every table for each of `accounts` (`a`), but at most ten tags. A query by tag
/// name reads all tags of the account: under a row-level policy `lower`, which is not leakproof, cannot use an index.
fn rows_of(accounts: &str, rows: usize) -> String {
    "INSERT INTO contacts (account_id, id, name, phone, wa_id)
       SELECT a, key(a, i), 'Ana', '+55119' || lpad(i::text, 8, '0'), '55119' || lpad(i::text, 8, '0') FROM i;
     INSERT INTO tags (account_id, id, name) SELECT a, key(a, i), 'tag ' || i FROM i WHERE i <= 10;
     INSERT INTO contact_tags (account_id, contact_id, tag_id) SELECT a, key(a, i), key(a, i % 10 + 1) FROM i;
     INSERT INTO segment_members (account_id, segment_id, contact_id) SELECT a, key(a, i / 1000), key(a, i) FROM i;
     INSERT INTO campaigns (account_id, id, name, status, quota_month)
       SELECT a, key(a, i), 'x', 'sending', '2026-03-01' FROM i;
     INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, wa_message_id, started_at)
       SELECT a, key(a, i), key(a, 1), key(a, i), 's' || i, now() FROM i;
     INSERT INTO sent_messages (account_id, wa_message_id, send_id) SELECT a, 's' || i, key(a, i) FROM i;
     INSERT INTO conversations (account_id, id, contact_id, last_message_at)
       SELECT a, key(a, i), key(a, i), now() FROM i;
     INSERT INTO messages (account_id, id, conversation_id, direction, type, status, wa_message_id, created_at)
       SELECT a, key(a, i), key(a, i), 'outbound', 'text', 'sent', 'm' || i, now() FROM i;
     INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, client_reference, status,
         send_at, expires_at, due_at, wa_message_id, created_by, created_at, updated_at)
       SELECT a, key(a, i), key(a, i), key(a, 0), 'text', '{\"content\": {\"free_form\": {\"text\": \"oi\"}}}', 'r' || i,
         CASE i % 4 WHEN 1 THEN 'sent' WHEN 2 THEN 'read' ELSE 'pending' END, now(), now() + interval '1 day',
         CASE WHEN i % 4 IN (0, 3) THEN now() END, 'd' || i, a, now(), now() FROM i;
     INSERT INTO direct_message_queues (account_id, profile_id, due_at)
       SELECT a, key(a, 0), now() FROM a;
     INSERT INTO orders (account_id, id, platform, external_id, status, total, placed_at)
       SELECT a, key(a, i), 'loja', i::text, 'pending', 1, now() FROM i;
     INSERT INTO order_keys (account_id, platform, external_id, order_id)
       SELECT a, 'loja', i::text, key(a, i) FROM i;
     INSERT INTO order_items (account_id, order_id, position, product_id, name, quantity, price)
       SELECT a, key(a, i), 0, 'p', 'Bolo', 1, 1 FROM i;
     INSERT INTO carts (account_id, id, platform, external_id, total, status, created_at)
       SELECT a, key(a, i), 'loja', i::text, 1, 'abandoned', now() FROM i;
     INSERT INTO metrics (account_id, metric_name) SELECT a, 'metric ' || i FROM i;
     INSERT INTO metric_contacts (account_id, metric_name, contact_id)
       SELECT a, 'metric ' || i, key(a, i) FROM i;
     INSERT INTO metric_events (account_id, id, metric_name, contact_id, source, occurred_at)
       SELECT a, key(a, i), 'metric ' || i, key(a, i), 'site', now() FROM i;
     INSERT INTO metric_event_keys (account_id, id, occurred_at) SELECT a, key(a, i), now() FROM i;
     INSERT INTO notifications (account_id, id, type, title, message, seq)
       SELECT a, key(a, i), 'info', 'x', 'y', i FROM i;
     INSERT INTO webhook_events (account_id, id, type, payload, occurred_at, seq)
       SELECT a, key(a, i), 'message.sent', '{}', now(), i FROM i;
     INSERT INTO webhook_endpoints (account_id, id, name, direction, url, events, secret, secret_hint)
       SELECT a, key(a, 1), 'x', 'outbound', 'https://e.example', '{*}', '', '' FROM a;
     INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id)
       SELECT a, key(a, i), key(a, 1) FROM i;
     INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id, created_at)
       SELECT a, key(a, i), key(a, 1), 'outbound', 'message.sent', i::text, key(a, i),
         now() - i % 1000 * interval '1 s' FROM i;"
        .replace("FROM i", &format!("FROM a, generate_series(1, {rows}) i"))
        .replace("FROM a", &format!("FROM ({accounts}) s (a)"))
}

/// An account inserted after `ANALYZE` of other accounts. Keys grow with time, as those of the product.
pub(super) async fn unanalyzed_account(statistics: PlannerStatistics) -> DbFixture {
    let fixture = DbFixture::new().await;
    let analyzed_rows = match statistics {
        PlannerStatistics::Large => rows_of(
            &format!("SELECT '{}'::uuid", fixture.another_account().await),
            10 * ROWS,
        ),
        PlannerStatistics::Small => {
            let accounts = format!("SELECT md5('small' || n)::uuid FROM generate_series(1, {SMALL_ACCOUNTS}) n");
            rows_of(&accounts, SMALL_ROWS)
        }
    };
    let unanalyzed_rows = rows_of(&format!("SELECT '{}'::uuid", fixture.account), ROWS);
    fixture
        .sql(&format!(
            "CREATE FUNCTION key(account uuid, i int) RETURNS uuid LANGUAGE sql IMMUTABLE
               AS 'SELECT (lpad(to_hex(i), 12, ''0'') || substr(md5(account::text || i), 13))::uuid';
             SET session_replication_role = replica;
             INSERT INTO segments (account_id, id, name) VALUES ('{0}', key('{0}', 0), 'full'), ('{0}', key('{0}', 3), 'empty');
             INSERT INTO campaign_counter_slots (account_id, campaign_id, slot, total, pending)
               VALUES ('{0}', key('{0}', 1), 0, {ROWS}, {ROWS});
             {analyzed_rows} ANALYZE; {unanalyzed_rows}
             SET session_replication_role = origin;",
            fixture.account
        ))
        .await;
    fixture
}

impl DbFixture {
    /// The unanalyzed account and, if another one has more rows, that one, each with its number of rows.
    pub(super) async fn both(&self) -> Vec<(AccountId, usize)> {
        let most = "SELECT account_id FROM contacts GROUP BY 1 ORDER BY count(*) DESC LIMIT 1";
        let most: Uuid = self.text(&format!("({most})")).await.unwrap().parse().unwrap();
        let mut accounts = vec![(self.account, ROWS)];
        if most != self.account.0 {
            accounts.push((most.into(), 10 * ROWS));
        }
        accounts
    }

    /// The key of the account's row number `i`, the same in every table.
    pub(super) async fn key(&self, i: usize) -> Uuid {
        let key = self.text(&format!("key('{}', {i})", self.account)).await.unwrap();
        key.parse().unwrap()
    }

    /// Gives the sends of campaign `i` the ids that its freeze would give them.
    pub(super) async fn freeze(&self, i: usize) {
        let at = format!("2020-01-{i:02} 00:00Z");
        let account = self.account;
        self.sql(&format!(
            "UPDATE campaigns SET frozen_at = '{at}' WHERE account_id = '{account}' AND id = key('{account}', {i});
             UPDATE campaign_sends SET id = send_id('{at}', campaign_id, contact_id), created_at = '{at}'
               WHERE account_id = '{account}' AND campaign_id = key('{account}', {i})"
        ))
        .await;
    }

    pub(super) async fn keys(&self) -> Vec<Uuid> {
        let mut keys = vec![];
        for i in 1..=PART {
            keys.push(self.key(i).await);
        }
        keys
    }

    /// Resets the counters of read rows; connections opened later are counted.
    pub(crate) async fn count_reads(&mut self) {
        self.close().await;
        self.sql("SELECT pg_stat_force_next_flush()").await;
        self.sql("SELECT pg_stat_reset()").await;
    }

    /// Closes all connections, because a connection reports its reads when it closes.
    pub(crate) async fn close(&mut self) {
        (self.tenants, self.owner) = (self.db.tenant_pool(), self.db.owner_pool());
        let deadline = Instant::now() + DEADLINE;
        let open = "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND application_name LIKE 'recado %'";
        while self.number(open).await > 0 {
            assert!(Instant::now() < deadline, "connections stay open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.sql("SELECT pg_stat_clear_snapshot()").await;
    }

    /// Asserts that rows were read, but from no table all rows of the account.
    pub(super) async fn assert_looked_up(&mut self, operation: &str) {
        self.assert_few_of(ROWS, operation).await;
    }

    /// The same assertion for an account of `rows` rows per table.
    pub(super) async fn assert_few_of(&mut self, rows: usize, operation: &str) {
        self.close().await;
        let read =
            "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS n, relname FROM pg_stat_user_tables";
        let read_tables = self
            .number(&format!("SELECT count(*) FROM ({read}) r WHERE n >= {PART}"))
            .await;
        assert!(read_tables > 0, "{operation}: nothing was looked up");
        let many = format!("SELECT string_agg(relname || ' ' || n, ', ') FROM ({read}) r WHERE n >= {rows}");
        assert_eq!(
            self.text(&many).await,
            None,
            "{operation}: all rows were read to find {PART}"
        );
    }
}
