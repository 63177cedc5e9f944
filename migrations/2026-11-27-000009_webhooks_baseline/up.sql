-- Webhook endpoints, the event feed, deliveries and their log.

CREATE TABLE webhook_endpoints (
  account_id uuid NOT NULL CONSTRAINT webhook_endpoints_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  direction text NOT NULL CONSTRAINT webhook_endpoints_direction_check CHECK (direction IN ('outbound', 'inbound')),
  url text,
  -- Event types, or `*`.
  events text[] NOT NULL,
  is_active boolean NOT NULL DEFAULT true,
  -- Sealed with the server's key. The previous secret also signs, until `previous_secret_until`.
  secret bytea NOT NULL,
  secret_hint text NOT NULL,
  previous_secret bytea,
  previous_secret_until timestamptz,
  -- The first and the latest failure since the last success; null if there is none.
  failing_since timestamptz,
  last_failed_at timestamptz,
  -- When and why failed deliveries disabled the endpoint.
  disabled_at timestamptz,
  disabled_reason text
    CONSTRAINT webhook_endpoints_disabled_reason_check CHECK (disabled_reason IN ('gone', 'failing')),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- Optimistic locking: every statement that changes a field of PUT raises it by one.
  version bigint NOT NULL DEFAULT 1,
  CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT webhook_endpoints_disabled_check
    CHECK (((disabled_at IS NULL) = (disabled_reason IS NULL)) AND ((disabled_at IS NULL) OR (NOT is_active))),
  CONSTRAINT webhook_endpoints_failing_check CHECK ((failing_since IS NULL) = (last_failed_at IS NULL)),
  CONSTRAINT webhook_endpoints_previous_secret_check
    CHECK ((previous_secret IS NULL) = (previous_secret_until IS NULL)),
  CONSTRAINT webhook_endpoints_url_check CHECK (direction = 'inbound' OR url IS NOT NULL)
);
SELECT make_tenant_table('webhook_endpoints');
SELECT set_storage('webhook_endpoints', 'entity');
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_endpoints TO recado_tenant;

-- Directory: a caller of an inbound endpoint sends only the endpoint's id, so ids are unique across accounts.
CREATE TABLE webhook_endpoint_ids (
  id uuid CONSTRAINT webhook_endpoint_ids_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  CONSTRAINT webhook_endpoint_ids_endpoint_fkey FOREIGN KEY (account_id, id)
    REFERENCES webhook_endpoints (account_id, id) ON DELETE CASCADE
);
CREATE INDEX webhook_endpoint_ids_endpoint_idx ON webhook_endpoint_ids (account_id, id);
SELECT make_tenant_table('webhook_endpoint_ids');
SELECT set_storage('webhook_endpoint_ids', 'entity');
GRANT SELECT, INSERT ON webhook_endpoint_ids TO recado_tenant;

-- The feed. A test event has no sequence number and is not part of the feed.
CREATE TABLE webhook_events (
  account_id uuid NOT NULL,
  -- The receiver's idempotency key: the same for every delivery of the event.
  id uuid NOT NULL,
  type text NOT NULL,
  payload jsonb NOT NULL,
  occurred_at timestamptz NOT NULL,
  -- Sequence number: the order in which events became visible. The writer of an event holds a lock until it
  -- commits, so a reader that has read a sequence number has read every smaller one. The sequence makes it unique.
  seq bigint,
  CONSTRAINT webhook_events_pkey PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
CREATE SEQUENCE webhook_events_seq_seq OWNED BY webhook_events.seq;
CREATE INDEX webhook_events_seq_idx ON webhook_events (account_id, seq);
SELECT make_tenant_table('webhook_events');
GRANT SELECT, INSERT ON webhook_events TO recado_tenant;

-- Open and abandoned deliveries. A delivery that succeeded has no row here, only its log entry.
CREATE TABLE webhook_deliveries (
  account_id uuid NOT NULL,
  event_id uuid NOT NULL,
  endpoint_id uuid NOT NULL,
  state text NOT NULL DEFAULT 'waiting'
    CONSTRAINT webhook_deliveries_state_check CHECK (state IN ('waiting', 'failed', 'dropped')),
  -- Completed attempts.
  attempt integer NOT NULL DEFAULT 0,
  -- No worker claims the delivery before this time: it is leased, or waits for its next attempt.
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  leased boolean NOT NULL DEFAULT false,
  -- Fencing token: counts the claims. Recording a result requires the number of the latest claim.
  claim bigint NOT NULL DEFAULT 0,
  -- The time of the last failure, or of the drop.
  failed_at timestamptz,
  CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (account_id, event_id, endpoint_id),
  CONSTRAINT webhook_deliveries_endpoint_id_fkey FOREIGN KEY (account_id, endpoint_id)
    REFERENCES webhook_endpoints (account_id, id) ON DELETE CASCADE
);
-- Abandoned deliveries by event: they are removed when their event's term ends. A waiting delivery whose event was
-- dropped is removed when it is claimed.
CREATE INDEX webhook_deliveries_abandoned_idx ON webhook_deliveries (event_id) WHERE state <> 'waiting';
-- Each endpoint has its own queue, so that a long queue does not delay other endpoints.
CREATE INDEX webhook_deliveries_claim_idx
  ON webhook_deliveries (endpoint_id, next_attempt_at, event_id) WHERE state = 'waiting';
CREATE INDEX webhook_deliveries_failed_at_idx ON webhook_deliveries (account_id, endpoint_id, failed_at);
-- Finds the endpoints of deliveries that became due since a time.
CREATE INDEX webhook_deliveries_next_attempt_at_idx ON webhook_deliveries (next_attempt_at) WHERE state = 'waiting';
SELECT make_tenant_table('webhook_deliveries');
SELECT set_storage('webhook_deliveries', 'queue');
GRANT SELECT, INSERT, UPDATE ON webhook_deliveries TO recado_tenant;

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
CREATE INDEX webhook_logs_failed_idx
  ON webhook_logs (account_id, id) WHERE response_status IS NULL OR response_status >= 400;
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
