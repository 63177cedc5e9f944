DROP INDEX outbox_events_retry_at_idx, outbox_events_account_id_idx, outbox_events_kind_idx;
ALTER TABLE outbox_events DROP COLUMN retry_at, DROP COLUMN kind;
DROP INDEX api_key_hashes_key_id_idx;
DROP TABLE audit_counts;
DROP INDEX audit_logs_action_idx, audit_logs_entity_type_idx;
