-- The audit log can be read, and nothing that befalls it is felt by anybody else.

-- The log first: until the end of this migration nobody adds to it, while operations go on leaving events.
CREATE INDEX audit_logs_entity_type_idx
  ON audit_logs (account_id, entity_type, created_at DESC, id DESC) INCLUDE (action);
CREATE INDEX audit_logs_action_idx
  ON audit_logs (account_id, action, created_at DESC, id DESC) INCLUDE (entity_type);

-- How many entries of each sort an account has; written in the transaction of the entries.
CREATE TABLE audit_counts (
  account_id uuid NOT NULL CONSTRAINT audit_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  entity_type text NOT NULL,
  action text NOT NULL,
  n bigint NOT NULL CONSTRAINT audit_counts_n_check CHECK (n >= 0),
  CONSTRAINT audit_counts_pkey PRIMARY KEY (account_id, entity_type, action)
);
SELECT make_tenant_table('audit_counts');
INSERT INTO audit_counts (account_id, entity_type, action, n)
  SELECT account_id, entity_type, action, count(*) FROM audit_logs GROUP BY account_id, entity_type, action;

-- A key is removed by its account and id, the directory knows it by its hash.
CREATE INDEX api_key_hashes_key_id_idx ON api_key_hashes (account_id, key_id);

-- The outbox last, because operations wait for it. Kinds of events are relayed apart; an event that could not be
-- written is tried again by itself, from `retry_at` on.
ALTER TABLE outbox_events
  ADD COLUMN kind text GENERATED ALWAYS AS (payload ->> 'kind') STORED,
  ADD COLUMN retry_at timestamptz;
CREATE INDEX outbox_events_kind_idx ON outbox_events (kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_account_id_idx ON outbox_events (account_id, kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_retry_at_idx ON outbox_events (kind, retry_at) WHERE retry_at IS NOT NULL;
