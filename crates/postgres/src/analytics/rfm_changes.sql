-- Stages the scores that differ from the stored ones. A contact that is no customer any more is staged without scores.
-- $1 account, $2 worker, $3 to $5 the grid: recency, frequency and segment.
WITH scores AS (
  SELECT k.contact_id, k.recency, k.frequency, k.monetary, g.segment
  FROM (SELECT contact_id, score.recency, score.frequency, score.monetary
    FROM (SELECT contact_id, rank() OVER (ORDER BY last_at) - 1 AS earlier,
        rank() OVER (ORDER BY orders) - 1 AS fewer, rank() OVER (ORDER BY spend) - 1 AS less,
        greatest(count(*) OVER () - 1, 1) AS others
      FROM (SELECT o.contact_id, max(o.paid_at) AS last_at, count(*) AS orders, sum(o.total) AS spend
        FROM orders o
        JOIN contacts c ON c.account_id = o.account_id AND c.id = o.contact_id AND c.deleted_at IS NULL
        WHERE o.account_id = $1 AND o.status = 'paid' GROUP BY o.contact_id) AS customers) AS ranked
    CROSS JOIN LATERAL (SELECT least(5, 1 + 5 * earlier / others)::int AS recency,
      least(5, 1 + 5 * fewer / others)::int AS frequency, least(5, 1 + 5 * less / others)::int AS monetary) AS score
  ) AS k
  JOIN unnest($3, $4, $5) AS g (recency, frequency, segment) USING (recency, frequency))
INSERT INTO rfm_changes
  (account_id, worker, contact_id, recency_score, frequency_score, monetary_score, segment)
SELECT $1, $2, coalesce(n.contact_id, r.contact_id), n.recency, n.frequency, n.monetary, n.segment
FROM scores n FULL JOIN (SELECT * FROM contact_rfm WHERE account_id = $1) AS r ON r.contact_id = n.contact_id
WHERE (n.recency, n.frequency, n.monetary, n.segment)
  IS DISTINCT FROM (r.recency_score, r.frequency_score, r.monetary_score, r.segment)
ON CONFLICT DO NOTHING
