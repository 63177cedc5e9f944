ALTER TABLE link_rollups VALIDATE CONSTRAINT link_rollups_bucket_minutes_check;

-- Rows are inserted in the order in which reports read them, so that they are stored close together.
-- safe: sums of sums, one row per link and week, which no other process writes yet; clicks are still counted meanwhile.
INSERT INTO link_rollups (account_id, bucket_minutes, bucket_start, link_id, clicks)
SELECT account_id, 10080, date_bin('7 days', bucket_start, '1970-01-01 00:00Z'), link_id, sum(clicks)
FROM link_rollups WHERE bucket_minutes = 1440 GROUP BY 1, 3, 4 ORDER BY 1, 3
ON CONFLICT DO NOTHING;
