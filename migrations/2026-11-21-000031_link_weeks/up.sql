-- Clicks by the week (span 10080), as products and origins have them: ninety days of many links are few rows.
ALTER TABLE link_rollups DROP CONSTRAINT link_rollups_span_check,
  ADD CONSTRAINT link_rollups_span_check CHECK (span IN (15, 1440, 10080)) NOT VALID;
