-- Locks those of the sends that can start, in the order of their ids, with the addresses that decide on their rates.
-- `keys`: the sends; `has_opted_out`: condition on contact `c`; `scope`: the scope of the user ids of number `p`; `fence`:
-- optimization fence. $1 account, $2 sends, $3 the smallest of their ids, $4 campaign.
WITH run AS MATERIALIZED (
  SELECT r.reach = 'any' AS by_user_id, (SELECT {scope} FROM whatsapp_profiles p
    WHERE p.account_id = $1 AND p.id = r.profile_id) AS scope
  FROM campaigns r WHERE r.account_id = $1 AND r.id = $4
)
SELECT k.id, c.phone, c.wa_user_id,
  c.deleted_at IS NULL AND NOT {has_opted_out} AND (c.phone IS NOT NULL OR coalesce((SELECT run.by_user_id
    AND fitting_user_id($1, c.id, c.wa_user_id, run.scope) IS NOT NULL FROM run), false)) AS is_reachable
FROM (SELECT k.id FROM {keys} k ORDER BY 1) k
CROSS JOIN LATERAL (SELECT contact_id FROM campaign_sends
  WHERE account_id = $1 AND id = k.id AND id >= $3 AND status = 'pending' AND started_at IS NULL FOR UPDATE) s
CROSS JOIN LATERAL (SELECT id, phone, wa_user_id, deleted_at, opted_out_at, same_person_as FROM contacts
  WHERE account_id = $1 AND id = s.contact_id {fence}) c
ORDER BY k.id
