-- Leases the queue that has waited longest and has a due message, across all accounts. $1 worker, $2 lease.
UPDATE direct_message_queues SET worker = $1, leased_until = now() + $2 * interval '1 microsecond'
WHERE (account_id, profile_id) = (SELECT q.account_id, q.profile_id FROM direct_message_queues q
  WHERE q.due_at <= now() AND (q.worker IS NULL OR q.leased_until < now())
  ORDER BY q.waiting_since LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING account_id, profile_id
