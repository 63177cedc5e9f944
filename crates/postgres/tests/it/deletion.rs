//! Account deletion: it removes every row of the account and no other row.

use std::collections::BTreeMap;
use std::time::Instant;

use recado_domain::administration::{AdministrationStore, DeletionStore};
use recado_domain::shared::AccountId;
use recado_postgres::{PgAdministration, PgDeletions};
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, platform_entry};

/// The number of rows that contain the account's id, per table of the catalog that has any.
async fn account_rows(fixture: &DbFixture, account: AccountId) -> BTreeMap<String, i64> {
    let tables = "SELECT string_agg(format('SELECT %L AS name, count(*) AS n FROM %I t WHERE t::text LIKE %L',
        table_name, table_name, '%' || $ACCOUNT || '%'), ' UNION ALL ')
      FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
        AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)";
    let counts = fixture
        .text(&tables.replace("$ACCOUNT", &format!("'{account}'")))
        .await
        .unwrap();
    let found = fixture.client.query(&counts, &[]).await.unwrap();
    found
        .iter()
        .map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1)))
        .filter(|(_, n)| *n > 0)
        .collect()
}

/// Inserts a row into every table that has an `account_id`. Columns without a default get a value of their type from
/// the catalog; references get ids of the account.
async fn fill_every_table(fixture: &DbFixture, account: AccountId) {
    // Check constraints do not matter here.
    let checks = "SELECT string_agg(format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname), ';')
      FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND conrelid <> 0
        AND coninhcount = 0";
    if let Some(checks) = fixture.text(checks).await {
        fixture.sql(&checks).await;
    }
    fixture
        .sql(
            "CREATE OR REPLACE FUNCTION pg_temp.filled(kind text, name text, account uuid) RETURNS text
             LANGUAGE plpgsql AS $f$
             BEGIN
               RETURN CASE
                 WHEN name = 'account_id' OR name = 'scope' THEN quote_literal(account) || '::uuid'
                 WHEN kind = 'uuid' THEN quote_literal('00000000' || substr(md5('thing' || account), 9)) || '::uuid'
                 WHEN kind IN ('text', 'character varying') THEN quote_literal('t' || account)
                 WHEN kind = 'bytea' THEN quote_literal('\\x' || md5(account::text)) || '::bytea'
                 WHEN kind = 'jsonb' THEN quote_literal('{}') || '::jsonb'
                 WHEN kind = 'ARRAY' THEN quote_literal('{}')
                 WHEN kind = 'boolean' THEN 'false'
                 WHEN kind LIKE 'timestamp%' THEN 'now()'
                 WHEN kind = 'date' THEN 'current_date'
                 WHEN kind = 'interval' THEN quote_literal('1 s')
                 ELSE '1' END;
             END $f$;",
        )
        .await;
    let statements = format!(
        "WITH wanted AS (
           SELECT c.table_name, c.column_name, c.data_type
           FROM information_schema.columns c
           JOIN information_schema.tables t ON t.table_schema = 'public' AND t.table_name = c.table_name
             AND t.table_type = 'BASE TABLE' AND t.table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)
           WHERE c.table_schema = 'public' AND c.is_nullable = 'NO' AND c.column_default IS NULL
             AND c.is_identity = 'NO' AND c.is_generated = 'NEVER'
             AND EXISTS (SELECT FROM information_schema.columns a WHERE a.table_schema = 'public'
               AND a.table_name = c.table_name AND a.column_name IN ('account_id', 'scope')))
         SELECT string_agg(format('INSERT INTO %I (%s) VALUES (%s) ON CONFLICT DO NOTHING', table_name, names, filled), ';')
         FROM (SELECT table_name, string_agg(quote_ident(column_name), ', ') AS names,
             string_agg(pg_temp.filled(data_type, column_name, '{account}'), ', ') AS filled
           FROM wanted WHERE table_name NOT IN
             ('account_users', 'account_deletions', 'gateway_cancellations', 'platform_audit')
           GROUP BY table_name) t"
    );
    let inserts = fixture.text(&statements).await.unwrap();
    // All references use the same ids; replica mode skips the foreign key checks meanwhile.
    fixture.sql("SET session_replication_role = replica").await;
    fixture.sql(&inserts).await;
    let thing = format!("('00000000' || substr(md5('thing{account}'), 9))::uuid");
    fixture
        .sql(&format!(
            "SET session_replication_role = DEFAULT;
             UPDATE subscriptions SET status = 'active', gateway_subscription_id = 'sub' || account_id
               WHERE account_id = '{account}';
             INSERT INTO phone_number_send_slots (phone_number_id, next_slot_at) VALUES ('t{account}', now()),
               ('shared', now())
               ON CONFLICT DO NOTHING;
             INSERT INTO whatsapp_numbers VALUES ('shared', '{account}', 'w');
             INSERT INTO gateway_events (id, key, event, gateway_subscription_id, data)
               VALUES ({thing}, 'k{account}', 'e', 't{account}', '{{}}');"
        ))
        .await;
}

