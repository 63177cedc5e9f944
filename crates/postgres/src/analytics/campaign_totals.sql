-- The latest campaigns with their counters: one lookup per campaign.
-- $1 account, $2 to $3 window, $4 limit.
SELECT coalesce(json_agg(json_build_object('id', c.id, 'name', c.name, 'template_name', c.template_name,
    'executed_at', c.executed_at, 'total_recipients', c.total_recipients,
    'messages', json_build_object('sent', c.sent, 'delivered', c.delivered, 'read', c.read, 'failed', c.failed,
      'received', 0)) ORDER BY c.executed_at DESC, c.id DESC), '[]')::text AS totals
FROM (SELECT c.*, coalesce(n.sent, 0) AS sent, coalesce(n.delivered, 0) AS delivered, coalesce(n.read, 0) AS read,
    coalesce(n.failed, 0) AS failed
  FROM (SELECT c.id, c.name, t.name AS template_name, c.executed_at, c.total_recipients
    FROM campaigns c
    LEFT JOIN message_templates t ON t.account_id = c.account_id AND t.id = c.template_id
    WHERE c.account_id = $1 AND c.deleted_at IS NULL AND c.executed_at >= $2 AND c.executed_at < $3
    ORDER BY c.executed_at DESC, c.id DESC LIMIT $4) c
  LEFT JOIN LATERAL (SELECT * FROM campaign_counters WHERE account_id = $1 AND campaign_id = c.id {fence}) n
    ON true) c
