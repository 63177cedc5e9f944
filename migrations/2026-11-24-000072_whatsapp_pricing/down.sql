ALTER TABLE messages DROP COLUMN pricing;
ALTER TABLE campaign_sends DROP COLUMN pricing;
