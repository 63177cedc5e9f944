-- Locks the queue entry that the worker holds, and renews its lease after a tenth of it. No row: it holds none.
-- `scope`: the scope of the user ids of number `p`. $1 account, $2 campaign, $3 worker, $4 lease in microseconds.
WITH held AS (
  SELECT c.status = 'sending' AND c.paused_at IS NULL AND c.deleted_at IS NULL AND a.status = 'active'
      AND NOT EXISTS (SELECT FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.id = c.profile_id
        AND p.verification_state <> 'verified' AND NOT c.simulated) AS may_continue,
    q.trigger = 'retry' AS is_retry, c.frozen_at, c.reach = 'any' AS by_user_id, c.profile_id,
    q.leased_until < now() + 0.9 * $4 * interval '1 microsecond' AS due
  FROM campaign_queue q, campaigns c, accounts a
  WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
    AND c.account_id = $1 AND c.id = $2 AND a.id = $1
  FOR NO KEY UPDATE OF q
), renewed AS (
  UPDATE campaign_queue q SET leased_until = now() + $4 * interval '1 microsecond' FROM held h
  WHERE q.account_id = $1 AND q.campaign_id = $2 AND h.due
)
SELECT may_continue, is_retry, frozen_at, by_user_id,
  CASE WHEN by_user_id THEN (SELECT {scope} FROM whatsapp_profiles p
    WHERE p.account_id = $1 AND p.id = held.profile_id) END AS scope
FROM held
