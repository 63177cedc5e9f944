-- Clicks by the week (span 10080), as products and origins have them: ninety days of many links are few rows. Written in
-- the order in which they are read, so that they lie close.
ALTER TABLE link_rollups DROP CONSTRAINT link_rollups_span_check,
  -- safe: a row a link and quarter with clicks, looked through in moments.
  ADD CONSTRAINT link_rollups_span_check CHECK (span IN (15, 1440, 10080));

INSERT INTO link_rollups (account_id, span, at, link_id, clicks)
SELECT account_id, 10080, date_bin('7 days', at, '1970-01-01 00:00Z'), link_id, sum(clicks)
FROM link_rollups WHERE span = 1440 GROUP BY 1, 3, 4 ORDER BY 1, 3;
