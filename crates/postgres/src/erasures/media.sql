-- Releases files of messages, but no upload that a message to another person has, who is not erased. An expired upload
-- is of use to no message. Messages are found by the upload: the fences (`OFFSET 0`) and the account as a filter leave
-- no other index. A message is not older than its upload; the clocks of servers differ.
-- $1 account, $2 contact, $3 limit.
WITH used AS (
SELECT f.id FROM conversations v JOIN messages m ON m.account_id = $1 AND m.conversation_id = v.id
JOIN message_media f ON f.account_id = $1 AND f.message_id = m.id
WHERE v.account_id = $1 AND v.contact_id = $2
UNION SELECT unnest(m.media_ids) FROM conversations v
JOIN messages m ON m.account_id = $1 AND m.conversation_id = v.id
WHERE v.account_id = $1 AND v.contact_id = $2 AND m.media_ids IS NOT NULL
UNION SELECT media_id FROM direct_messages WHERE account_id = $1 AND contact_id = $2 AND media_id IS NOT NULL)
UPDATE message_media f SET state = CASE WHEN f.state = 'failed' THEN f.state ELSE 'expired' END,
abandoned = f.abandoned || array_remove(ARRAY[f.file_id, f.claim_id], NULL), file_id = NULL, claim_id = NULL,
due_at = NULL, lost_reported_at = coalesce(f.lost_reported_at, f.written_at), file_name = NULL,
expected_sha256 = NULL, sha256 = NULL, wa_media_id = NULL
FROM (SELECT f.id FROM used u JOIN message_media f ON f.account_id = $1 AND f.id = u.id
WHERE (f.state IN ('pending', 'ready') OR f.abandoned <> '{}'
    OR num_nonnulls(f.file_name, f.expected_sha256, f.sha256, f.wa_media_id) > 0)
  AND (f.message_id IS NOT NULL OR f.state = 'expired' OR f.expires_at <= now()
    OR NOT EXISTS (SELECT FROM (SELECT contact_id FROM direct_messages
        WHERE account_id = $1 AND media_id = f.id OFFSET 0) d
      JOIN contacts o ON o.account_id = $1 AND o.id = d.contact_id AND o.erased_at IS NULL)
    AND NOT EXISTS (SELECT FROM (SELECT conversation_id FROM messages
        WHERE account_id IS NOT DISTINCT FROM $1 AND media_ids @> ARRAY[f.id]
          AND created_at > f.created_at - interval '1 hour' OFFSET 0) m
      JOIN conversations v ON v.account_id = $1 AND v.id = m.conversation_id
      JOIN contacts o ON o.account_id = $1 AND o.id = v.contact_id AND o.erased_at IS NULL))
ORDER BY f.id LIMIT $3 FOR UPDATE OF f) k
WHERE f.account_id = $1 AND f.id = k.id
RETURNING f.id, f.abandoned AS keys
