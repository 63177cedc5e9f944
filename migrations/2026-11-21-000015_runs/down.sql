ALTER TABLE campaign_sends DROP COLUMN superseded_wa_message_id, DROP COLUMN quota_month;
DROP INDEX campaigns_due_idx;
DELETE FROM campaign_queue WHERE NOT prepared OR user_id IS NULL OR trigger NOT IN ('execute', 'send');
ALTER TABLE campaign_queue
  DROP CONSTRAINT campaign_queue_trigger_check,
  ADD CONSTRAINT campaign_queue_trigger_check CHECK (trigger IN ('execute', 'send')),
  ALTER COLUMN user_id SET NOT NULL,
  DROP COLUMN prepared;
