ALTER TABLE campaign_queue
  DROP COLUMN retry_at,
  DROP COLUMN retries;
