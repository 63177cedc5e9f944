ALTER TABLE campaign_queue
  -- No worker claims the run before this time: its start could not read what it requires.
  ADD COLUMN retry_at timestamptz,
  -- The number of consecutive failed starts.
  ADD COLUMN retries integer NOT NULL DEFAULT 0;
