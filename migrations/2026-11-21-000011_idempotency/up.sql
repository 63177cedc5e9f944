-- Idempotency keys: requests that carried one, and the stored responses.

-- Internal: the tenant role cannot read it.
CREATE TABLE idempotency_keys (
  -- The account, or the user on routes without an account.
  scope uuid NOT NULL,
  key text NOT NULL,
  holder uuid NOT NULL,
  leased_until timestamptz NOT NULL,
  -- SHA-256 of method, path and body, and the response, sealed with the server's key. Both are null while the request
  -- runs.
  request_hash bytea,
  response bytea,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope, key),
  CONSTRAINT idempotency_keys_response_check CHECK ((request_hash IS NULL) = (response IS NULL))
);
CREATE INDEX idempotency_keys_created_at_idx ON idempotency_keys (created_at);
