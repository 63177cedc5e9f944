-- Adds to the rollup of costs. $1 account, $2 to $8 keys, $9 to $13 sums; the amounts are decimal texts.
INSERT INTO cost_rollups AS r (account_id, bucket_start, campaign_id, profile_id, template_id, category, market,
  currency, amount, messages, billable, free, unpriced)
SELECT $1, d.bucket_start, d.campaign_id, d.profile_id, d.template_id, d.category, d.market, d.currency,
  d.amount::numeric, d.messages, d.billable, d.free, d.unpriced
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) WITH ORDINALITY
  AS d (bucket_start, campaign_id, profile_id, template_id, category, market, currency, amount, messages, billable,
    free, unpriced, position)
ORDER BY d.position
ON CONFLICT (account_id, bucket_start, campaign_id, profile_id, template_id, category, market, currency) DO UPDATE
  SET amount = r.amount + excluded.amount, messages = r.messages + excluded.messages,
    billable = r.billable + excluded.billable, free = r.free + excluded.free,
    unpriced = r.unpriced + excluded.unpriced
