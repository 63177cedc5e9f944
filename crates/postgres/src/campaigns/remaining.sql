-- Counts what is left of a run: the sends of `untried`, and those that wait for their `retry_at`, of which `held` are
-- held. A run does not wait for less than $3 for them: their holds may end one after another, and to count them reads
-- them all. `ids`: the range of the campaign's send ids. $1 account, $2 campaign, $3 microseconds.
SELECT n.n AS untried, w.n AS waiting, w.next, w.held, w.held_until
FROM ({untried}) n
  CROSS JOIN (SELECT count(*) AS n, (extract(epoch FROM min(retry_at) - now()) * 1000000)::bigint AS next,
      count(hold_reason) AS held, greatest(min(retry_at) FILTER (WHERE hold_reason IS NOT NULL),
        now() + $3 * interval '1 microsecond') AS held_until
    FROM campaign_sends
    WHERE account_id = $1 AND campaign_id = $2 AND retry_at > now() AND status = 'pending'
      AND started_at IS NULL AND {ids}) w
