-- Freezes the recipients that `audience_clause` selects: send rows for the first, recipient batches for the others.
-- $1 account, $2 campaign, $3 number of send rows, $4 size of a batch, $5 time of the freeze, from $6 the audience.
WITH chosen AS MATERIALIZED (
  SELECT coalesce(array_agg(id), ARRAY[]::uuid[]) AS ids FROM (SELECT c.id {audience_clause} ORDER BY c.id) c
), sends AS (
  INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, created_at)
  SELECT $1, send_id($5, $2, c.id), $2, c.id, $5
  FROM chosen CROSS JOIN unnest(ids[1:$3]) WITH ORDINALITY AS c (id, position) ORDER BY c.position
), parts AS (
  INSERT INTO campaign_recipient_batches (account_id, campaign_id, batch_no, contact_ids, created_at)
  SELECT $1, $2, batch_no, ids[$3 + batch_no * $4 + 1 : $3 + (batch_no + 1) * $4], $5
  FROM chosen CROSS JOIN generate_series(0, (cardinality(ids) - $3 - 1) / $4) AS batch_no
  WHERE cardinality(ids) > $3
)
SELECT cardinality(ids)::bigint AS n FROM chosen
