DROP INDEX contacts_deleted_idx;
ALTER TABLE campaign_counters DROP COLUMN created_at;
INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, created_at)
SELECT a.account_id, md5(a.campaign_id::text || c.id::text)::uuid, a.campaign_id, c.id, a.created_at
FROM campaign_recipient_batches a CROSS JOIN unnest(a.contact_ids) AS c (id)
ON CONFLICT DO NOTHING;
DROP TABLE campaign_recipient_batches;
