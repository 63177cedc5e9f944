-- Held messages whose account has changed its settings since they were judged, across all accounts. Only of late changes:
-- a message is judged again at its own time, too. $1 limit.
SELECT m.account_id, m.id FROM account_settings s
  JOIN direct_messages m ON m.account_id = s.account_id AND m.hold_rule IS NOT NULL
WHERE s.updated_at > now() - interval '10 minutes' AND m.held_settings_at IS DISTINCT FROM s.updated_at
  AND m.due_at > now() AND m.status = 'pending'
LIMIT $1
