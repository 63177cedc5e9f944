-- Held messages whose account has changed the settings that hold messages since they were checked, across all accounts:
-- the two ranges of the index beside the messages that were checked by the settings of now. $1 limit.
SELECT m.account_id, m.id FROM account_settings s CROSS JOIN LATERAL (
  (SELECT account_id, id FROM direct_messages
   WHERE account_id = s.account_id AND hold_rule IS NOT NULL AND held_settings_at < s.holds_changed_at
     AND due_at IS NOT NULL ORDER BY held_settings_at LIMIT $1)
  UNION ALL
  (SELECT account_id, id FROM direct_messages
   WHERE account_id = s.account_id AND hold_rule IS NOT NULL AND held_settings_at > s.holds_changed_at
     AND due_at IS NOT NULL ORDER BY held_settings_at LIMIT $1)) m
LIMIT $1
