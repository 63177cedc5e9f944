-- Empties messages of a conversation. $1 account, $2 contact, $3 limit.
WITH found AS MATERIALIZED (
SELECT m.id, m.created_at FROM conversations v
JOIN messages m ON m.account_id = $1 AND m.conversation_id = v.id
WHERE v.account_id = $1 AND v.contact_id = $2 AND (m.payload <> '{}' OR num_nonnulls(m.text, m.caption,
  m.interactive, m.context, m.referral, m.wa_message_id, m.error_message) > 0)
ORDER BY m.id LIMIT $3 FOR NO KEY UPDATE OF m
), emptied AS (
UPDATE messages m SET text = NULL, caption = NULL, interactive = NULL, context = NULL, referral = NULL,
  payload = '{}', wa_message_id = NULL, error_message = NULL
FROM found f WHERE m.account_id = $1 AND m.id = f.id AND m.created_at = f.created_at RETURNING 1
) SELECT count(*) AS n FROM emptied
