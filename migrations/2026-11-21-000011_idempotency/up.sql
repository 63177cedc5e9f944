-- Requests that carried an idempotency key, and what they were answered.

-- The system's own: no tenant role may read it.
CREATE TABLE idempotency_keys (
  -- An account, or on routes without one, a user.
  scope uuid NOT NULL,
  key text NOT NULL,
  holder uuid NOT NULL,
  leased_until timestamptz NOT NULL,
  -- SHA-256 of method, path and body; with it the response, sealed with the server's key. Both null while it runs.
  request_hash bytea,
  response bytea,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope, key),
  CONSTRAINT idempotency_keys_response_check CHECK ((request_hash IS NULL) = (response IS NULL))
);
CREATE INDEX idempotency_keys_created_at_idx ON idempotency_keys (created_at);
