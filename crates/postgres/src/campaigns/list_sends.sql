-- A page of a campaign's sends. `deleted`: contacts deleted since the start; `ids`: the range of its send ids.
-- $1 account, $2 campaign, $3 limit, $4 offset.
SELECT s.id, s.contact_id, s.status, s.sent_at, s.error_code, s.error_message, s.wa_message_id, s.pricing,
  s.failed_at,
  CASE WHEN s.error_code IS NOT DISTINCT FROM s.earlier_error_code THEN s.earlier_failures ELSE 0 END::bigint + 1
    AS times,
  (c.opted_out_at IS NULL AND c.consent_at >= s.failed_at) IS TRUE AS opted_in_since, c.name, c.phone, c.email
FROM (SELECT id, sent_at FROM campaign_sends
    WHERE account_id = $1 AND campaign_id = $2 AND contact_id <> ALL (ARRAY ({deleted}))
      AND {ids}
    ORDER BY sent_at DESC NULLS LAST, id LIMIT $3 OFFSET $4) k
  CROSS JOIN LATERAL (SELECT * FROM campaign_sends WHERE account_id = $1 AND id = k.id {fence}) s
  CROSS JOIN LATERAL (SELECT name, phone, email, opted_out_at, consent_at FROM contacts
    WHERE account_id = $1 AND id = s.contact_id {fence}) c
ORDER BY k.sent_at DESC NULLS LAST, k.id
