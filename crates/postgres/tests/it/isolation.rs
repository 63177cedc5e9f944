//! Row-level security of every table. The tables come from the catalog, so that the tests cover each new table.

use secrecy::ExposeSecret as _;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::support::{DbFixture, id};

/// Tables with an `account_id` but without a policy: internal tables and directories.
const SYSTEM: [&str; 8] = [
    "account_deletions",
    "account_slugs",
    "api_key_hashes",
    "gateway_cancellations",
    "invite_tokens",
    "mail_recipients",
    "outgoing_mail",
    "platform_audit",
];

/// Tables with a policy that tenants only insert into: directories and the outbox.
const INSERT_ONLY: [&str; 4] = [
    "gateway_subscriptions",
    "link_codes",
    "outbox_events",
    "whatsapp_numbers",
];

/// Tables of the platform whose rows every account reads: the rates of messages.
const SHARED: [&str; 2] = ["rate_card_rows", "rate_cards"];

/// SQL that inserts a row into each table of ingestion, analytics and rollups.
fn analytics_rows(account: &str, tag: Uuid, contact: Uuid) -> String {
    format!(
        "INSERT INTO message_media (account_id, id, type, state, written_at)
           VALUES ('{account}', '{tag}', 'image', 'expired', now());
         INSERT INTO links (account_id, id, short_code, original_url) VALUES ('{account}', '{tag}', 'c', 'u');
         INSERT INTO automations (account_id, id, name, status) VALUES ('{account}', '{tag}', 'a', 'active');
         INSERT INTO automation_executions (account_id, id, automation_id, status, started_at, finished_at)
           VALUES ('{account}', '{tag}', '{tag}', 'failed', now(), now());
         INSERT INTO orders (account_id, id, platform, external_id, status, total, placed_at)
           VALUES ('{account}', '{tag}', 'p', 'x', 'pending', 1, now());
         INSERT INTO order_items VALUES ('{account}', '{tag}', 0, 'p', 'n', 1, 1);
         INSERT INTO order_keys VALUES ('{account}', 'p', 'x', '{tag}');
         INSERT INTO carts (account_id, id, platform, external_id, total, status, created_at)
           VALUES ('{account}', '{tag}', 'p', 'x', 1, 'open', now());
         INSERT INTO ad_spend VALUES ('{account}', '2026-03-01', 's', 1);
         INSERT INTO metrics (account_id, metric_name) VALUES ('{account}', 'm');
         INSERT INTO metric_events (account_id, id, metric_name, source, occurred_at)
           VALUES ('{account}', '{tag}', 'm', 's', now());
         INSERT INTO metric_event_keys VALUES ('{account}', '{tag}', now());
         INSERT INTO metric_sources VALUES ('{account}', 'm', 's');
         INSERT INTO metric_contacts (account_id, metric_name, contact_id)
           VALUES ('{account}', 'm', '{contact}');
         INSERT INTO metric_rollups (account_id, metric_name, bucket_minutes, bucket_start)
           VALUES ('{account}', 'm', 15, '2026-03-01');
         INSERT INTO order_rollups (account_id, bucket_minutes, bucket_start, platform)
           VALUES ('{account}', 15, '2026-03-01', 'p');
         INSERT INTO product_rollups (account_id, bucket_minutes, bucket_start, product_id)
           VALUES ('{account}', 15, '2026-03-01', 'p');
         INSERT INTO product_names VALUES ('{account}', 'p', 'n');
         INSERT INTO attribution_rollups (account_id, bucket_minutes, bucket_start, kind, attributed_to_id)
           VALUES ('{account}', 15, '2026-03-01', 'link', '{tag}');
         INSERT INTO link_rollups VALUES ('{account}', 15, '2026-03-01', '{tag}');
         INSERT INTO cost_rollups (account_id, bucket_start, campaign_id, profile_id, template_id, category, market, currency)
           VALUES ('{account}', '2026-03-01', '{tag}', '{tag}', '{tag}', '', '', '');
         INSERT INTO cost_months VALUES ('{account}', 'USD', '2026-03-01', 'UTC', 1);
         INSERT INTO given_cost_alerts VALUES ('{account}', 'USD', '2026-03-01', 1, now());
         INSERT INTO cart_rollups VALUES ('{account}', 15, '2026-03-01');
         INSERT INTO automation_rollups (account_id, bucket_minutes, bucket_start, automation_id)
           VALUES ('{account}', 15, '2026-03-01', '{tag}');
         INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start) VALUES ('{account}', 15, '2026-03-01');
         INSERT INTO contact_counts VALUES ('{account}', '2026-03-01', 1);
         INSERT INTO conversation_counts VALUES ('{account}', 'open', 1);
         INSERT INTO rfm_calculations (account_id, due_at) VALUES ('{account}', now());
         INSERT INTO rfm_changes (account_id, worker, contact_id) VALUES ('{account}', '{tag}', '{tag}');
         INSERT INTO campaign_claims (account_id, campaign_id, send_ids) VALUES ('{account}', '{tag}', '{{{tag}}}');
         INSERT INTO campaign_send_times VALUES ('{account}', '{tag}', now(), '{tag}', '{{{tag}}}');
         INSERT INTO retention_settings (account_id) VALUES ('{account}');
         INSERT INTO retention_horizons VALUES ('{account}', 'messages', now());
         INSERT INTO rfm_counts VALUES ('{account}', 'champions', 1)"
    )
}

