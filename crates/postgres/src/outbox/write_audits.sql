-- Writes audit entries and adds them to their counts.
-- $1 to $9 one array for each column: account, id, user, action, type and id of the entity, changes, IP address, time.
WITH written AS (
  INSERT INTO audit_logs
    (account_id, id, user_id, action, entity_type, entity_id, changes, ip_address, created_at)
  SELECT e.account_id, e.id, e.user_id, e.action, e.entity_type, e.entity_id, e.changes, e.ip_address,
    e.created_at
  FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    AS e (account_id, id, user_id, action, entity_type, entity_id, changes, ip_address, created_at)
  JOIN accounts a ON a.id = e.account_id
  FOR KEY SHARE OF a
  ON CONFLICT DO NOTHING
  RETURNING account_id, entity_type, action, created_at)
INSERT INTO audit_counts (account_id, month, entity_type, action, n)
SELECT account_id, date_trunc('month', created_at AT TIME ZONE 'UTC')::date AS month, entity_type, action,
  count(*)
FROM written
GROUP BY account_id, month, entity_type, action ORDER BY account_id, month, entity_type, action
ON CONFLICT (account_id, month, entity_type, action) DO UPDATE SET n = audit_counts.n + excluded.n
