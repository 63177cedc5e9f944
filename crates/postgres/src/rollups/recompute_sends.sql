-- Recomputes the counters of an account's campaigns from their sends and batches.
-- $1 account.
SELECT campaign_id, sum(n)::bigint AS total, coalesce(sum(n) FILTER (WHERE status = 'pending'), 0)::bigint AS pending,
  coalesce(sum(n) FILTER (WHERE status = 'sent'), 0)::bigint AS sent,
  coalesce(sum(n) FILTER (WHERE status = 'delivered'), 0)::bigint AS delivered,
  coalesce(sum(n) FILTER (WHERE status = 'read'), 0)::bigint AS read,
  coalesce(sum(n) FILTER (WHERE status = 'failed'), 0)::bigint AS failed, max(created_at) AS created_at
FROM (SELECT campaign_id, status, count(*) AS n, max(created_at) AS created_at FROM campaign_sends
    WHERE account_id = $1 GROUP BY 1, 2
  UNION ALL SELECT campaign_id, 'pending', sum(cardinality(contact_ids)), max(created_at)
    FROM campaign_recipient_batches
    WHERE account_id = $1 GROUP BY 1
  UNION ALL SELECT b.campaign_id, m.status, m.sign * sum(cardinality(b.send_ids)), NULL
    FROM campaign_retry_batches b CROSS JOIN (VALUES ('pending', 1), ('failed', -1)) AS m (status, sign)
    WHERE b.account_id = $1 GROUP BY 1, m.status, m.sign) s
GROUP BY 1