fn message_rows(account: &str, tag: Uuid, contact: Uuid) -> String {
    format!(
        "INSERT INTO contact_exports (account_id, id, contact_id, requested_at, expires_at)
           VALUES ('{account}', '{contact}', '{contact}', now(), now());
         INSERT INTO erasures (account_id, id, contact_id, requested_at, step, marks)
           VALUES ('{account}', '{contact}', '{contact}', now(), 'unsent', '{{}}');
         INSERT INTO erased_opt_outs (account_id, hash) VALUES ('{account}', '\\x00');
         INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id)
           VALUES ('{account}', '{tag}', '{tag}');
         INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id)
           VALUES ('{account}', '{tag}', '{tag}', 'outbound', 'message.sent', 'm', '{tag}');
         INSERT INTO webhook_inbox VALUES ('{account}', '{tag}', 'm', now());
         INSERT INTO conversations (account_id, id, contact_id, last_message_at)
           VALUES ('{account}', '{tag}', '{contact}', now());
         INSERT INTO messages (account_id, id, conversation_id, direction, type, status, created_at)
           VALUES ('{account}', '{tag}', '{tag}', 'inbound', 'text', 'received', now());
         INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, send_at, expires_at,
           created_by, created_at, updated_at)
         VALUES ('{account}', '{tag}', '{contact}', '{tag}', 'text', '{{}}', now(), now(), '{tag}', now(), now());
         INSERT INTO direct_message_queues (account_id, profile_id, due_at) VALUES ('{account}', '{tag}', now());
         INSERT INTO direct_message_references VALUES ('{account}', 'r', '{tag}', 'sent');
         INSERT INTO account_settings (account_id, opt_out_reply, updated_at) VALUES ('{account}', 'r', now())"
    )
}

