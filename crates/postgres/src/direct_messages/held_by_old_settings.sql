-- Held messages whose account has changed the settings that hold messages since they were checked, across all accounts: of
-- each account that holds messages, the two ranges of the index beside the messages that were checked by the settings of
-- now. A loose index scan finds the accounts, because it runs every few seconds, and few accounts hold messages at a time.
-- `fence`: optimization fence. $1 limit.
WITH RECURSIVE accounts (account_id) AS (
  (SELECT account_id FROM direct_messages WHERE hold_rule IS NOT NULL ORDER BY account_id LIMIT 1)
  UNION ALL
  SELECT (SELECT d.account_id FROM direct_messages d
    WHERE d.hold_rule IS NOT NULL AND d.account_id > a.account_id ORDER BY d.account_id LIMIT 1)
  FROM accounts a WHERE a.account_id IS NOT NULL
)
SELECT m.account_id, m.id FROM accounts a
CROSS JOIN LATERAL (SELECT account_id, holds_changed_at FROM account_settings WHERE account_id = a.account_id {fence}) s
CROSS JOIN LATERAL (
  (SELECT account_id, id FROM direct_messages
   WHERE account_id = s.account_id AND hold_rule IS NOT NULL AND held_settings_at < s.holds_changed_at
     AND due_at IS NOT NULL ORDER BY held_settings_at LIMIT $1)
  UNION ALL
  (SELECT account_id, id FROM direct_messages
   WHERE account_id = s.account_id AND hold_rule IS NOT NULL AND held_settings_at > s.holds_changed_at
     AND due_at IS NOT NULL ORDER BY held_settings_at LIMIT $1)) m
LIMIT $1
