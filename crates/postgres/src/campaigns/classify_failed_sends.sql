-- CTEs that classify the failed sends of a campaign (`checked`). `ids`: the range of the campaign's send ids;
-- `has_opted_out`: whether contact c did.
-- $1 account, $2 campaign, $3 time of the retry or null, $4 chosen codes or null, $5 retries chosen codes before their
-- time, $6 the code of a send without code, $7 to $11 one array for each column of the rules.
rules AS MATERIALIZED (
  SELECT * FROM unnest($7, $8, $9, $10, $11) AS r (code, kind, first, second, further)
), failed AS MATERIALIZED (
  SELECT id, contact_id, coalesce(error_code, $6) AS code, failed_at,
    CASE WHEN error_code IS NOT DISTINCT FROM earlier_error_code THEN earlier_failures ELSE 0 END AS earlier
  FROM campaign_sends
  WHERE account_id = $1 AND campaign_id = $2 AND failed_at IS NOT NULL AND status = 'failed' AND {ids}
), timed AS MATERIALIZED (
  SELECT f.id, f.contact_id, f.code, f.failed_at, f.earlier, r.kind,
    f.failed_at + nullif(CASE f.earlier WHEN 0 THEN r.first WHEN 1 THEN r.second ELSE r.further END, 0)
      * interval '1 microsecond' AS due_at
  FROM failed f LEFT JOIN rules r ON r.code = f.code
), checked AS MATERIALIZED (
  SELECT t.id, t.contact_id, t.code, t.due_at, CASE
      WHEN $4 IS NOT NULL AND NOT t.code = ANY ($4) THEN 'not_chosen'
      WHEN t.kind = 'never' THEN 'never'
      WHEN t.kind = 'opt_in' AND (c.opted_out_at IS NULL AND c.consent_at >= t.failed_at) IS NOT TRUE THEN 'never'
      WHEN t.kind = 'phone' AND c.phone IS NULL THEN 'never'
      WHEN c.id IS NULL THEN 'unreachable'
      WHEN {has_opted_out} THEN 'opted_out'
      WHEN c.phone IS NULL AND (SELECT reach = 'phone' FROM campaigns WHERE account_id = $1 AND id = $2)
        THEN 'unreachable'
      WHEN t.due_at > coalesce($3, now()) AND NOT ($4 IS NOT NULL AND $5) THEN 'later'
    END AS reason
  FROM timed t LEFT JOIN LATERAL (
    SELECT id, phone, opted_out_at, consent_at, deleted_at, same_person_as FROM contacts
    WHERE account_id = $1 AND id = t.contact_id {fence}) c ON c.deleted_at IS NULL
)
