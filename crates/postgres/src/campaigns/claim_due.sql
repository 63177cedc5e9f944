-- Reads the next due sends of a run and stores them as its claim.
-- $1 account, $2 campaign, $3 last contact, $4 limit, $5 continues the last claim, $6 reads untried sends too,
-- $7 claimed sends in flight, $8 those of an earlier claim, $9 to $10 range of send ids, $11 whether contacts without a
-- phone are written to by user id, $12 the scope of these ids.
WITH due AS MATERIALIZED (
  (SELECT id, contact_id, attempts, retry_at FROM campaign_sends
   WHERE account_id = $1 AND campaign_id = $2 AND retry_at <= now() AND status = 'pending' AND started_at IS NULL
     AND id BETWEEN $9 AND $10
     AND retry_at >= coalesce((SELECT retried_until FROM campaign_claims
       WHERE account_id = $1 AND campaign_id = $2 AND $5), '-infinity')
   ORDER BY retry_at LIMIT $4)
  UNION ALL
  (SELECT id, contact_id, attempts, retry_at FROM campaign_sends
   WHERE account_id = $1 AND {after_contact} AND retry_at IS NULL
     AND status = 'pending' AND started_at IS NULL AND $6 AND id BETWEEN $9 AND $10
   ORDER BY campaign_id, contact_id LIMIT $4)
  LIMIT $4
), claim AS (
  INSERT INTO campaign_claims AS k (account_id, campaign_id, send_ids, earlier_send_ids, retried_until)
  SELECT $1, $2, $7 || array_agg(id), coalesce($8, ARRAY[]::uuid[]), max(retry_at) FROM due HAVING count(*) > 0
  ON CONFLICT (account_id, campaign_id) DO UPDATE
    SET send_ids = excluded.send_ids, earlier_send_ids = coalesce($8, k.earlier_send_ids),
      retried_until = coalesce(excluded.retried_until, k.retried_until)
)
SELECT d.id, d.contact_id, d.attempts, c.name, c.phone, c.email, c.attributes, c.wa_id,
  CASE WHEN $11 AND c.phone IS NULL THEN fitting_user_id($1, c.id, c.wa_user_id, $12) END AS user_id
FROM due d LEFT JOIN LATERAL (SELECT * FROM contacts WHERE account_id = $1 AND id = d.contact_id {fence}) c
  ON c.deleted_at IS NULL AND NOT {has_opted_out} AND (c.phone IS NOT NULL OR $11)
