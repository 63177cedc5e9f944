-- Resets the failed sends of a retry batch to untried, and takes them out of the list of sent ones (`unlisted`). The
-- message ids of all earlier tries stay in `superseded_wa_message_id`, with spaces between them: an erasure removes them.
-- `keys`: the ids; `of_campaign`: of campaign $3; `limit`: as many, without an estimate.
-- $1 account, $2 ids in ascending order, $3 campaign, $4 smallest of the ids, $5 and $6 bounds of the campaign's ids.
WITH failed AS MATERIALIZED (
  SELECT s.id, s.sent_at FROM {keys} k JOIN campaign_sends s ON s.account_id = $1 AND s.id = k.id AND s.id >= $4
  WHERE {of_campaign} AND s.status = 'failed' FOR UPDATE OF s
), unlisted AS (
  UPDATE campaign_send_times t
  SET send_ids = ARRAY (SELECT id FROM unnest(t.send_ids) AS u (id) WHERE id NOT IN (SELECT id FROM failed))
  FROM (SELECT DISTINCT sent_at FROM failed WHERE sent_at IS NOT NULL ORDER BY sent_at {limit}) f
  WHERE t.account_id = $1 AND t.campaign_id = $3 AND t.sent_at = f.sent_at AND t.first_send_id BETWEEN $5 AND $6
)
UPDATE campaign_sends s SET status = 'pending', attempts = 0, started_at = NULL,
  retry_at = now(), hold_reason = NULL, held_since = NULL, sent_at = NULL, failed_at = NULL, error_code = NULL, error_message = NULL, pricing = NULL,
  superseded_wa_message_id = nullif(concat_ws(' ', superseded_wa_message_id, wa_message_id), ''), wa_message_id = NULL,
  never_confirmed = false,
  quota_month = (SELECT run_quota_month FROM campaigns WHERE account_id = $1 AND id = $3),
  earlier_error_code = s.error_code,
  earlier_failures =
    CASE WHEN s.error_code IS NOT DISTINCT FROM s.earlier_error_code THEN s.earlier_failures ELSE 0 END + 1
FROM (SELECT id FROM failed {limit}) f
WHERE s.account_id = $1 AND s.id = f.id AND s.id >= $4
