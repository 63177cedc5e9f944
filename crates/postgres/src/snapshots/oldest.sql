-- The oldest snapshot of each kind of holder.
-- No parameters.
WITH holders (source, transactions, since) AS (
  SELECT 'session', greatest(age(backend_xmin), age(backend_xid)), xact_start FROM pg_stat_activity
  WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
    AND (datname = current_database() OR backend_type = 'walsender')
    AND NOT (backend_type = 'autovacuum worker' AND query LIKE 'autovacuum: VACUUM%')
  UNION ALL
  SELECT 'prepared_transaction', age(transaction), prepared FROM pg_prepared_xacts
  WHERE database = current_database()
  UNION ALL
  SELECT 'replication_slot', age(xmin), NULL FROM pg_replication_slots WHERE xmin IS NOT NULL)
SELECT s.source, coalesce(max(h.transactions), 0)::bigint AS transactions,
  extract(epoch FROM max(clock_timestamp() - h.since))::float8 AS age
FROM (VALUES ('session'), ('prepared_transaction'), ('replication_slot')) AS s (source)
LEFT JOIN holders h USING (source) GROUP BY s.source ORDER BY s.source
