-- Removes the events of a page that name the person, and their deliveries. `names_person`: the condition; `erased`: the
-- kind that stays; `nil`: the smallest id.
-- $1 account, $2 ids, $3 last key, $4 limit, $5 personal terms, $6 time of the last copies.
WITH page AS MATERIALIZED (
    SELECT id, type <> '{erased}' AND {names_person} AS is_found
    FROM webhook_events WHERE account_id = $1 AND id > coalesce($3::uuid, '{nil}') ORDER BY id LIMIT $4
  ), found AS MATERIALIZED (SELECT id FROM page WHERE is_found
  ), cancelled AS (
    DELETE FROM webhook_deliveries d USING found f WHERE d.account_id = $1 AND d.event_id = f.id RETURNING 1
  ), removed AS (
    DELETE FROM webhook_events e USING found f WHERE e.account_id = $1 AND e.id = f.id RETURNING 1
  ) SELECT (SELECT max(id::text) FROM page) AS last, (SELECT count(*) FROM removed) AS n,
      (SELECT count(*) FROM cancelled) AS others
