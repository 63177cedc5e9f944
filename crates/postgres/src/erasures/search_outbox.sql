-- Removes what names the person from outbox events. `others`: the items of other people.
-- $1 account, $2 ids, $3 null, $4 limit, $5 personal terms, $6 time of the last copies.
WITH found AS MATERIALIZED (
    SELECT o.kind, o.seq, CASE WHEN o.kind = 'webhook' THEN ({others}) END AS others FROM outbox_events o
    WHERE o.account_id = $1 AND $3::text IS NULL AND o.kind IN ('webhook', 'notification')
      AND o.payload ->> 'type' IS DISTINCT FROM '{erased}' AND {names_person}
    ORDER BY o.kind, o.seq LIMIT $4 FOR UPDATE
  ), emptied AS (
    UPDATE outbox_events o SET payload = jsonb_set(o.payload, '{{items}}', f.others) FROM found f
    WHERE o.kind = f.kind AND o.seq = f.seq AND f.others IS NOT NULL RETURNING 1
  ), removed AS (
    DELETE FROM outbox_events o USING found f
    WHERE o.kind = f.kind AND o.seq = f.seq AND f.others IS NULL RETURNING 1
  ) SELECT (SELECT count(*) FROM emptied) + (SELECT count(*) FROM removed) AS n
