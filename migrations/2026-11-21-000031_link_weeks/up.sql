-- Clicks in buckets of seven days (10080 `bucket_minutes`), as for products: ninety days of many links are few rows.
ALTER TABLE link_rollups DROP CONSTRAINT link_rollups_bucket_minutes_check,
  ADD CONSTRAINT link_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440, 10080)) NOT VALID;
