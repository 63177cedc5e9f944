-- The feed and the logs of webhooks are partitioned by day, so that a day is removed by dropping its partition.
-- Ids begin with the milliseconds of their time, so a lookup by id reads one partition.
--
-- No foreign key refers to or from these tables: a foreign key would lock the other table while a day is dropped. The
-- writers lock the account (FOR KEY SHARE), so that no row appears after its account was deleted.

DROP TABLE webhook_events CASCADE;

-- The feed. A test event has no sequence number and is not part of the feed.
CREATE TABLE webhook_events (
  account_id uuid NOT NULL,
  -- The receiver's idempotency key: the same for every delivery of the event.
  id uuid NOT NULL,
  type text NOT NULL,
  payload jsonb NOT NULL,
  occurred_at timestamptz NOT NULL,
  -- Sequence number: the order in which events became visible. The writer of an event holds a lock until it commits,
  -- so a reader that has read a sequence number has read every smaller one. The sequence makes it unique.
  seq bigint,
  CONSTRAINT webhook_events_pkey PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
CREATE SEQUENCE webhook_events_seq_seq OWNED BY webhook_events.seq;
CREATE INDEX webhook_events_seq_idx ON webhook_events (account_id, seq);
SELECT make_tenant_table('webhook_events');
GRANT SELECT, INSERT ON webhook_events TO recado_tenant;

-- Abandoned deliveries by event: they are removed when their event's term ends. A waiting delivery whose event was
-- dropped is removed when it is claimed.
CREATE INDEX webhook_deliveries_abandoned_idx ON webhook_deliveries (event_id) WHERE state <> 'waiting';

DROP TABLE webhook_logs;

-- One row per delivery attempt and per call of an inbound endpoint. Rows outlive their endpoint.
CREATE TABLE webhook_logs (
  account_id uuid NOT NULL,
  -- Begins with the time of the log, so its order is that of `created_at`.
  id uuid NOT NULL,
  endpoint_id uuid NOT NULL,
  direction text NOT NULL CONSTRAINT webhook_logs_direction_check CHECK (direction IN ('outbound', 'inbound')),
  event_type text NOT NULL,
  -- The `webhook-id`.
  message_id text NOT NULL,
  -- Outbound: the event, which holds what was delivered.
  event_id uuid,
  -- Inbound: what was received.
  payload jsonb,
  -- Null if the endpoint sent no response.
  response_status integer,
  attempt integer NOT NULL DEFAULT 1,
  duration_ms integer,
  error text,
  -- The time of the next attempt after this one.
  next_attempt_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT webhook_logs_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT webhook_logs_payload_check CHECK ((direction = 'outbound') = (event_id IS NOT NULL))
) PARTITION BY RANGE (id);
CREATE INDEX webhook_logs_endpoint_id_idx ON webhook_logs (account_id, endpoint_id, id);
-- Partial: an attempt that succeeded, which most do, writes neither.
CREATE INDEX webhook_logs_failed_idx ON webhook_logs (account_id, id)
  WHERE response_status IS NULL OR response_status >= 400;
CREATE INDEX webhook_logs_inbound_idx ON webhook_logs (account_id, id) WHERE direction = 'inbound';
SELECT make_tenant_table('webhook_logs');
GRANT SELECT, INSERT ON webhook_logs TO recado_tenant;

-- Inbox: a message that an inbound endpoint received and applied is not applied again. By month, so that a lookup
-- reads two or three partitions. The key cannot be unique over months, so the writer holds an advisory lock on it.
CREATE TABLE webhook_inbox (
  account_id uuid NOT NULL,
  endpoint_id uuid NOT NULL,
  message_id text NOT NULL,
  received_at timestamptz NOT NULL,
  CONSTRAINT webhook_inbox_pkey PRIMARY KEY (account_id, endpoint_id, message_id, received_at)
) PARTITION BY RANGE (received_at);
SELECT make_tenant_table('webhook_inbox');
GRANT SELECT, INSERT ON webhook_inbox TO recado_tenant;
