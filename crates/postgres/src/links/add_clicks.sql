-- Adds clicks to links and their rollups, and notes the batch in the row of its writer, which the caller has locked.
-- Returns the links that another transaction had locked: their clicks wait for the next batch. $1 accounts, $2 links,
-- $3 clicks; of the rollups $4 accounts, $5 links, $6 bucket sizes, $7 bucket starts, $8 clicks; $9 writer, $10 batch.
WITH totals AS (
  SELECT * FROM unnest($1, $2, $3) AS t (account_id, link_id, clicks) LIMIT (SELECT cardinality($1))),
present AS (
  SELECT l.account_id, l.id FROM totals t JOIN links l ON l.account_id = t.account_id AND l.id = t.link_id),
locked AS MATERIALIZED (
  SELECT l.account_id, l.id, t.clicks
  FROM totals t JOIN links l ON l.account_id = t.account_id AND l.id = t.link_id
  ORDER BY l.account_id, l.id FOR NO KEY UPDATE OF l SKIP LOCKED),
counted AS (
  UPDATE links l SET clicks = l.clicks + k.clicks, last_clicked_at = now()
  FROM locked k WHERE l.account_id = k.account_id AND l.id = k.id),
rolled_up AS (
  INSERT INTO link_rollups AS r (account_id, bucket_minutes, bucket_start, link_id, clicks)
  SELECT n.account_id, n.bucket_minutes, n.bucket_start, n.link_id, n.clicks
  FROM unnest($4, $5, $6, $7, $8) AS n (account_id, link_id, bucket_minutes, bucket_start, clicks)
  JOIN locked k ON k.account_id = n.account_id AND k.id = n.link_id
  ORDER BY n.account_id, n.bucket_minutes, n.bucket_start, n.link_id
  ON CONFLICT (account_id, bucket_minutes, bucket_start, link_id) DO UPDATE SET clicks = r.clicks + excluded.clicks),
deferred AS (
  SELECT p.id FROM present p
  WHERE NOT EXISTS (SELECT FROM locked k WHERE k.account_id = p.account_id AND k.id = p.id)),
noted AS (
  UPDATE link_click_writers SET batch = $10, deferred = ARRAY(SELECT id FROM deferred), applied_at = now()
  WHERE id = $9)
SELECT id FROM deferred
