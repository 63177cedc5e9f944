ALTER TABLE campaign_queue
  -- Workers leave the run alone until then: what it needs to begin could not be had.
  ADD COLUMN retry_at timestamptz,
  -- How often in a row.
  ADD COLUMN retries integer NOT NULL DEFAULT 0;
