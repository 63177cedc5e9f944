-- Idempotency of click batches: one row per process that counts clicks. A process numbers its batches and writes them
-- one after the other, so only the last number is stored. Only the owner role reads and writes it.
CREATE TABLE link_click_writers (
  id uuid CONSTRAINT link_click_writers_pkey PRIMARY KEY,
  batch bigint NOT NULL DEFAULT 0,
  -- Links whose clicks the last batch did not add.
  deferred uuid[] NOT NULL DEFAULT '{}',
  applied_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
