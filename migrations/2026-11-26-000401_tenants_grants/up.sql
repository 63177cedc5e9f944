-- The tenant role's privileges, table by table: what the stores of tenants do, and nothing else. Row-level security
-- still binds each statement to one account; the privileges bound what an account may do to its own rows.
-- `privileges.golden` in the tests of crates/postgres has the whole matrix.

-- A new table grants nothing by itself: its migration names the privileges.
CREATE OR REPLACE FUNCTION make_tenant_table(name regclass, account_column text DEFAULT 'account_id') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  own text := format('%I = nullif(current_setting(''app.account_id'', true), '''')::uuid', account_column);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('CREATE POLICY tenant_isolation ON %s USING (%s) WITH CHECK (%s)', name, own, own);
END
$$;

-- Only the owner writes these: memberships, keys, invites, the audit log and the sums of clicks.
REVOKE INSERT, UPDATE, DELETE ON account_users, api_keys, audit_counts, audit_logs, link_rollups, team_invites
  FROM recado_tenant;

-- Written once, never changed.
REVOKE UPDATE, DELETE ON applied_gateway_events, automation_executions, campaign_run_contents, links, metric_events,
  metric_sources, sent_messages, webhook_endpoint_ids, webhook_logs
  FROM recado_tenant;

-- Replaced as a whole, or removed.
REVOKE UPDATE ON contact_tags, folders, order_items, rfm_counts, segment_members, tags
  FROM recado_tenant;

-- Changed, never removed: a tenant's deletion only marks the row.
REVOKE DELETE ON ad_spend, attribution_rollups, automation_rollups, automations, billing_history, brand_contexts,
  campaign_counter_slots, campaign_sends, campaigns, cart_rollups, carts, contact_counts, contacts,
  conversation_counts, conversations, message_rollups, message_templates, message_usage_slots, messages,
  metric_contacts, metric_rollups, metrics, order_rollups, orders, product_names, product_rollups, rfm_calculations,
  segments, webhook_deliveries, whatsapp_files
  FROM recado_tenant;

-- The relay inserts notifications; a tenant marks them as read.
REVOKE INSERT, UPDATE, DELETE ON notifications
  FROM recado_tenant;
GRANT UPDATE (read_at) ON notifications TO recado_tenant;

-- A row lock (FOR KEY SHARE) requires the right to update a column.
REVOKE UPDATE, DELETE ON webhook_events
  FROM recado_tenant;
GRANT UPDATE (seq) ON webhook_events TO recado_tenant;

-- The same for FOR UPDATE.
REVOKE UPDATE ON campaign_recipient_batches
  FROM recado_tenant;
GRANT UPDATE (batch_no) ON campaign_recipient_batches TO recado_tenant;
