-- Claims the stored counts of one account that are read and old. $1 age, $2 most segments, $3 lease.
WITH due AS (
  SELECT k.account_id, k.segment_id, k.counted_at FROM segment_counts k
  WHERE k.wanted_at > now() - interval '5 minutes' AND k.counted_at <= now() - $1 * interval '1 microsecond'
    AND coalesce(k.leased_until <= now(), true)),
part AS (
  SELECT k.account_id, k.segment_id FROM segment_counts k
  WHERE (k.account_id, k.segment_id) IN (
    SELECT d.account_id, d.segment_id FROM due d
    WHERE d.account_id = (SELECT o.account_id FROM due o ORDER BY o.counted_at, o.account_id LIMIT 1))
  ORDER BY k.counted_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE segment_counts k SET leased_until = now() + $3 * interval '1 microsecond' FROM part p
WHERE k.account_id = p.account_id AND k.segment_id = p.segment_id
RETURNING k.account_id, k.segment_id AS id, coalesce((SELECT s.filters ?| '{all,any,not}' FROM segments s
  WHERE s.account_id = k.account_id AND s.id = k.segment_id), false) AS has_tree
