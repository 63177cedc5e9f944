-- Counts the sends of a campaign that are pending and not started. `held` of the waiting ones are held. `ids`: the range of the campaign's send ids.
-- $1 account, $2 campaign.
SELECT p.n - u.n - f.n AS untried, w.n AS waiting, w.next, w.held, w.held_until
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
  CROSS JOIN (SELECT count(*) AS n, (extract(epoch FROM min(retry_at) - now()) * 1000000)::bigint AS next,
      count(hold_reason) AS held, min(retry_at) FILTER (WHERE hold_reason IS NOT NULL) AS held_until
    FROM campaign_sends
    WHERE account_id = $1 AND campaign_id = $2 AND retry_at > now() AND status = 'pending'
      AND started_at IS NULL AND {ids}) w
