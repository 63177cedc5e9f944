-- Locks outbound messages in the order of their ids. `id_keys`: ids and times; `message_keys`: WhatsApp message ids.
-- A reply has the number and the template that it was sent with; without them, the number is that of the conversation.
-- $1 account, $2 ids, $3 times before which they were not written, $4 WhatsApp message ids, $5 the same time for those.
SELECT {columns}, (SELECT v.contact_id FROM conversations v
  WHERE v.account_id = m.account_id AND v.id = m.conversation_id) AS contact_id,
  coalesce(CASE WHEN m.origin IS DISTINCT FROM 'business_app' THEN (m.payload ->> 'profile_id')::uuid END,
    (SELECT v.profile_id FROM conversations v
    WHERE v.account_id = m.account_id AND v.id = m.conversation_id)) AS profile_id,
  CASE WHEN m.origin IS DISTINCT FROM 'business_app' THEN
    coalesce(m.payload ->> 'template_id', m.payload #>> '{{content,template,key,id}}')::uuid END AS template_id,
  (SELECT e.id FROM erasures e WHERE e.account_id = m.account_id AND e.contact_id = (SELECT v.contact_id
    FROM conversations v WHERE v.account_id = m.account_id AND v.id = m.conversation_id)) IS NOT NULL AS is_erased
FROM (SELECT i.id, i.created_at FROM (
    SELECT o.id, o.created_at FROM {id_keys} k
    JOIN messages o ON o.account_id = $1 AND o.id = k.id AND o.created_at >= k.since
    UNION
    SELECT o.id, o.created_at FROM {message_keys} k
    JOIN messages o ON o.account_id = $1 AND o.wa_message_id = k.wa_message_id
      AND o.created_at >= least($5, now() - interval '45 days')) i
  {limit}) k
JOIN messages m ON m.account_id = $1 AND m.id = k.id AND m.created_at = k.created_at
WHERE m.direction = 'outbound'
ORDER BY m.id FOR NO KEY UPDATE OF m
