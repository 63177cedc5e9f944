ALTER TABLE link_rollups DROP CONSTRAINT link_rollups_bucket_minutes_check,
  ADD CONSTRAINT link_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440));
