ALTER TABLE campaign_sends DROP COLUMN reserved_amount;
