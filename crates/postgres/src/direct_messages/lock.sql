-- Locks direct messages in the order of their ids. $1 account, $2 ids, $3 WhatsApp message ids.
SELECT m.id, m.contact_id, m.status, m.started_at IS NOT NULL AS is_started, m.by_user_id, m.send_at, m.client_reference,
  m.wa_message_id, m.profile_id, m.template_id, m.error_code, m.error_message, m.pricing, m.conversation_id, m.quota_month,
  (SELECT e.id FROM erasures e WHERE e.account_id = $1 AND e.contact_id = m.contact_id) IS NOT NULL AS is_erased
FROM (SELECT i.id FROM (
    SELECT k.id FROM {id_keys} k
    UNION
    SELECT o.id FROM {message_keys} k
    JOIN direct_messages o ON o.account_id = $1 AND o.wa_message_id = k.wa_message_id) i
  {limit}) k
JOIN direct_messages m ON m.account_id = $1 AND m.id = k.id
ORDER BY m.id FOR NO KEY UPDATE OF m
