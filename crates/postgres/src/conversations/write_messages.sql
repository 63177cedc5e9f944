-- Inserts inbound messages, and sets the first referral of their contacts. A contact is locked already, and is looked up
-- by its key. Returns the rows of the events, none without a subscriber.
-- $1 account, $2 direction, $3 status, $4 ids, $5 conversations, $6 types, $7 texts, $8 WhatsApp message ids, $9 payloads,
-- $10 referrals, $11 times.
WITH written AS (
  INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, wa_message_id, payload,
    referral, created_at)
  SELECT $1, m.id, m.conversation_id, $2, m.type, m.text, $3, m.wa_message_id, m.payload, m.referral, m.created_at
  FROM unnest($4, $5, $6, $7, $8, $9, $10, $11)
    AS m (id, conversation_id, type, text, wa_message_id, payload, referral, created_at)
  RETURNING id, conversation_id, referral, created_at),
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
SELECT w.id, c.contact_id, c.profile_id FROM written w CROSS JOIN LATERAL (
  SELECT contact_id, profile_id FROM conversations WHERE account_id = $1 AND id = w.conversation_id {fence}) c
WHERE (SELECT has_subscribers($1, 'message.received'))
