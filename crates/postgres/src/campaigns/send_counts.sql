-- The counters of a campaign, or the number of its sends if it has no counters, and what its run waits for, unless it is
-- paused. `ids`: the range of its send ids.
-- $1 account, $2 campaign.
SELECT coalesce(n.total, r.total) AS total, coalesce(n.pending, r.pending) AS pending,
  coalesce(n.sent, r.sent) AS sent, coalesce(n.delivered, r.delivered) AS delivered,
  coalesce(n.read, r.read) AS read, coalesce(n.failed, r.failed) AS failed,
  coalesce(q.held, 0) AS held, q.waiting_until
FROM campaigns c
  LEFT JOIN campaign_queue q ON q.account_id = c.account_id AND q.campaign_id = c.id
    AND q.waiting_until > now() AND c.paused_at IS NULL
  LEFT JOIN campaign_counters n ON n.account_id = c.account_id AND n.campaign_id = c.id
  LEFT JOIN LATERAL (
    SELECT count(*) AS total, count(*) FILTER (WHERE s.status = 'pending') AS pending,
      count(*) FILTER (WHERE s.status = 'sent') AS sent,
      count(*) FILTER (WHERE s.status = 'delivered') AS delivered,
      count(*) FILTER (WHERE s.status = 'read') AS read,
      count(*) FILTER (WHERE s.status = 'failed') AS failed
    FROM campaign_sends s
    WHERE s.account_id = c.account_id AND s.campaign_id = c.id AND n.campaign_id IS NULL AND {ids}
  ) r ON true
WHERE c.account_id = $1 AND c.id = $2 AND c.deleted_at IS NULL
