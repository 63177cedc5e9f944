-- Writes webhook events to the feeds, and a delivery for every active endpoint that subscribes to the event.
-- $1 to $5 one array for each column: account, id, type, payload, time.
WITH batch AS MATERIALIZED (
  SELECT e.* FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY
    AS e (account_id, id, type, payload, occurred_at, position)
  JOIN accounts a ON a.id = e.account_id FOR KEY SHARE OF a),
events AS (
  INSERT INTO webhook_events (account_id, id, type, payload, occurred_at, seq)
  SELECT o.account_id, o.id, o.type, o.payload, o.occurred_at, nextval('webhook_events_seq_seq')
  FROM (SELECT * FROM batch ORDER BY position) o
  ON CONFLICT DO NOTHING
  RETURNING account_id, id, type)
INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id, next_attempt_at)
SELECT e.account_id, e.id, w.id, statement_timestamp() FROM events e
JOIN webhook_endpoints w ON w.account_id = e.account_id AND w.direction = 'outbound' AND w.is_active
  AND w.events && ARRAY[e.type, '*']
FOR KEY SHARE OF w
ON CONFLICT DO NOTHING
