-- Leases due deliveries of the given endpoints. `endpoints`: an endpoint, a limit and the position of its queue;
-- `keys`: the due deliveries.
-- $1 to $4 endpoints, limits, times and events of the positions, $5 limit, $6 lease in microseconds.
WITH claimable AS MATERIALIZED (
  SELECT e.account_id, w.id, w.n, w.due_at, w.event_id
  FROM {endpoints} w JOIN webhook_endpoints e ON e.id = w.id
  JOIN accounts a ON a.id = e.account_id AND a.status = 'active'
  WHERE e.is_active AND e.direction = 'outbound'),
due AS MATERIALIZED (
  SELECT d.* FROM claimable w CROSS JOIN LATERAL (
    SELECT q.account_id, q.event_id, q.endpoint_id, q.next_attempt_at AS due_at FROM webhook_deliveries q
    WHERE q.endpoint_id = w.id AND q.state = 'waiting' AND q.next_attempt_at <= now()
      AND (q.next_attempt_at, q.event_id) > (w.due_at, w.event_id)
    ORDER BY q.next_attempt_at, q.event_id LIMIT w.n FOR UPDATE SKIP LOCKED) d
  LIMIT $5),
claimed AS (
  UPDATE webhook_deliveries d
  SET leased = true, claim = d.claim + 1, next_attempt_at = now() + $6 * interval '1 microsecond'
  FROM {keys}
  WHERE {is_delivery}
  RETURNING d.account_id, d.event_id, d.endpoint_id, d.claim, d.attempt, k.due_at)
SELECT c.*, e.name, e.url, e.secret,
  CASE WHEN e.previous_secret_until > now() THEN e.previous_secret END AS previous_secret,
  e.previous_secret_until, e.failing_since, e.last_failed_at, v.type AS kind, v.payload AS data, v.occurred_at
FROM claimed c
JOIN webhook_endpoints e ON e.account_id = c.account_id AND e.id = c.endpoint_id
LEFT JOIN LATERAL (SELECT * FROM webhook_events
  WHERE account_id = c.account_id AND id = c.event_id {fence}) v ON true
ORDER BY v.occurred_at, v.id
