ALTER TABLE campaign_sends DROP COLUMN by_user_id;
