-- Every index of the outbox begins with the kind: a relay passes no events of other kinds, whatever index its plan
-- uses. An event without a kind has an empty one, and no relay moves it.
ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey, DROP COLUMN kind;
ALTER TABLE outbox_events
  ADD COLUMN kind text NOT NULL GENERATED ALWAYS AS (coalesce(payload ->> 'kind', '')) STORED;
ALTER TABLE outbox_events ADD CONSTRAINT outbox_events_pkey PRIMARY KEY (kind, seq);
-- For relays, which pass no retried events.
CREATE INDEX outbox_events_kind_idx ON outbox_events (kind, seq) WHERE retry_at IS NULL;
-- For readers of one account. The second condition is always true, but only a statement that names an account implies
-- it: otherwise the planner may prefer this index to the primary key and pass all events of the kind.
CREATE INDEX outbox_events_account_id_idx ON outbox_events (kind, account_id, seq)
  WHERE retry_at IS NULL AND account_id IS NOT NULL;
CREATE INDEX outbox_events_retry_at_idx ON outbox_events (kind, retry_at) WHERE retry_at IS NOT NULL;
-- The deletion of an account finds its other events: those that are retried, and those of unknown kinds.
DROP INDEX outbox_events_retried_account_id_idx;
CREATE INDEX outbox_events_other_account_id_idx ON outbox_events (account_id)
  WHERE retry_at IS NOT NULL OR kind NOT IN ('audit', 'notification', 'webhook');
