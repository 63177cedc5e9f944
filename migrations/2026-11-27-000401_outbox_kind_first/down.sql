DROP INDEX outbox_events_other_account_id_idx;
CREATE INDEX outbox_events_retried_account_id_idx ON outbox_events (account_id) WHERE retry_at IS NOT NULL;
ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey, DROP COLUMN kind;
ALTER TABLE outbox_events ADD CONSTRAINT outbox_events_pkey PRIMARY KEY (seq);
ALTER TABLE outbox_events ADD COLUMN kind text GENERATED ALWAYS AS (payload ->> 'kind') STORED;
CREATE INDEX outbox_events_kind_idx ON outbox_events (kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_account_id_idx ON outbox_events (account_id, kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_retry_at_idx ON outbox_events (kind, retry_at) WHERE retry_at IS NOT NULL;
