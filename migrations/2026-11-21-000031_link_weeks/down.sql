ALTER TABLE link_rollups DROP CONSTRAINT link_rollups_span_check,
  ADD CONSTRAINT link_rollups_span_check CHECK (span IN (15, 1440));
