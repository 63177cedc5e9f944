-- The table that grew most since its last ANALYZE.
-- $1 tables to leave out.
SELECT format('%I.%I', t.schemaname, t.relname) AS text
FROM (
  SELECT t.schemaname, t.relname, t.n_live_tup AS live, greatest(c.reltuples, 0) AS known, false AS due
  FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
  WHERE c.relkind <> 'p' AND t.n_mod_since_analyze > 1000
  UNION ALL
  SELECT t.schemaname, t.relname, sum(p.n_live_tup)::bigint, greatest(c.reltuples, 0),
    coalesce(t.last_analyze, '-infinity') < now() - interval '7 days'
  FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
  JOIN pg_inherits i ON i.inhparent = c.oid JOIN pg_stat_user_tables p ON p.relid = i.inhrelid
  WHERE c.relkind = 'p' GROUP BY t.schemaname, t.relname, t.last_analyze, c.reltuples) t
WHERE t.live > 1000 AND (t.due OR t.live - t.known > 1000 AND t.live > 2 * t.known) AND t.relname <> ALL ($1)
ORDER BY t.live DESC LIMIT 1
