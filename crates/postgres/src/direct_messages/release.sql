-- Releases a queue that this transaction has locked. `due_at` becomes that of its first message, 'infinity' without one.
-- With a reason ($3), a queue whose first message is due before now + $4 is held until then, and due earlier if one of
-- its first messages ($5) expires earlier. $1 account, $2 number.
UPDATE direct_message_queues q
SET worker = NULL, leased_until = NULL, waiting_since = now(),
  hold_reason = CASE WHEN first.is_held THEN $3 END,
  held_until = CASE WHEN first.is_held THEN first.held_until END,
  due_at = CASE WHEN first.is_held THEN least(first.held_until, (
      SELECT min(greatest(e.due_at, e.expires_at)) FROM (
        SELECT d.due_at, d.expires_at FROM direct_messages d
        WHERE d.account_id = $1 AND d.profile_id = $2 AND d.due_at IS NOT NULL
        ORDER BY d.due_at, d.id LIMIT $5) e))
    ELSE coalesce(first.due_at, 'infinity') END
FROM (SELECT m.due_at, m.held_until, $3 IS NOT NULL AND coalesce(m.due_at < m.held_until, false) AS is_held
  FROM (SELECT min(d.due_at) AS due_at, now() + $4 * interval '1 microsecond' AS held_until
    FROM direct_messages d WHERE d.account_id = $1 AND d.profile_id = $2 AND d.due_at IS NOT NULL) m) first
WHERE q.account_id = $1 AND q.profile_id = $2
