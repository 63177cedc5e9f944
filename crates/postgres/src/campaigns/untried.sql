-- Counts the sends of a campaign that are pending and not started: its pending ones without those that are in flight or
-- unknown. `ids`: the range of the campaign's send ids; `fence`: optimization fence. $1 account, $2 campaign.
SELECT p.n - u.n - f.n AS n
FROM (SELECT coalesce(
      (SELECT pending FROM campaign_counters WHERE account_id = $1 AND campaign_id = $2),
      (SELECT count(*) FROM campaign_sends
       WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND {ids})) AS n) p
  CROSS JOIN (SELECT count(*) AS n FROM campaign_sends
    WHERE account_id = $1 AND campaign_id = $2 AND unknown_at IS NOT NULL AND status = 'pending'
      AND {ids}) u
  CROSS JOIN (SELECT count(*) AS n
    FROM campaign_claims k CROSS JOIN LATERAL unnest(k.send_ids || k.earlier_send_ids) AS i (id)
      CROSS JOIN LATERAL (SELECT status, started_at, unknown_at FROM campaign_sends
        WHERE account_id = $1 AND id = i.id {fence}) s
    WHERE k.account_id = $1 AND k.campaign_id = $2 AND s.status = 'pending' AND s.started_at IS NOT NULL
      AND s.unknown_at IS NULL) f
