-- Idempotency of click batches: one row per process that counts clicks. Its batches are numbered and come one after the
-- other, so that the last one is all that has to be known. Read and written by the owner alone.
CREATE TABLE link_click_writers (
  id uuid CONSTRAINT link_click_writers_pkey PRIMARY KEY,
  batch bigint NOT NULL DEFAULT 0,
  -- Links whose clicks the last batch did not add.
  deferred uuid[] NOT NULL DEFAULT '{}',
  applied_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
