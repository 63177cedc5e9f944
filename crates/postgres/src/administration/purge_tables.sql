-- Every table with an account's rows, and its primary key; a table comes before the tables that it references.
-- No parameters.
WITH RECURSIVE owned AS (
  SELECT c.oid, c.relname FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'account_id' AND NOT a.attisdropped
  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relname NOT IN ('account_deletions', 'gateway_cancellations', 'platform_audit')),
refers AS (
  SELECT DISTINCT f.conrelid AS source, f.confrelid AS target FROM pg_constraint f
  JOIN owned s ON s.oid = f.conrelid JOIN owned t ON t.oid = f.confrelid
  WHERE f.contype = 'f' AND f.conrelid <> f.confrelid),
placed AS (
  SELECT oid, 0 AS depth FROM owned
  UNION SELECT r.source, p.depth + 1 FROM placed p JOIN refers r ON r.target = p.oid WHERE p.depth < 50),
ordered AS (
  SELECT o.oid, o.relname, max(p.depth) AS depth FROM owned o JOIN placed p ON p.oid = o.oid
  GROUP BY o.oid, o.relname)
SELECT quote_ident(o.relname) AS name, k.columns, k.types, k.by_account FROM ordered o
CROSS JOIN LATERAL (
  SELECT array_agg(quote_ident(a.attname) ORDER BY x.n) AS columns,
    array_agg(format_type(a.atttypid, NULL) ORDER BY x.n) AS types,
    bool_or(x.n = 1 AND a.attname = 'account_id') AS by_account
  FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS x (attnum, n)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = x.attnum
  WHERE i.indrelid = o.oid AND i.indisprimary) k
ORDER BY o.depth DESC, o.relname
