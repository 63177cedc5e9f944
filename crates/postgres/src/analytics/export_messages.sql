-- A part of the export of messages: those of conversations, direct messages and the sends of campaigns, newest first.
-- $1 account, $2 to $4 last position of the previous part (time, id, contact), $5 limit, $6 to $7 window.
SELECT at, id, part, NULL::timestamptz AS other_at, first, second, third, fourth, fifth FROM (
  (SELECT m.created_at AS at, m.id, '00000000-0000-0000-0000-000000000000'::uuid AS part, m.direction AS first,
     m.type AS second, m.status AS third, m.text AS fourth,
     CASE WHEN m.direction <> 'outbound' THEN NULL WHEN m.by_user_id THEN 'user_id' ELSE 'phone' END AS fifth
   FROM messages m
   WHERE m.account_id = $1 AND m.created_at >= $6 AND m.created_at < $7 AND (m.created_at, m.id) < ($2, $3)
   ORDER BY m.created_at DESC, m.id DESC LIMIT $5)
  UNION ALL
  (SELECT d.created_at, d.id, '00000000-0000-0000-0000-000000000000'::uuid, 'outbound',
     coalesce(d.request #>> '{content,free_form,media,kind}', d.kind), d.status,
     coalesce(d.text, d.request #>> '{content,free_form,text}', d.request #>> '{content,free_form,media,caption}',
       d.request #>> '{content,free_form,interactive,body}',
       (SELECT t.body_text FROM message_templates t WHERE t.account_id = d.account_id AND t.id = d.template_id)),
     CASE WHEN d.started_at IS NULL THEN NULL WHEN d.by_user_id THEN 'user_id' ELSE 'phone' END
   FROM direct_messages d
   WHERE d.account_id = $1 AND d.created_at >= $6 AND d.created_at < $7 AND (d.created_at, d.id) < ($2, $3)
     AND d.status <> 'cancelled'
   ORDER BY d.created_at DESC, d.id DESC LIMIT $5)
  UNION ALL
  (SELECT n.created_at, n.campaign_id, s.contact_id, 'outbound', 'template', s.status,
     CASE WHEN k.campaign_id IS NULL THEN t.body_text ELSE k.body_text END,
     CASE WHEN s.started_at IS NULL THEN NULL WHEN s.by_user_id THEN 'user_id' ELSE 'phone' END
   FROM campaign_counter_slots n
   JOIN campaigns c ON c.account_id = n.account_id AND c.id = n.campaign_id
   LEFT JOIN message_templates t ON t.account_id = c.account_id AND t.id = c.template_id
   LEFT JOIN campaign_run_contents k ON k.account_id = c.account_id AND k.campaign_id = c.id
   CROSS JOIN LATERAL (SELECT s.contact_id, s.status, s.started_at, s.by_user_id FROM campaign_sends s
     WHERE s.account_id = $1 AND s.campaign_id = n.campaign_id
       AND s.id BETWEEN first_id(c.frozen_at) AND last_id(c.frozen_at)
       AND s.contact_id < CASE WHEN (n.created_at, n.campaign_id) = ($2, $3) THEN $4
         ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid END
     ORDER BY s.contact_id DESC LIMIT $5) s
   WHERE n.account_id = $1 AND n.slot = 0 AND n.created_at >= $6 AND n.created_at < $7
     AND (n.created_at, n.campaign_id) <= ($2, $3)
   ORDER BY n.created_at DESC, n.campaign_id DESC, s.contact_id DESC LIMIT $5)) AS exported
ORDER BY at DESC, id DESC, part DESC LIMIT $5
