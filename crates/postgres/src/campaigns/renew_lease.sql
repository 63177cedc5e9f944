-- Locks the queue entry that the worker holds, and renews its lease after a tenth of it. No row: it holds none.
-- `may_hold`: whether the account's settings hold messages; `settings_changed`: since the run's sends were checked.
-- `scope`: the scope of the user ids of number `p`. $1 account, $2 campaign, $3 worker, $4 lease in microseconds.
WITH held AS (
  SELECT c.status = 'sending' AND c.paused_at IS NULL AND c.deleted_at IS NULL AND a.status = 'active'
      AND NOT EXISTS (SELECT FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.id = c.profile_id
        AND p.verification_state <> 'verified' AND NOT c.simulated) AS may_continue,
    q.trigger = 'retry' AS is_retry, c.frozen_at, c.reach = 'any' AS by_user_id, c.profile_id,
    q.waiting_until IS NOT NULL AS is_waiting, s.holds_changed_at AS settings_at,
    s.holds_changed_at IS DISTINCT FROM q.checked_settings_at AS settings_changed,
    (s.quiet_hours IS NOT NULL OR s.max_marketing_per_contact IS NOT NULL) IS TRUE AS may_hold,
    q.leased_until < now() + 0.9 * $4 * interval '1 microsecond' AS due
  FROM campaign_queue q, campaigns c, accounts a LEFT JOIN account_settings s ON s.account_id = a.id
  WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
    AND c.account_id = $1 AND c.id = $2 AND a.id = $1
  FOR NO KEY UPDATE OF q
), renewed AS (
  UPDATE campaign_queue q SET leased_until = now() + $4 * interval '1 microsecond' FROM held h
  WHERE q.account_id = $1 AND q.campaign_id = $2 AND h.due
)
SELECT may_continue, is_retry, frozen_at, by_user_id, is_waiting, settings_at, settings_changed, may_hold,
  CASE WHEN by_user_id THEN (SELECT {scope} FROM whatsapp_profiles p
    WHERE p.account_id = $1 AND p.id = held.profile_id) END AS scope
FROM held
