-- Internal: how many idempotency keys a scope claimed on a UTC day. The count is spread over slots, so that concurrent
-- requests of one account do not wait for each other.
CREATE TABLE idempotency_key_counts (
  -- The account, or the user on routes without an account.
  scope uuid NOT NULL,
  day date NOT NULL,
  slot integer NOT NULL,
  keys bigint NOT NULL,
  CONSTRAINT idempotency_key_counts_pkey PRIMARY KEY (scope, day, slot)
) WITH (fillfactor = 50);
CREATE INDEX idempotency_key_counts_day_idx ON idempotency_key_counts (day);
