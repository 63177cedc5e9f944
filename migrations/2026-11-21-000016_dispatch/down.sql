DROP TABLE phone_number_send_slots;
ALTER TABLE campaign_queue DROP COLUMN waiting_since;
DROP TABLE sent_messages;
DROP INDEX campaign_sends_unknown_at_idx;
DROP INDEX campaign_sends_retry_at_idx;
ALTER TABLE campaign_sends DROP COLUMN never_confirmed, ADD COLUMN claimed_by uuid;
ALTER TABLE campaign_sends SET (fillfactor = 80);
CREATE INDEX campaign_sends_due_idx ON campaign_sends (account_id, campaign_id, id)
  WHERE started_at IS NULL AND status = 'pending';
CREATE INDEX campaign_sends_open_idx ON campaign_sends (started_at)
  WHERE started_at IS NOT NULL AND status = 'pending';
CREATE INDEX campaign_sends_wa_message_id_idx ON campaign_sends (account_id, wa_message_id)
  WHERE wa_message_id IS NOT NULL;
