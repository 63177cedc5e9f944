-- A page of an account's feed: scans the events after the cursor (`scanned`) and returns the matching ones.
-- $1 account, $2 cursor, $3 limit, $4 event type, if any.
WITH start AS MATERIALIZED (
  SELECT coalesce(
    (SELECT seq FROM webhook_events WHERE account_id = $1 AND id = $2),
    (SELECT e.seq - 1 FROM (SELECT seq, id FROM webhook_events
      WHERE account_id = $1 AND seq IS NOT NULL ORDER BY seq {fence}) e WHERE e.id > $2 LIMIT 1),
    (SELECT max(seq) FROM webhook_events WHERE account_id = $1), 0) AS seq),
seen AS MATERIALIZED ({scanned}),
numbered AS (
  SELECT s.*, count(*) FILTER (WHERE s.matches) OVER (ORDER BY s.seq) AS n FROM seen s),
slice AS MATERIALIZED (
  SELECT seq, id, matches FROM numbered
  WHERE n < $3 OR (n = $3 AND matches)),
last AS (SELECT max(seq) AS seq FROM slice)
SELECT v.id, v.type AS kind, v.payload AS data, v.occurred_at, s.matches,
  last.seq < (SELECT max(seq) FROM webhook_events WHERE account_id = $1) AS followed
FROM last JOIN slice s ON s.matches OR s.seq = last.seq
CROSS JOIN LATERAL (SELECT * FROM webhook_events WHERE account_id = $1 AND id = s.id {fence}) v
ORDER BY s.seq
