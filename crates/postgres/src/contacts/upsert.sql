-- Upserts a batch of contacts. `key`: the unique key by which a row finds its contact. `opted_out_at`, `consent_at`: the
-- consent of a contact that exists. `changes`: whether the row changes its contact. `fits`: whether its merged attributes
-- are within the limits. $1 account, $2 ids, $3 names, $4 phone numbers, $5 e-mail addresses, $6 user ids, $7 attributes,
-- $8 whether they opted out, $9 now, $10 time zones.
INSERT INTO contacts
  (account_id, id, name, phone, email, wa_user_id, time_zone, attributes, opted_out_at, consent_at, created_at,
   updated_at)
SELECT $1, r.id, r.name, r.phone, r.email, r.wa_user_id, r.time_zone, r.attributes, CASE WHEN r.opted_out THEN now() END,
  CASE WHEN r.opted_out THEN now() END, $9, $9
FROM unnest($2, $3, $4, $5, $6, $7, $8, $10) AS r (id, name, phone, email, wa_user_id, attributes, opted_out, time_zone)
ORDER BY r.phone
ON CONFLICT {key} DO UPDATE SET
  name = excluded.name,
  phone = coalesce(contacts.phone, excluded.phone),
  email = coalesce(excluded.email, contacts.email),
  wa_user_id = coalesce(contacts.wa_user_id, excluded.wa_user_id),
  time_zone = coalesce(excluded.time_zone, contacts.time_zone),
  attributes = contacts.attributes || excluded.attributes,
  opted_out_at = {opted_out_at}, consent_at = {consent_at},
  updated_at = CASE WHEN {changes} THEN excluded.updated_at ELSE contacts.updated_at END,
  version = CASE WHEN {changes} THEN contacts.version + 1 ELSE contacts.version END
  WHERE {fits}
RETURNING id, phone, (xmax = 0) AS inserted, updated_at = $9 AS is_changed,
  CASE WHEN xmax = 0 THEN (SELECT has_subscribers($1, 'contact.created'))
    ELSE (SELECT has_subscribers($1, 'contact.updated')) END AS is_subscribed
