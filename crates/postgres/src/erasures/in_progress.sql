-- Whether transactions, calls or responses from before the request have not ended. $1 account, $2 contact, $3 id of the
-- receipt, $4 time of the request. `longest_wait`: after this time it does not matter.
SELECT e.requested_at > now() - {longest_wait} AND (
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint <= e.transaction_id
    OR EXISTS (SELECT FROM campaign_sends s WHERE s.account_id = $1 AND s.contact_id = $2
      AND s.status = 'pending' AND s.started_at IS NOT NULL)
    OR EXISTS (SELECT FROM direct_messages d WHERE d.account_id = $1 AND d.contact_id = $2
      AND d.status = 'pending')
    OR EXISTS (SELECT FROM conversations v JOIN messages m ON m.account_id = $1 AND m.conversation_id = v.id
      WHERE v.account_id = $1 AND v.contact_id = $2 AND m.status = 'pending')
    OR EXISTS (SELECT FROM idempotency_keys i WHERE i.scope = $1 AND i.response IS NULL
      AND i.leased_until > now() AND i.created_at <= $4)) AS waits
  FROM erasures e WHERE e.account_id = $1 AND e.id = $3