/// The number of rows per table.
async fn row_counts(fixture: &DbFixture) -> BTreeMap<String, i64> {
    let tables =
        "SELECT string_agg(format('SELECT %L AS name, count(*) AS n FROM %I', table_name, table_name), ' UNION ALL ')
      FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
        AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)";
    let counts = fixture.text(tables).await.unwrap();
    let found = fixture.client.query(&counts, &[]).await.unwrap();
    found
        .iter()
        .map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1)))
        .collect()
}

/// What remains of an account: the entry of the platform audit log about its deletion.
fn remaining_entry() -> BTreeMap<String, i64> {
    BTreeMap::from([("platform_audit".to_owned(), 1)])
}

async fn remove(store: &PgDeletions, account: AccountId) {
    while store.purge(account, LEASE).await.unwrap().has_more() {}
    store.end(account).await.unwrap();
}

#[tokio::test]
async fn account_deletion_removes_exactly_its_rows() {
    let fixture = DbFixture::new().await;
    let store = PgDeletions::new(fixture.owner.clone());
    let bystander = fixture.another_account().await;
    fill_every_table(&fixture, bystander).await;
    let (before, bystander_rows) = (row_counts(&fixture).await, account_rows(&fixture, bystander).await);
    let account = fixture.another_account().await;
    fill_every_table(&fixture, account).await;
    let rows = account_rows(&fixture, account).await;
    let with_account = "SELECT count(*) FROM information_schema.columns JOIN information_schema.tables t
        USING (table_schema, table_name)
      WHERE table_schema = 'public' AND column_name = 'account_id' AND t.table_type = 'BASE TABLE'
        AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)";
    let tables = fixture.number(with_account).await;
    // account_deletions, gateway_cancellations and platform_audit are empty; accounts, idempotency_keys,
    // idempotency_key_counts, gateway_events and phone_number_send_slots name the account in another column.
    assert_eq!(i64::try_from(rows.len()).unwrap(), tables - 3 + 5, "{rows:?}");

    assert!(
        store
            .begin(account, LEASE, NOW, platform_entry(account))
            .await
            .unwrap()
            .is_done()
    );
    assert!(
        !store
            .begin(account, LEASE, NOW, platform_entry(account))
            .await
            .unwrap()
            .is_done(),
        "the account no longer exists"
    );
    let cancellations = store.cancellations(account).await.unwrap();
    assert_eq!(cancellations.len(), 1);
    assert_eq!(cancellations[0].gateway_subscription_id, Some(format!("sub{account}")));
    assert!(
        PgAdministration::new(fixture.owner.clone())
            .account(account)
            .await
            .unwrap()
            .is_none()
    );
    remove(&store, account).await;
    let remaining = account_rows(&fixture, account).await;
    assert_eq!(
        remaining.keys().collect::<Vec<_>>(),
        ["gateway_cancellations", "platform_audit"],
        "one remains until the gateway has confirmed, the other for ever"
    );
    store
        .delete_cancellation(cancellations[0].subscription_id)
        .await
        .unwrap();
    assert_eq!(account_rows(&fixture, account).await, remaining_entry());
    let mut after = row_counts(&fixture).await;
    assert_eq!(after.insert("platform_audit".to_owned(), 0), Some(1));
    assert_eq!(after, before);
    assert_eq!(account_rows(&fixture, bystander).await, bystander_rows);
}

