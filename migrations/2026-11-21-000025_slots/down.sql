ALTER TABLE campaign_sends SET (fillfactor = 70);

-- Each sum is written to slot 0 before the slot tables become plain counters again.
UPDATE campaign_counter_slots s SET total = n.total, pending = n.pending, sent = n.sent, delivered = n.delivered,
  read = n.read, failed = n.failed
FROM campaign_counters n WHERE s.slot = 0 AND n.account_id = s.account_id AND n.campaign_id = s.campaign_id;
UPDATE message_usage_slots s SET sent = n.sent, reserved = n.reserved, test_sends = n.test_sends
FROM message_usage n WHERE s.slot = 0 AND n.account_id = s.account_id AND n.month = s.month;
DROP VIEW campaign_counters;
DROP VIEW message_usage;
DROP FUNCTION counter_slot(bigint);
DELETE FROM campaign_counter_slots WHERE slot <> 0;
DELETE FROM message_usage_slots WHERE slot <> 0;

ALTER TABLE campaign_counter_slots
  DROP COLUMN slot,
  ADD CONSTRAINT campaign_counters_pkey PRIMARY KEY (account_id, campaign_id);
ALTER TABLE campaign_counter_slots RENAME CONSTRAINT campaign_counter_slots_campaign_id_fkey
  TO campaign_counters_campaign_id_fkey;
ALTER TABLE campaign_counter_slots RENAME TO campaign_counters;

ALTER TABLE message_usage_slots
  DROP COLUMN slot,
  ADD CONSTRAINT message_usage_pkey PRIMARY KEY (account_id, month),
  ADD CONSTRAINT message_usage_sent_check CHECK (sent >= 0),
  ADD CONSTRAINT message_usage_reserved_check CHECK (reserved >= 0),
  RESET (fillfactor);
ALTER TABLE message_usage_slots RENAME CONSTRAINT message_usage_slots_account_id_fkey TO message_usage_account_id_fkey;
ALTER TABLE message_usage_slots
  RENAME CONSTRAINT message_usage_slots_test_sends_check TO message_usage_test_sends_check;
ALTER TABLE message_usage_slots RENAME TO message_usage;