/// Two accounts with a row in every tenant table.
async fn filled() -> (DbFixture, [String; 2]) {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    for account in [fixture.account, other_account] {
        let (contact, tag, segment, campaign, profile) = (id(), id(), id(), id(), id());
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c');
                 INSERT INTO contact_identities VALUES ('{account}', '1', 'BR.1', '{contact}', NULL, NULL, now(), now());
                 INSERT INTO tags (account_id, id, name) VALUES ('{account}', '{tag}', 't');
                 INSERT INTO contact_tags VALUES ('{account}', '{contact}', '{tag}');
                 INSERT INTO segments (account_id, id, name) VALUES ('{account}', '{segment}', 's');
                 INSERT INTO segment_members VALUES ('{account}', '{segment}', '{contact}');
                 INSERT INTO contact_rfm VALUES ('{account}', '{contact}', 1, 1, 1, 'champions');
                 INSERT INTO segment_counts VALUES ('{account}', '{segment}', 1, now());
                 INSERT INTO folders (account_id, id, name, kind) VALUES ('{account}', '{campaign}', 'f', 'campaign');
                 INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token)
                   VALUES ('{account}', '{profile}', 'p', '1', '2', '\\x00');
                 INSERT INTO service_message_months VALUES ('{account}', '{profile}', '2026-03-01', 1);
                 INSERT INTO message_templates (account_id, id, name, category, language, template_type)
                   VALUES ('{account}', '{tag}', 'n', 'UTILITY', 'pt', 'standard');
                 INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value)
                   VALUES ('{account}', '{tag}', 'growth', 'MONTHLY', 'active', 'PIX', 1);
                 INSERT INTO billing_history
                   (account_id, id, subscription_id, gateway_payment_id, billing_type, value, status)
                   VALUES ('{account}', '{tag}', '{tag}', 'pay_1', 'PIX', 1, 'PENDING');
                 INSERT INTO applied_gateway_events (account_id, event_id) VALUES ('{account}', '{tag}');
                 INSERT INTO brand_contexts (account_id, company_name) VALUES ('{account}', 'b');
                 INSERT INTO message_usage_slots (account_id, month) VALUES ('{account}', '2026-03-01');
                 INSERT INTO campaigns (account_id, id, name) VALUES ('{account}', '{campaign}', 'c');
                 INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
                   VALUES ('{account}', '{tag}', '{campaign}', '{contact}');
                 INSERT INTO campaign_archives (account_id, campaign_id, file_key)
                   VALUES ('{account}', '{campaign}', '{tag}');
                 INSERT INTO campaign_recipient_batches VALUES ('{account}', '{campaign}', 5, '{{{contact}}}');
                 INSERT INTO campaign_retry_batches (account_id, campaign_id, batch_no, send_ids)
                   VALUES ('{account}', '{campaign}', 1, '{{{tag}}}');
                 INSERT INTO campaign_run_contents VALUES ('{account}', '{campaign}', '{{}}');
                 INSERT INTO sent_messages VALUES ('{account}', 'wamid', '{tag}');
                 INSERT INTO campaign_counter_slots (account_id, campaign_id) VALUES ('{account}', '{campaign}');
                 INSERT INTO campaign_budgets (account_id, campaign_id) VALUES ('{account}', '{campaign}');
                 INSERT INTO campaign_queue (account_id, campaign_id, trigger, user_id)
                   VALUES ('{account}', '{campaign}', 'send', '{tag}');
                 INSERT INTO campaign_retries (account_id, campaign_id, due_at, force, user_id)
                   VALUES ('{account}', '{campaign}', now(), false, '{tag}');
                 INSERT INTO whatsapp_files VALUES ('{account}', '1', 'p', '2', now());
                 INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
                   VALUES ('{account}', '{tag}', 'k', 'p', 'h', '{tag}');
                 INSERT INTO team_invites (account_id, id, email, role, invited_by, expires_at)
                   VALUES ('{account}', '{tag}', 'b@e.example', 'member', '{tag}', now());
                 INSERT INTO audit_logs (account_id, id, action, entity_type) VALUES ('{account}', '{tag}', 'create', 'x');
                 INSERT INTO audit_counts VALUES ('{account}', '2026-03-01', 'x', 'create', 1);
                 INSERT INTO notifications (account_id, id, type, title, message)
                   VALUES ('{account}', '{tag}', 'info', 't', 'm');
                 INSERT INTO webhook_endpoints (account_id, id, name, direction, url, events, secret, secret_hint)
                   VALUES ('{account}', '{tag}', 'w', 'outbound', 'https://e.example', '{{*}}', '\\x00', 'beef');
                 INSERT INTO webhook_endpoint_ids (account_id, id) VALUES ('{account}', '{tag}');
                 INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
                   VALUES ('{account}', '{tag}', 'message.sent', '{{}}', now())"
            ))
            .await;
        fixture.sql(&analytics_rows(&account.to_string(), tag, contact)).await;
        fixture.sql(&message_rows(&account.to_string(), tag, contact)).await;
    }
    let accounts = [fixture.account.to_string(), other_account.to_string()];
    (fixture, accounts)
}

