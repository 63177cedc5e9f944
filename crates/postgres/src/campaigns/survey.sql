-- Counts the recipients that `audience_clause` selects, and finds the placeholders that stay empty for any of them.
-- $1 account, $2 placeholders (position, fields, keys), $3 characters to trim, from $4 the audience.
WITH b AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset($2) AS b (position bigint, name boolean, phone boolean, email boolean,
    keys text[])),
groups AS MATERIALIZED (
  SELECT r.empty, count(*) AS recipients FROM (
    SELECT (SELECT array_agg(b.position) FROM b
      WHERE (NOT b.name OR btrim(c.name, $3) = '')
        AND (NOT b.phone OR btrim(coalesce(c.phone, ''), $3) = '')
        AND (NOT b.email OR btrim(coalesce(c.email, ''), $3) = '')
        AND NOT EXISTS (SELECT 1 FROM unnest(b.keys) AS k
          WHERE btrim(coalesce(c.attributes ->> k, ''), $3) <> '')) AS empty
    {audience_clause} {fence}) AS r
  GROUP BY r.empty)
SELECT (SELECT coalesce(sum(recipients), 0)::bigint FROM groups) AS recipients,
  ARRAY (SELECT DISTINCT e.position FROM groups g CROSS JOIN LATERAL unnest(g.empty) AS e (position)
    ORDER BY e.position) AS empty
