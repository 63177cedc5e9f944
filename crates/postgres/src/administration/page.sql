-- A page of all accounts, and the total. `condition`: which accounts `a`; `monthly_value`: of a subscription `s`.
-- $1 limit, $2 offset, $3 time since which messages count, from $4 those of the condition.
WITH found AS {materialized} (SELECT a.id, a.created_at FROM accounts a WHERE {condition})
SELECT t.n AS total, p.id, p.name, p.slug, p.plan, p.status, p.created_at,
  (SELECT u.email FROM account_users m JOIN users u ON u.id = m.user_id
    WHERE m.account_id = p.id AND m.role = 'owner' ORDER BY m.created_at, m.user_id LIMIT 1) AS owner_email,
  (SELECT count(*) FROM account_users m WHERE m.account_id = p.id AND NOT m.is_support) AS users,
  (SELECT coalesce(sum(n.contacts), 0)::bigint FROM contact_counts n WHERE n.account_id = p.id) AS contacts,
  (SELECT coalesce(sum(CASE WHEN c.executed_at >= $3 THEN n.sent + n.delivered + n.read
       ELSE (SELECT count(*) FROM campaign_sends s WHERE s.account_id = c.account_id AND s.campaign_id = c.id
         AND s.id BETWEEN first_id(c.frozen_at) AND last_id(c.frozen_at)
         AND s.status IN ('sent', 'delivered', 'read') AND s.sent_at >= $3) END), 0)::bigint
     FROM campaigns c CROSS JOIN LATERAL (SELECT * FROM campaign_counters
       WHERE account_id = c.account_id AND campaign_id = c.id {fence}) n
     WHERE c.account_id = p.id AND c.executed_at IS NOT NULL
       AND (c.status = 'sending' OR coalesce(c.completed_at, c.updated_at) >= $3 - interval '1 day'))
    + (SELECT count(*) FROM messages m WHERE m.account_id = p.id AND m.direction = 'outbound'
        AND m.origin IS DISTINCT FROM 'business_app' AND m.created_at >= $3 AND m.status IN ('sent', 'delivered', 'read'))
    + (SELECT count(*) FROM direct_messages d WHERE d.account_id = p.id AND d.status IN ('sent', 'delivered', 'read')
        AND d.created_at >= $3 - interval '31 days' AND d.send_at >= $3) AS messages,
  (SELECT coalesce(sum({monthly_value}), 0)::bigint FROM subscriptions s
    WHERE s.account_id = p.id AND s.status IN ('active', 'past_due') AND NOT s.attempt) AS mrr
FROM (SELECT count(*) AS n FROM found) t
LEFT JOIN (
  (SELECT id AS key FROM found ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2) k
  JOIN accounts p ON p.id = k.key) ON true
ORDER BY p.created_at DESC, p.id DESC
