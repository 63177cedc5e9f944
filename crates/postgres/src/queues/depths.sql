-- Depth and age of every queue. Counts due rows only: a row whose time has not come does not wait.
-- $1 maximum number of rows that are counted per queue.
WITH RECURSIVE endpoints AS (
  (SELECT endpoint_id, 1 AS n FROM webhook_deliveries WHERE state = 'waiting' ORDER BY endpoint_id LIMIT 1)
  UNION ALL
  SELECT (SELECT d.endpoint_id FROM webhook_deliveries d
    WHERE d.state = 'waiting' AND d.endpoint_id > l.endpoint_id ORDER BY d.endpoint_id LIMIT 1), l.n + 1
  FROM endpoints l WHERE l.endpoint_id IS NOT NULL AND l.n < 1000),
kinds (kind) AS (VALUES ('audit'), ('notification'), ('webhook')),
waiting (queue, depth, since) AS (
  SELECT 'runs_waiting', count(*), min(waiting_since) FROM (
    SELECT greatest(q.waiting_since, q.waiting_until) AS waiting_since FROM campaign_queue q
    JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
    JOIN accounts a ON a.id = q.account_id
    WHERE q.worker IS NULL AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
      AND (q.waiting_until <= now()) IS NOT FALSE
    LIMIT $1) q
  UNION ALL
  SELECT 'runs_under_way', count(*), min(created_at) FROM (
    SELECT created_at FROM campaign_queue WHERE worker IS NOT NULL AND leased_until > now() LIMIT $1) q
  UNION ALL
  SELECT 'schedule', count(*), min(scheduled_at) FROM (
    SELECT c.scheduled_at FROM campaigns c JOIN accounts a ON a.id = c.account_id AND a.status = 'active'
    WHERE c.status = 'scheduled' AND c.deleted_at IS NULL AND c.scheduled_at <= now()
    ORDER BY c.scheduled_at LIMIT $1) q
  UNION ALL
  SELECT 'recipient_batches', count(*), min(created_at) FROM (
    SELECT created_at FROM campaign_recipient_batches UNION ALL SELECT created_at FROM campaign_retry_batches
    LIMIT $1) q
  UNION ALL
  SELECT 'sends_unknown', count(*), min(unknown_at) FROM (
    SELECT unknown_at FROM campaign_sends WHERE unknown_at IS NOT NULL ORDER BY unknown_at LIMIT $1) q
  UNION ALL
  SELECT 'replies_pending', count(*), min(recorded_at) FROM (
    SELECT recorded_at FROM messages WHERE status = 'pending' ORDER BY recorded_at LIMIT $1) q
  UNION ALL
  SELECT 'outbox_' || k.kind, q.depth, q.since FROM kinds k CROSS JOIN LATERAL (
    SELECT count(*) AS depth, min(created_at) AS since FROM (
      SELECT created_at FROM outbox_events WHERE kind = k.kind AND retry_at IS NULL
      ORDER BY seq LIMIT $1) o) q
  UNION ALL
  SELECT 'outbox_set_aside', count(*), min(created_at) FROM (
    SELECT created_at FROM outbox_events WHERE retry_at IS NOT NULL LIMIT $1) q
  UNION ALL
  SELECT 'webhook_deliveries', count(*), min(next_attempt_at) FROM (
    SELECT d.next_attempt_at FROM endpoints l
    JOIN webhook_endpoints e ON e.id = l.endpoint_id AND e.is_active AND e.direction = 'outbound'
    JOIN accounts a ON a.id = e.account_id AND a.status = 'active'
    CROSS JOIN LATERAL (SELECT next_attempt_at FROM webhook_deliveries
      WHERE endpoint_id = l.endpoint_id AND state = 'waiting' AND next_attempt_at <= now()
      ORDER BY next_attempt_at LIMIT $1) d
    LIMIT $1) q
  UNION ALL
  SELECT 'whatsapp_callbacks', count(*), min(received_at) FROM (
    SELECT received_at FROM whatsapp_callbacks WHERE due_at < 'infinity' ORDER BY due_at LIMIT $1) q
  UNION ALL
  SELECT 'whatsapp_callbacks_set_aside', count(*), min(received_at) FROM (
    SELECT received_at FROM whatsapp_callbacks WHERE due_at = 'infinity' LIMIT $1) q
  UNION ALL
  SELECT 'gateway_events', count(*), min(received_at) FROM (
    SELECT received_at FROM gateway_events WHERE due_at IS NOT NULL ORDER BY seq LIMIT $1) q
  UNION ALL
  SELECT 'gateway_cancellations', count(*), min(due_at) FROM (
    SELECT due_at FROM gateway_cancellations WHERE due_at <= now() ORDER BY due_at LIMIT $1) q
  UNION ALL
  SELECT 'mail', count(*), min(created_at) FROM (
    SELECT created_at FROM outgoing_mail ORDER BY due_at LIMIT $1) q
  UNION ALL
  SELECT 'account_removals', count(*), min(created_at) FROM (
    SELECT created_at FROM account_deletions LIMIT $1) q
  UNION ALL
  SELECT 'customer_scores', count(*), min(due_at) FROM (
    SELECT due_at FROM rfm_calculations WHERE due_at <= now() ORDER BY due_at LIMIT $1) q)
SELECT queue, depth, extract(epoch FROM clock_timestamp() - since)::float8 AS age FROM waiting