async fn list(client: &Client, query: &str) -> Vec<String> {
    client
        .query(query, &[])
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.get(0))
        .collect()
}

/// The tenant tables and, with `with_views`, their views, each with the column of the account's id.
async fn tenant_tables(fixture: &DbFixture, with_views: bool) -> Vec<(String, &'static str)> {
    let mut tables = list(
        &fixture.client,
        "SELECT tablename::text FROM pg_policies WHERE schemaname = 'public' ORDER BY 1",
    )
    .await;
    tables.retain(|table| !INSERT_ONLY.contains(&table.as_str()) && !SHARED.contains(&table.as_str()));
    assert!(tables.len() >= 55, "{tables:?}");
    let views = list(
        &fixture.client,
        "SELECT viewname::text FROM pg_views WHERE schemaname = 'public' ORDER BY 1",
    )
    .await;
    assert_eq!(views, ["campaign_counters", "message_usage"]);
    tables
        .into_iter()
        .chain(views.into_iter().filter(|_| with_views))
        .map(|table| {
            if table == "accounts" {
                (table, "id")
            } else {
                (table, "account_id")
            }
        })
        .collect()
}

async fn count(client: &Client, query: &str) -> i64 {
    client
        .query_one(query, &[])
        .await
        .unwrap_or_else(|error| panic!("{query}: {error:?}"))
        .get(0)
}

