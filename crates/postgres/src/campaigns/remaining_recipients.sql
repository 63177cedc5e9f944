-- Counts the recipients to whom the run of a campaign has to start messages, by what decides on their country.
-- `ids`: the range of the campaign's send ids; `prefix`: the length of a phone's prefix; `has_opted_out`: condition on
-- contact `c`; `scope`: the scope of the user ids of number `p`; `fence`: optimization fence. $1 account, $2 campaign.
WITH run AS MATERIALIZED (
  SELECT r.reach = 'any' AS by_user_id, (SELECT {scope} FROM whatsapp_profiles p
    WHERE p.account_id = $1 AND p.id = r.profile_id) AS scope
  FROM campaigns r WHERE r.account_id = $1 AND r.id = $2
), remaining AS (
  SELECT contact_id FROM campaign_sends
  WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NULL AND {ids}
  UNION ALL SELECT u.id FROM campaign_recipient_batches b CROSS JOIN LATERAL unnest(b.contact_ids) AS u (id)
  WHERE b.account_id = $1 AND b.campaign_id = $2
  UNION ALL SELECT s.contact_id FROM campaign_retry_batches b CROSS JOIN LATERAL unnest(b.send_ids) AS u (id)
    CROSS JOIN LATERAL (SELECT contact_id FROM campaign_sends WHERE account_id = $1 AND id = u.id {fence}) s
  WHERE b.account_id = $1 AND b.campaign_id = $2
)
SELECT a.prefix, left(a.user_id, 3) AS user_country, count(*) AS recipients, 0::bigint AS in_window
FROM remaining r CROSS JOIN LATERAL (
  SELECT left(c.phone, {prefix}) AS prefix, CASE WHEN c.phone IS NULL THEN (SELECT fitting_user_id($1, c.id, c.wa_user_id,
      run.scope) FROM run WHERE run.by_user_id) END AS user_id,
    c.deleted_at IS NOT NULL OR {has_opted_out} AS is_left_out
  FROM contacts c WHERE c.account_id = $1 AND c.id = r.contact_id {fence}) a
WHERE NOT a.is_left_out AND (a.prefix IS NOT NULL OR a.user_id IS NOT NULL)
GROUP BY 1, 2
