ALTER TABLE campaign_sends DROP COLUMN hold_reason, DROP COLUMN held_since, DROP COLUMN is_marketing;
