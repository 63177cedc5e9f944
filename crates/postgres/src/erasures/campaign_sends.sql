-- Removes WhatsApp's message ids from the sends to a contact. $1 account, $2 contact, $3 limit.
WITH found AS MATERIALIZED (
SELECT id, array_remove(string_to_array(superseded_wa_message_id, ' ') || wa_message_id, NULL) AS message_ids
FROM campaign_sends
WHERE account_id = $1 AND contact_id = $2
  AND num_nonnulls(wa_message_id, superseded_wa_message_id, error_message) > 0
ORDER BY id LIMIT $3 FOR UPDATE
), named AS (
DELETE FROM sent_messages m USING (SELECT id, unnest(message_ids) AS message_id FROM found) f
WHERE m.account_id = $1 AND m.wa_message_id = f.message_id AND m.send_id = f.id
), emptied AS (
UPDATE campaign_sends s SET wa_message_id = NULL, superseded_wa_message_id = NULL, error_message = NULL
FROM found f WHERE s.account_id = $1 AND s.id = f.id RETURNING 1
) SELECT count(*) AS n FROM emptied