#[tokio::test]
async fn account_deletion_of_a_large_account_runs_in_batches() {
    let fixture = DbFixture::new().await;
    let store = PgDeletions::new(fixture.owner.clone());
    let campaign = fixture.stored_draft().await;
    fixture.add_contacts(4_500).await;
    fixture
        .sql(&format!(
            "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
             SELECT account_id, send_id(now(), '{0}', id), '{0}', id FROM contacts",
            campaign.id
        ))
        .await;
    assert!(
        store
            .begin(fixture.account, LEASE, NOW, platform_entry(fixture.account))
            .await
            .unwrap()
            .is_done()
    );
    let mut batches = 1;
    while store.purge(fixture.account, LEASE).await.unwrap().has_more() {
        batches += 1;
    }
    assert_eq!(batches, 5, "slightly more than 9,000 rows in batches of 2,000");
    store.end(fixture.account).await.unwrap();
    assert_eq!(account_rows(&fixture, fixture.account).await, remaining_entry());
}

/// The largest tables, and the contacts that they reference.
const LARGE: [&str; 7] = [
    "orders",
    "order_keys",
    "carts",
    "metric_events",
    "metric_event_keys",
    "metric_contacts",
    "contacts",
];

/// Inserts `rows` rows into each large table, with autovacuum disabled.
async fn large_account(fixture: &DbFixture, rows: usize) {
    let mut statements = String::from("SET session_replication_role = replica;");
    // A partitioned table has no storage parameters: its partitions have.
    let heaps = format!(
        "SELECT string_agg(format('ALTER TABLE %s SET (autovacuum_enabled = false);', relid), '')
         FROM unnest(ARRAY['{}']) t CROSS JOIN pg_partition_tree(t::regclass) WHERE isleaf",
        LARGE.join("','")
    );
    statements.push_str(&fixture.text(&format!("({heaps})")).await.unwrap());
    statements.push_str(
        &"INSERT INTO contacts (account_id, id, name) SELECT 'A', md5('c' || i)::uuid, 'Ana' FROM i;
          INSERT INTO orders (account_id, id, platform, external_id, contact_id, status, total, placed_at)
            SELECT 'A', ('00000000' || substr(md5('o' || i), 9))::uuid, 'loja', i::text, md5('c' || i)::uuid,
              'pending', 1, now() FROM i;
          INSERT INTO order_keys SELECT account_id, platform, external_id, id FROM orders;
          INSERT INTO carts (account_id, id, platform, external_id, contact_id, total, status, created_at)
            SELECT 'A', md5('k' || i)::uuid, 'loja', i::text, md5('c' || i)::uuid, 1, 'abandoned', now() FROM i;
          INSERT INTO metrics (account_id, metric_name) VALUES ('A', 'm');
          INSERT INTO metric_contacts (account_id, metric_name, contact_id) SELECT 'A', 'm', md5('c' || i)::uuid FROM i;
          INSERT INTO metric_events (account_id, id, metric_name, contact_id, source, occurred_at)
            SELECT 'A', md5('e' || i)::uuid, 'm', md5('c' || i)::uuid, 'site', now() FROM i;
          INSERT INTO metric_event_keys SELECT account_id, id, occurred_at FROM metric_events;
          SET session_replication_role = DEFAULT; ANALYZE"
            .replace("FROM i", &format!("FROM generate_series(1, {rows}) i"))
            .replace("'A'", &format!("'{}'", fixture.account)),
    );
    fixture.sql(&statements).await;
}

/// The pages of tables and indexes read so far, reported by connections when they close.
async fn pages_read(fixture: &mut DbFixture) -> i64 {
    fixture.close().await;
    let pages = "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))
      FROM pg_statio_user_tables";
    fixture.number(pages).await
}

