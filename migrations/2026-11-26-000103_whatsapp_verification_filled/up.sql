-- A profile that existed before is verified if WhatsApp accepted a message from it in the last 90 days: then its token
-- can send from its number. The message must be later than the last change of the profile, because a change may have
-- entered another number. Every profile is checked within an hour, the others within five minutes; the ids spread them.
-- safe: one row per connected number, a small table; each row looks for one message by an index.
UPDATE whatsapp_profiles p SET
  verification_state = CASE WHEN a.accepted THEN 'verified' ELSE 'pending' END,
  pending_since = CASE WHEN a.accepted THEN NULL ELSE now() END,
  held_since = CASE WHEN a.accepted THEN NULL ELSE now() END,
  next_check_at = now() + abs(hashtextextended(p.id::text, 0) % 1000) / 1000.0
    * CASE WHEN a.accepted THEN interval '55 minutes' ELSE interval '5 minutes' END
FROM (
  SELECT o.account_id, o.id,
    EXISTS (SELECT FROM campaigns c
      JOIN campaign_sends s ON s.account_id = c.account_id AND s.campaign_id = c.id
      WHERE c.account_id = o.account_id AND c.profile_id = o.id AND NOT c.simulated
        AND coalesce(c.completed_at, now()) >= now() - interval '90 days'
        AND s.wa_message_id IS NOT NULL AND s.sent_at >= greatest(o.updated_at, now() - interval '90 days'))
    OR EXISTS (SELECT FROM messages m
      WHERE m.account_id = o.account_id AND m.direction = 'outbound' AND m.wa_message_id IS NOT NULL
        AND m.status IN ('sent', 'delivered', 'read') AND m.payload ->> 'profile_id' = o.id::text
        AND m.created_at >= greatest(o.updated_at, now() - interval '90 days')) AS accepted
  FROM whatsapp_profiles o) a
WHERE a.account_id = p.account_id AND a.id = p.id;
