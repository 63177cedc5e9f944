-- Adds the counter slots of an ended campaign to slot 0 and deletes them.
-- $1 account, $2 campaign.
WITH folded AS (
  DELETE FROM campaign_counter_slots n WHERE n.account_id = $1 AND n.campaign_id = $2 AND n.slot > 0
    AND EXISTS (SELECT 1 FROM campaigns WHERE account_id = $1 AND id = $2 AND status <> 'sending')
    AND EXISTS (SELECT 1 FROM campaign_counter_slots
      WHERE account_id = $1 AND campaign_id = $2 AND slot = 0)
  RETURNING total, pending, sent, delivered, read, failed
), sums AS (
  SELECT sum(total) AS total, sum(pending) AS pending, sum(sent) AS sent, sum(delivered) AS delivered,
    sum(read) AS read, sum(failed) AS failed
  FROM folded HAVING count(*) > 0
)
UPDATE campaign_counter_slots n SET total = n.total + s.total, pending = n.pending + s.pending,
  sent = n.sent + s.sent, delivered = n.delivered + s.delivered, read = n.read + s.read,
  failed = n.failed + s.failed
FROM sums s WHERE n.account_id = $1 AND n.campaign_id = $2 AND n.slot = 0
