-- When the latest marketing messages to contacts were started that have not failed, in campaigns and by direct messages.
-- A message is stored as a marketing message when it starts. The previous version did not: the template's category now
-- counts. `keys`: the contacts; `fence`: optimization fence.
-- $1 account, $2 contacts, $3 how long a message counts, $4 the most messages of a contact.
SELECT k.contact_id, m.started_at
FROM {keys} k CROSS JOIN LATERAL (
  -- BETWEEN and ORDER BY: of the indexes that begin with the account, only that of contacts gives this order.
  (SELECT s.started_at FROM (SELECT campaign_id, started_at, status, is_marketing FROM campaign_sends
     WHERE account_id = $1 AND contact_id BETWEEN k.contact_id AND k.contact_id ORDER BY contact_id {fence}) s
   WHERE s.status <> 'failed' AND s.started_at > now() - $3 * interval '1 microsecond'
     AND coalesce(s.is_marketing, (SELECT t.category = 'MARKETING'
       FROM (SELECT template_id FROM campaigns WHERE account_id = $1 AND id = s.campaign_id {fence}) c
       CROSS JOIN LATERAL (SELECT category FROM message_templates WHERE account_id = $1 AND id = c.template_id {fence}) t)))
  UNION ALL
  (SELECT d.started_at FROM (SELECT template_id, started_at, status, is_marketing FROM direct_messages
     WHERE account_id = $1 AND contact_id BETWEEN k.contact_id AND k.contact_id
     ORDER BY contact_id, created_at DESC, id DESC {fence}) d
   WHERE d.status <> 'failed' AND d.started_at > now() - $3 * interval '1 microsecond'
     AND coalesce(d.is_marketing, (SELECT category = 'MARKETING' FROM message_templates
       WHERE account_id = $1 AND id = d.template_id {fence})))
  ORDER BY 1 DESC LIMIT $4) m
