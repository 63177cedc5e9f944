-- Records attempts: updates or deletes deliveries, updates the health of endpoints and writes logs. Returns how many
-- locked deliveries could not be written. `delivered`, `others`: the keys of held deliveries by their new state.
-- $1 to $13 one array for each column of an attempt, $14 to $15 recovered endpoints, $16 to $20 failing endpoints.
WITH attempts AS MATERIALIZED (
  SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    AS m (account_id, event_id, endpoint_id, claim, log_id, number, type, status, error, duration_ms, at, state, delay)
  ORDER BY account_id, event_id, endpoint_id),
held AS MATERIALIZED (
  SELECT m.account_id, m.event_id, m.endpoint_id, m.state AS next, m.number, m.at, m.delay
  FROM attempts m CROSS JOIN LATERAL (
    SELECT FROM webhook_deliveries d
    WHERE {is_attempted} AND d.claim = m.claim AND (d.leased OR m.state = 'delivered')
    FOR UPDATE) d),
delivered AS (
  DELETE FROM webhook_deliveries d USING {delivered}
  WHERE {is_delivery}
  RETURNING 1),
others AS (
  UPDATE webhook_deliveries d
  SET state = h.next, attempt = h.number, leased = false, failed_at = h.at,
    next_attempt_at = now() + h.delay * interval '1 microsecond'
  FROM {others} JOIN held h USING (account_id, event_id, endpoint_id)
  WHERE {is_delivery}
  RETURNING 1),
recovered AS (
  UPDATE webhook_endpoints e SET failing_since = NULL, last_failed_at = NULL
  FROM unnest($14, $15) AS r (account_id, id)
  WHERE e.account_id = r.account_id AND e.id = r.id AND e.failing_since IS NOT NULL),
failing AS (
  UPDATE webhook_endpoints e SET failing_since = f.since, last_failed_at = f.at
  FROM unnest($16, $17, $18, $19, $20) AS f (account_id, id, known, since, at)
  WHERE e.account_id = f.account_id AND e.id = f.id AND e.failing_since IS NOT DISTINCT FROM f.known),
logged AS (
  INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id,
    response_status, attempt, duration_ms, error, next_attempt_at, created_at)
  SELECT m.account_id, m.log_id, m.endpoint_id, 'outbound', m.type, m.event_id, m.event_id,
    m.status, m.number, m.duration_ms, m.error,
    CASE WHEN m.state = 'waiting' THEN now() + m.delay * interval '1 microsecond' END, m.at
  FROM attempts m JOIN accounts a ON a.id = m.account_id
  FOR KEY SHARE OF a
  ON CONFLICT DO NOTHING)
SELECT (SELECT count(*) FROM held) - (SELECT count(*) FROM delivered) - (SELECT count(*) FROM others) AS n