async fn tenant(fixture: &DbFixture) -> Client {
    let (client, connection) = tokio_postgres::connect(fixture.db.tenant_url().expose_secret(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    // `ALTER ROLE` gave it an account that no policy can parse.
    client.batch_execute("SET app.account_id = ''").await.unwrap();
    client
}

#[tokio::test]
async fn tenant_reads_only_the_rows_of_its_account() {
    let (fixture, [a, b]) = filled().await;
    let client = tenant(&fixture).await;
    for (table, column) in tenant_tables(&fixture, true).await {
        let all = format!("SELECT count(*) FROM {table}");
        assert_eq!(count(&client, &all).await, 0, "{table} without an account");
        for (own_account, other_account) in [(&a, &b), (&b, &a)] {
            client
                .batch_execute(&format!("BEGIN; SET LOCAL app.account_id = '{own_account}'"))
                .await
                .unwrap();
            assert!(
                count(&client, &all).await > 0,
                "{table} has no row of the account; add one to `filled`"
            );
            let foreign = format!("SELECT count(*) FROM {table} WHERE {column} = '{other_account}'");
            assert_eq!(
                count(&client, &foreign).await,
                0,
                "{table} shows a row of another account"
            );
            client.batch_execute("COMMIT").await.unwrap();
        }
        assert_eq!(count(&client, &all).await, 0, "{table} after the transaction");
    }
    // A new connection of the tenant pool has this setting: a statement before its account is set fails, instead of
    // returning no rows.
    client.batch_execute("SET app.account_id = 'none'").await.unwrap();
    for (table, _) in tenant_tables(&fixture, true).await {
        let refused = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await;
        let code = refused.unwrap_err().code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("22P02"), "{table} with an invalid account");
    }
}

#[tokio::test]
async fn tenant_cannot_write_rows_of_another_account() {
    let (fixture, [a, b]) = filled().await;
    let client = tenant(&fixture).await;
    for (table, column) in tenant_tables(&fixture, false).await {
        for (operation, statement) in [
            (
                "insert",
                format!(
                    "INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object('{column}', '{b}'))).* FROM {table} t LIMIT 1"
                ),
            ),
            ("change the account", format!("UPDATE {table} SET {column} = '{b}'")),
        ] {
            client
                .batch_execute(&format!("BEGIN; SET LOCAL app.account_id = '{a}'"))
                .await
                .unwrap();
            let error = client
                .batch_execute(&statement)
                .await
                .expect_err(&format!("{operation}: {table}"));
            let code = error.code().unwrap().code();
            assert_eq!(code, "42501", "{operation}: {table}: {error:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        client
            .batch_execute(&format!("BEGIN; SET LOCAL app.account_id = '{a}'"))
            .await
            .unwrap();
        // A delete finds no row; on `accounts` it is not permitted.
        match client
            .execute(&format!("DELETE FROM {table} WHERE {column} = '{b}'"), &[])
            .await
        {
            Ok(deleted) => assert_eq!(deleted, 0, "{table}"),
            Err(error) => assert_eq!(error.code().unwrap().code(), "42501", "{table}"),
        }
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn tenant_reads_rates_and_changes_no_rate_card() {
    let fixture = DbFixture::new().await;
    fixture
        .sql(
            "INSERT INTO rate_cards VALUES ('00000000-0000-0000-0000-000000000001', 'n', 1, '{USD}', '2026-01-01', NULL, now());
             INSERT INTO rate_card_rows VALUES ('00000000-0000-0000-0000-000000000001', 1, 'BR', '{BR}', 'USD', 'utility', 1,
               '2026-01-01', 'UTC', '2026-01-01', NULL)",
        )
        .await;
    let client = tenant(&fixture).await;
    // The rows of cards have no condition, so that they are read by their index.
    for (table, visible) in SHARED.into_iter().zip([1, 0]) {
        assert_eq!(
            count(&client, &format!("SELECT count(*) FROM {table}")).await,
            visible,
            "{table} without an account"
        );
    }
    let begin = format!("BEGIN; SET LOCAL app.account_id = '{}'", fixture.account);
    client.batch_execute(&begin).await.unwrap();
    for table in SHARED {
        assert_eq!(
            count(&client, &format!("SELECT count(*) FROM {table}")).await,
            1,
            "{table}"
        );
    }
    client
        .batch_execute("UPDATE rate_cards SET used_at = now(); ROLLBACK")
        .await
        .unwrap();
    for refused in [
        "SELECT name FROM rate_cards",
        "UPDATE rate_cards SET name = 'x'",
        "DELETE FROM rate_cards",
        "UPDATE rate_card_rows SET rate = 0",
        "DELETE FROM rate_card_rows",
        "INSERT INTO rate_card_rows (card_id) SELECT card_id FROM rate_card_rows",
    ] {
        client.batch_execute(&begin).await.unwrap();
        let error = client.batch_execute(refused).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{refused}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn every_table_has_a_policy_or_is_unreachable() {
    let fixture = DbFixture::new().await;
    let unbound = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'account_id' AND NOT a.attisdropped
         WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT c.relrowsecurity
         ORDER BY 1";
    assert_eq!(list(&fixture.client, unbound).await, SYSTEM);
    let readable = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm') AND NOT c.relrowsecurity
           AND NOT (c.relkind = 'v' AND 'security_invoker=true' = ANY (coalesce(c.reloptions, '{}')))
           AND has_table_privilege('recado_tenant', c.oid, 'SELECT, UPDATE, DELETE, TRUNCATE')";
    assert_eq!(list(&fixture.client, readable).await, Vec::<String>::new());
    let readable_directory = format!(
        "SELECT t FROM unnest(ARRAY['{}']) t WHERE has_table_privilege('recado_tenant', t, 'SELECT, UPDATE, DELETE')",
        INSERT_ONLY.join("', '")
    );
    assert_eq!(list(&fixture.client, &readable_directory).await, Vec::<String>::new());
    let without_policy = "SELECT c.relname::text FROM pg_class c WHERE c.relrowsecurity
         AND NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid)";
    assert_eq!(list(&fixture.client, without_policy).await, Vec::<String>::new());
    let role = "SELECT (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb)::text FROM pg_roles
         WHERE rolname = 'recado_tenant'";
    assert_eq!(list(&fixture.client, role).await, ["false"]);
}
