-- Counts the contacts that `audience_clause` selects by how they are `reached`, and finds the placeholders that stay
-- empty for any that is.
-- $1 account, $2 placeholders (position, fields, keys), $3 characters to trim, from $4 the audience.
WITH b AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset($2) AS b (position bigint, name boolean, phone boolean, email boolean,
    keys text[])),
groups AS MATERIALIZED (
  SELECT r.reached, r.empty, count(*) AS contacts FROM (
    SELECT {reached} AS reached, (SELECT array_agg(b.position) FROM b
      WHERE (NOT b.name OR btrim(c.name, $3) = '')
        AND (NOT b.phone OR btrim(coalesce(c.phone, ''), $3) = '')
        AND (NOT b.email OR btrim(coalesce(c.email, ''), $3) = '')
        AND NOT EXISTS (SELECT 1 FROM unnest(b.keys) AS k
          WHERE btrim(coalesce(c.attributes ->> k, ''), $3) <> '')) AS empty
    {audience_clause} {fence}) AS r
  GROUP BY r.reached, r.empty)
SELECT g.reached, sum(g.contacts)::bigint AS contacts, ARRAY (
    SELECT DISTINCT e.position FROM groups o CROSS JOIN LATERAL unnest(o.empty) AS e (position)
    WHERE o.reached = g.reached ORDER BY e.position) AS empty
FROM groups g WHERE g.reached IS NOT NULL GROUP BY g.reached
