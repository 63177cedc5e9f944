-- Indexes and counts for reading the audit log, and relay state that keeps the kinds of outbox events independent.

-- The log comes first: until this migration commits, the relay cannot insert entries, but operations still append
-- outbox events.
CREATE INDEX audit_logs_entity_type_idx
  ON audit_logs (account_id, entity_type, created_at DESC, id DESC) INCLUDE (action);
CREATE INDEX audit_logs_action_idx
  ON audit_logs (account_id, action, created_at DESC, id DESC) INCLUDE (entity_type);

-- Audit entries of an account by entity type and action. Written in the transaction of the entries.
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

-- An API key is deleted by account and id, but the primary key of this directory is the hash.
CREATE INDEX api_key_hashes_key_id_idx ON api_key_hashes (account_id, key_id);

-- The outbox comes last, because operations wait for its lock. Each kind of event is relayed separately. An event
-- that could not be written is retried on its own from `retry_at` on.
ALTER TABLE outbox_events
  ADD COLUMN kind text GENERATED ALWAYS AS (payload ->> 'kind') STORED,
  ADD COLUMN retry_at timestamptz;
CREATE INDEX outbox_events_kind_idx ON outbox_events (kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_account_id_idx ON outbox_events (account_id, kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_retry_at_idx ON outbox_events (kind, retry_at) WHERE retry_at IS NOT NULL;
