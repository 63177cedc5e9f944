-- Segments with their number of contacts, newest first; those with trees are counted later. `part`: which segments; `matching`: counts by their filters.
-- $1 account, $2 maximum age of a count, $3 contacts of a small account, from $4 those of the part.
WITH part AS MATERIALIZED (
  SELECT s.id, s.name, s.description, s.filters, s.created_at, s.updated_at, {conditions}
  FROM segments s WHERE s.account_id = $1 AND s.deleted_at IS NULL AND {part}),
account AS MATERIALIZED (
  SELECT coalesce(sum(contacts), 0) <= $3 AS is_small FROM contact_counts WHERE account_id = $1),
matching AS MATERIALIZED ({matching})
SELECT p.id, p.name, p.description, p.filters, p.has_tree, p.created_at, p.updated_at, a.is_small,
  CASE WHEN NOT a.is_small THEN k.contacts WHEN NOT p.has_tree THEN {member_count} + coalesce(m.contacts, 0) END
    AS members,
  CASE WHEN a.is_small THEN now() WHEN isfinite(k.counted_at) THEN k.counted_at END AS members_as_of,
  NOT a.is_small AND coalesce(k.counted_at <= now() - $2 * interval '1 microsecond', true) AS is_stale,
  NOT a.is_small AND coalesce(k.wanted_at <= now() - interval '1 minute', true) AS is_unwanted
FROM part p CROSS JOIN account a
LEFT JOIN matching m ON m.id = p.id
LEFT JOIN segment_counts k ON k.account_id = $1 AND k.segment_id = p.id
ORDER BY p.id DESC
