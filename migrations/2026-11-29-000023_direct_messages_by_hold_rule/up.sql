CREATE INDEX CONCURRENTLY direct_messages_hold_rule_idx ON direct_messages (account_id, held_settings_at) WHERE hold_rule IS NOT NULL;