/// Manual runs use `RECADO_ROWS=200000`: even then a batch stays far below the statement timeout.
#[tokio::test]
async fn account_deletion_reads_bounded_pages_per_row() {
    let mut fixture = DbFixture::new().await;
    let rows = std::env::var("RECADO_ROWS").map_or(12_000, |rows| rows.parse().unwrap());
    large_account(&fixture, rows).await;
    assert!(
        PgDeletions::new(fixture.owner.clone())
            .begin(fixture.account, LEASE, NOW, platform_entry(fixture.account))
            .await
            .unwrap()
            .is_done()
    );
    let (began, before) = (Instant::now(), pages_read(&mut fixture).await);
    let (mut batches, mut longest) = (0_usize, std::time::Duration::ZERO);
    let store = PgDeletions::new(fixture.owner.clone());
    loop {
        let batch = Instant::now();
        let more = store.purge(fixture.account, LEASE).await.unwrap();
        longest = longest.max(batch.elapsed());
        batches += 1;
        if !more.has_more() {
            break;
        }
    }
    store.end(fixture.account).await.unwrap();
    drop(store);
    let pages = pages_read(&mut fixture).await - before;
    println!(
        "{rows} rows of each: {batches} batches, longest {longest:?}, all {:?}, {pages} pages",
        began.elapsed()
    );
    assert!(batches >= LARGE.len() * rows / 2_000);
    let removed = i64::try_from(LARGE.len() * rows).unwrap();
    assert!(pages < 40 * removed, "{pages} pages for {removed} rows");
    assert_eq!(account_rows(&fixture, fixture.account).await, remaining_entry());
}

#[tokio::test]
async fn account_deletion_is_claimed_after_its_lease_expires() {
    let fixture = DbFixture::new().await;
    let store = PgDeletions::new(fixture.owner.clone());
    assert!(
        store
            .begin(fixture.account, Duration::ZERO, NOW, platform_entry(fixture.account))
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(store.claim(LEASE).await.unwrap(), Some(fixture.account));
    assert_eq!(
        store.claim(LEASE).await.unwrap(),
        None,
        "another worker holds the lease"
    );
    fixture.sql("UPDATE account_deletions SET due_at = now()").await;
    store.purge(fixture.account, LEASE).await.unwrap();
    assert_eq!(store.claim(LEASE).await.unwrap(), None, "a purge renews the lease");
    fixture.sql("UPDATE account_deletions SET due_at = now()").await;
    assert_eq!(store.claim(LEASE).await.unwrap(), Some(fixture.account));
    remove(&store, fixture.account).await;
    assert_eq!(store.claim(Duration::ZERO).await.unwrap(), None);
}

#[tokio::test]
async fn account_deletion_stores_gateway_cancellations() {
    let fixture = DbFixture::new().await;
    let store = PgDeletions::new(fixture.owner.clone());
    fixture
        .sql(&format!(
            "INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, gateway_subscription_id,
               intent, intent_until, attempt) VALUES
               ('{0}', md5('1')::uuid, 'x', 'MONTHLY', 'cancelled', 'PIX', 1, 'sub_1', NULL, NULL, false),
               ('{0}', md5('2')::uuid, 'x', 'MONTHLY', 'inactive', 'PIX', 1, 'sub_2', '{{\"kind\":\"abandoned\"}}', now(), false),
               ('{0}', md5('3')::uuid, 'x', 'MONTHLY', 'pending', 'PIX', 1, NULL, '{{\"kind\":\"abandoned\"}}', now(), true)",
            fixture.account
        ))
        .await;
    assert!(
        store
            .begin(fixture.account, Duration::ZERO, NOW, platform_entry(fixture.account))
            .await
            .unwrap()
            .is_done()
    );
    let mut subscription_ids = vec![];
    while let Some(due) = store.claim_cancellation(LEASE).await.unwrap() {
        assert_eq!(due.until, NOW);
        subscription_ids.push(due.gateway_subscription_id);
    }
    subscription_ids.sort();
    assert_eq!(subscription_ids, [None, Some("sub_2".to_owned())]);
}
