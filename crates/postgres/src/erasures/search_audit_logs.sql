-- Empties the entries of a page that name the person, but not those of members, invites and keys. Parameters as in search_webhook_events.sql; the key is the time
-- and the id.
WITH page AS MATERIALIZED (
    SELECT created_at, id, entity_type NOT IN ('account_user', 'invite', 'api_key') AND {names_person} AS is_found FROM audit_logs
    WHERE account_id = $1 AND (created_at, id) > (coalesce(split_part($3, '|', 1), '-infinity')::timestamptz,
      coalesce(split_part($3, '|', 2), '{nil}')::uuid) ORDER BY created_at, id LIMIT $4
  ), changed AS (
    UPDATE audit_logs e SET changes = NULL FROM page f
    WHERE f.is_found AND e.account_id = $1 AND e.created_at = f.created_at AND e.id = f.id RETURNING 1
  ) SELECT (SELECT created_at::text || '|' || id FROM page ORDER BY created_at DESC, id DESC LIMIT 1) AS last,
      (SELECT count(*) FROM changed) AS n, 0::bigint AS others
