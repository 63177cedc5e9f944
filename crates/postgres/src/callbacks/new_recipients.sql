-- The recipients of the account's messages whose user ids (`keys`) are not stored with the contact, or with another
-- contact of the same person. $1 account, $6 smallest send id.
SELECT k.send_id, CASE WHEN NOT m.by_user_id THEN coalesce(c.wa_id, ltrim(c.phone, '+')) END AS wa_id
FROM {keys} k
CROSS JOIN LATERAL (
  SELECT s.contact_id, s.by_user_id FROM campaign_sends s
    WHERE s.account_id = $1 AND s.id = k.send_id AND s.id >= $6
  UNION ALL SELECT d.contact_id, d.by_user_id FROM direct_messages d
    WHERE d.account_id = $1 AND d.id = k.send_id
  UNION ALL SELECT v.contact_id, r.by_user_id FROM messages r
    JOIN conversations v ON v.account_id = $1 AND v.id = r.conversation_id
    WHERE r.account_id = $1 AND r.id = k.send_id AND r.created_at >= k.written_since) m
JOIN contacts c ON c.account_id = $1 AND c.id = m.contact_id AND c.deleted_at IS NULL
WHERE NOT EXISTS (SELECT 1 FROM contact_identities i
  WHERE i.account_id = $1 AND i.wa_user_id = k.user_id
    AND (k.parent_user_id IS NULL OR i.parent_user_id = k.parent_user_id)
    AND (i.contact_id = c.id OR (c.same_person_as IS NOT NULL
      AND i.contact_id IN (SELECT p.id FROM same_person_contacts($1, c.id) p (id)))))
