-- Locks sends and their campaigns in the order of the send ids. The sends of a campaign whose archive is written do not
-- change any more: none of them is found. `keys`: send ids; `message_keys`: message ids.
-- `is_erased` is a scalar sub-select: the planner would read all erasures for EXISTS.
-- $1 account, $2 send ids, $3 message ids, $4 smallest send id.
SELECT s.id, s.campaign_id, s.contact_id, s.status, s.attempts,
  s.started_at, s.retry_at, s.unknown_at, s.sent_at, s.delivered_at, s.read_at, s.failed_at, s.error_code,
  s.error_message, s.wa_message_id, s.pricing, s.reserved_amount::text AS reserved_amount,
  c.profile_id, c.template_id, s.by_user_id, s.never_confirmed, c.status = 'sending' AS sending,
  coalesce(CASE WHEN s.reserved_amount IS NOT NULL THEN (SELECT b.currency FROM campaign_budgets b
    WHERE b.account_id = $1 AND b.campaign_id = s.campaign_id) END, c.budget ->> 'currency') AS budget_currency,
  c.status IN ('sent', 'completed', 'partial')
    OR coalesce(s.quota_month, c.quota_month) IS DISTINCT FROM c.run_quota_month AS finished,
  coalesce(s.quota_month, c.quota_month) AS quota_month,
  CASE WHEN s.superseded_wa_message_id IS NULL THEN ARRAY[]::text[] ELSE ARRAY (
    SELECT m.wa_message_id FROM {message_keys} k
    JOIN sent_messages m ON m.account_id = $1 AND m.wa_message_id = k.wa_message_id
      AND m.recorded_at >= {oldest_message}
    WHERE m.send_id = s.id AND m.wa_message_id IS DISTINCT FROM s.wa_message_id) END AS superseded,
  (SELECT e.id FROM erasures e WHERE e.account_id = $1 AND e.contact_id = s.contact_id) IS NOT NULL AS is_erased,
  now() AS now
FROM {keys} k JOIN campaign_sends s ON s.account_id = $1 AND s.id = k.id AND s.id >= $4
JOIN campaigns c ON c.account_id = s.account_id AND c.id = s.campaign_id AND c.archiving_at IS NULL
ORDER BY s.id FOR SHARE OF c FOR UPDATE OF s
