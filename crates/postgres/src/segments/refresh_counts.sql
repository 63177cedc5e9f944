-- Counts the segments whose stored counts are too old, and stores the counts. `keys`: the segments' ids.
-- $1 account, $2 ids, $3 maximum age of a count.
WITH part AS MATERIALIZED (
  SELECT s.id, coalesce(k.changes, 0) AS changes, {conditions}
  FROM {keys} i JOIN segments s ON s.account_id = $1 AND s.id = i.id
  LEFT JOIN segment_counts k ON k.account_id = $1 AND k.segment_id = s.id
  WHERE s.deleted_at IS NULL
    AND coalesce(k.counted_at <= now() - $3 * interval '1 microsecond', true)),
matching AS MATERIALIZED ({matching})
INSERT INTO segment_counts AS k (account_id, segment_id, contacts, counted_at, changes)
SELECT $1, p.id, {member_count} + coalesce(m.contacts, 0), statement_timestamp(), p.changes
FROM part p LEFT JOIN matching m ON m.id = p.id ORDER BY p.id
ON CONFLICT (account_id, segment_id) DO UPDATE SET contacts = excluded.contacts,
  counted_at = excluded.counted_at, leased_until = NULL
  WHERE k.changes = excluded.changes
