-- Inserts pending messages. $1 account, $2 to $14 one array per column, $15 the time of creation. A month is text,
-- because the driver has no array of dates with nulls here.
INSERT INTO direct_messages
  (account_id, id, contact_id, profile_id, kind, template_id, request, client_reference, send_at, expires_at, due_at,
   quota_month, created_by, api_key_id, media_id, created_at, updated_at)
SELECT $1, m.id, m.contact_id, m.profile_id, m.kind, m.template_id, m.request, m.client_reference, m.send_at,
  m.expires_at, m.send_at, m.quota_month::date, m.created_by, m.api_key_id, m.media_id, $15, $15
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) WITH ORDINALITY
  AS m (id, contact_id, profile_id, kind, template_id, request, client_reference, send_at, expires_at, quota_month,
    created_by, api_key_id, media_id, position)
ORDER BY m.position
