-- Reads the next sends of a campaign by contact, and makes the untried ones due.
-- $1 account, $2 campaign, $3 last contact, $4 limit, $5 to $6 range of send ids.
WITH next AS MATERIALIZED (
  SELECT id, contact_id, status = 'pending' AND started_at IS NULL AS untried FROM campaign_sends
  WHERE account_id = $1 AND {after_contact} AND id BETWEEN $5 AND $6
  ORDER BY campaign_id, contact_id LIMIT $4
), untried AS MATERIALIZED (
  SELECT s.id FROM (SELECT * FROM unnest((SELECT array_agg(id ORDER BY id) FROM next WHERE untried)) AS k (id)
      {limit}) n
    JOIN campaign_sends s ON s.account_id = $1 AND s.id = n.id AND s.id >= $5
  WHERE s.status = 'pending' AND s.started_at IS NULL FOR UPDATE OF s
), renewed AS (
  UPDATE campaign_sends s SET attempts = 0, retry_at = now(), hold_reason = NULL, held_since = NULL,
    quota_month = (SELECT run_quota_month FROM campaigns WHERE account_id = $1 AND id = $2)
  FROM (SELECT id FROM untried LIMIT $4) u WHERE s.account_id = $1 AND s.id = u.id AND s.id >= $5
)
SELECT count(*) AS searched, (array_agg(contact_id ORDER BY contact_id DESC))[1] AS until FROM next
