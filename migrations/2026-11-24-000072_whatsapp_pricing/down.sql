ALTER TABLE campaign_sends DROP COLUMN pricing;
