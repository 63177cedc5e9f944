DROP TABLE campaign_retries;
ALTER TABLE campaigns DROP COLUMN retry_scheduled_at;
