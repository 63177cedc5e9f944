CREATE OR REPLACE FUNCTION make_tenant_table(name regclass, account_column text DEFAULT 'account_id') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  own text := format('%I = nullif(current_setting(''app.account_id'', true), '''')::uuid', account_column);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('CREATE POLICY tenant_isolation ON %s USING (%s) WITH CHECK (%s)', name, own, own);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO recado_tenant', name);
END
$$;

REVOKE UPDATE (read_at) ON notifications FROM recado_tenant;
REVOKE UPDATE (seq) ON webhook_events FROM recado_tenant;
REVOKE UPDATE (batch_no) ON campaign_recipient_batches FROM recado_tenant;
GRANT INSERT, UPDATE, DELETE ON account_users, ad_spend, api_keys, applied_gateway_events, attribution_rollups,
  audit_counts, audit_logs, automation_executions, automation_rollups, automations, billing_history, brand_contexts,
  campaign_counter_slots, campaign_recipient_batches, campaign_run_contents, campaign_sends, campaigns, cart_rollups,
  carts, contact_counts, contact_tags, contacts, conversation_counts, conversations, folders, link_rollups, links,
  message_rollups, message_templates, message_usage_slots, messages, metric_contacts, metric_events, metric_rollups,
  metric_sources, metrics, notifications, order_items, order_rollups, orders, product_names, product_rollups,
  rfm_calculations, rfm_counts, segment_members, segments, sent_messages, tags, team_invites, webhook_deliveries,
  webhook_endpoint_ids, webhook_events, webhook_logs, whatsapp_files
  TO recado_tenant;
