-- The report on automations as one JSON object.
-- $1 to $7 see bind_window, of which $2 and $3 are not used, $8 maximum number of automations.
WITH ran AS (
  SELECT automation_id AS id, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
    sum(latency) AS latency
  FROM {executions} GROUP BY automation_id HAVING sum(completed + failed) <> 0),
most AS (
  SELECT r.*, a.name FROM ran r JOIN automations a ON a.account_id = $1 AND a.id = r.id
  ORDER BY r.completed + r.failed DESC, r.id LIMIT $8)
SELECT json_build_object('automations',
  (SELECT coalesce(json_agg(json_build_object('id', id, 'name', name, 'completed', completed,
     'failed', failed, 'latency', latency::text) ORDER BY completed + failed DESC, id), '[]') FROM most),
  {completed}, {failed}, {latency})::text AS totals
FROM (SELECT sum(completed) AS completed, sum(failed) AS failed, sum(latency) AS latency FROM ran) AS r
