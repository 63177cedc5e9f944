-- Recomputes the costs of an account from the prices of its messages that were delivered or read.
-- $1 account.
SELECT date_bin('15 minutes', (p.pricing ->> 'since')::timestamptz, timestamptz '1970-01-01 00:00:00+00') AS bucket_start,
  p.campaign_id,
  coalesce((p.pricing ->> 'profile_id')::uuid, '00000000-0000-0000-0000-000000000000') AS profile_id,
  coalesce((p.pricing ->> 'template_id')::uuid, '00000000-0000-0000-0000-000000000000') AS template_id,
  coalesce(p.pricing ->> 'category', '') AS category, coalesce(p.pricing ->> 'market', '') AS market,
  coalesce(p.pricing ->> 'currency', '') AS currency, sum(coalesce((p.pricing ->> 'amount')::numeric, 0)) AS amount,
  count(*) AS messages, count(*) FILTER (WHERE (p.pricing ->> 'billable')::boolean) AS billable,
  count(*) FILTER (WHERE NOT (p.pricing ->> 'billable')::boolean) AS free,
  count(*) FILTER (WHERE (p.pricing ->> 'billable')::boolean AND p.pricing ->> 'amount' IS NULL) AS unpriced
FROM (SELECT campaign_id, pricing FROM campaign_sends
    WHERE account_id = $1 AND status IN ('delivered', 'read') AND pricing ->> 'since' IS NOT NULL
  UNION ALL SELECT '00000000-0000-0000-0000-000000000000', pricing FROM messages
    WHERE account_id = $1 AND direction = 'outbound' AND origin IS DISTINCT FROM 'business_app'
      AND status IN ('delivered', 'read') AND pricing ->> 'since' IS NOT NULL
  UNION ALL SELECT '00000000-0000-0000-0000-000000000000', pricing FROM direct_messages
    WHERE account_id = $1 AND status IN ('delivered', 'read') AND pricing ->> 'since' IS NOT NULL) p
GROUP BY 1, 2, 3, 4, 5, 6, 7
