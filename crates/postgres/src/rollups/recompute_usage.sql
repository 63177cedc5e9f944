-- Recomputes an account's used and reserved messages of each month.
-- $1 account.
SELECT month, sum(sent)::bigint AS sent, sum(reserved)::bigint AS reserved
FROM (SELECT coalesce(CASE WHEN s.status = 'pending' AND s.started_at IS NULL THEN c.run_quota_month END,
      s.quota_month, c.quota_month) AS month,
    (s.status IN ('sent', 'delivered', 'read'))::int AS sent,
    (s.status = 'pending' AND (c.status = 'sending' OR s.started_at IS NOT NULL))::int AS reserved
  FROM campaign_sends s JOIN campaigns c ON c.account_id = s.account_id AND c.id = s.campaign_id
  WHERE s.account_id = $1
  UNION ALL SELECT c.run_quota_month, 0, cardinality(l.contact_ids)
  FROM campaign_recipient_batches l JOIN campaigns c ON c.account_id = l.account_id AND c.id = l.campaign_id
  WHERE l.account_id = $1 AND c.status = 'sending'
  UNION ALL SELECT c.run_quota_month, 0, cardinality(b.send_ids)
  FROM campaign_retry_batches b JOIN campaigns c ON c.account_id = b.account_id AND c.id = b.campaign_id
  WHERE b.account_id = $1 AND c.status = 'sending'
  UNION ALL SELECT quota_month, 0, 1 FROM direct_messages WHERE account_id = $1
  UNION ALL SELECT date_trunc('month', created_at AT TIME ZONE 'UTC')::date, 0, 1 FROM messages
  WHERE account_id = $1 AND status = 'pending' AND type = 'template' AND origin = 'reply') u
WHERE month IS NOT NULL GROUP BY 1
