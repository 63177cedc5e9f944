-- Inserts inbound messages and those of the business's own app, and sets the first referral of their contacts. A contact
-- is locked already, and is looked up by its key. Returns the rows of the events, none without a subscriber.
-- $1 account, $2 ids, $3 conversations, $4 directions, $5 types, $6 texts, $7 statuses, $8 WhatsApp message ids,
-- $9 payloads, $10 referrals, $11 times, $12 origins, $13 captions, $14 interactive contents, $15 contexts, $16 files.
WITH written AS (
  INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, wa_message_id, payload,
    referral, created_at, origin, caption, interactive, context, media_ids)
  SELECT $1, m.id, m.conversation_id, m.direction, m.type, m.text, m.status, m.wa_message_id, m.payload, m.referral,
    m.created_at, m.origin, m.caption, m.interactive, m.context,
    CASE WHEN m.media_id IS NOT NULL THEN ARRAY[m.media_id] END
  FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
    AS m (id, conversation_id, direction, type, text, status, wa_message_id, payload, referral, created_at, origin,
      caption, interactive, context, media_id)
  RETURNING id, conversation_id, direction, referral, created_at),
referred AS (
  SELECT DISTINCT ON (c.contact_id) c.contact_id, w.referral, w.created_at
  FROM written w CROSS JOIN LATERAL (
    SELECT contact_id FROM conversations WHERE account_id = $1 AND id = w.conversation_id {fence}) c
  WHERE w.referral IS NOT NULL ORDER BY c.contact_id, w.created_at, w.id),
first_referred AS (
  UPDATE contacts c SET first_referral = r.referral, first_referral_at = r.created_at
  FROM (SELECT * FROM referred {limit}) r
  WHERE c.account_id = $1 AND c.id = r.contact_id
    AND (c.first_referral_at IS NULL OR c.first_referral_at > r.created_at))
SELECT w.id, c.profile_id FROM written w CROSS JOIN LATERAL (
  SELECT profile_id FROM conversations WHERE account_id = $1 AND id = w.conversation_id {fence}) c
WHERE w.direction = 'inbound' AND (SELECT has_subscribers($1, 'message.received'))
