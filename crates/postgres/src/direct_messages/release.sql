-- Releases a queue that this transaction has locked. It is due with its first message, and not before the end of a
-- hold. Without messages its time is infinite. $1 account, $2 number, $3 reason of a hold or null, $4 its delay.
UPDATE direct_message_queues q
SET worker = NULL, leased_until = NULL, waiting_since = now(),
  hold_reason = CASE WHEN first.due_at IS NOT NULL THEN $3 END,
  due_at = coalesce(CASE WHEN $3 IS NULL THEN first.due_at
    ELSE greatest(first.due_at, now() + $4 * interval '1 microsecond') END, 'infinity')
FROM (SELECT min(m.due_at) AS due_at FROM direct_messages m
  WHERE m.account_id = $1 AND m.profile_id = $2 AND m.due_at IS NOT NULL) first
WHERE q.account_id = $1 AND q.profile_id = $2
