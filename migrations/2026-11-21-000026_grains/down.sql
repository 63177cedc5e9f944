DELETE FROM order_rollups WHERE bucket_minutes = 180;
DELETE FROM metric_rollups WHERE bucket_minutes = 180;
DELETE FROM message_rollups WHERE bucket_minutes = 180;
DELETE FROM product_rollups WHERE bucket_minutes = 10080;
DELETE FROM attribution_rollups WHERE bucket_minutes = 10080;
ALTER TABLE order_rollups DROP CONSTRAINT order_rollups_bucket_minutes_check,
  ADD CONSTRAINT order_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440));
ALTER TABLE metric_rollups DROP CONSTRAINT metric_rollups_bucket_minutes_check,
  ADD CONSTRAINT metric_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440));
ALTER TABLE message_rollups DROP CONSTRAINT message_rollups_bucket_minutes_check,
  ADD CONSTRAINT message_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440));
ALTER TABLE product_rollups DROP CONSTRAINT product_rollups_bucket_minutes_check,
  ADD CONSTRAINT product_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440));
ALTER TABLE attribution_rollups DROP CONSTRAINT attribution_rollups_bucket_minutes_check,
  ADD CONSTRAINT attribution_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440));
