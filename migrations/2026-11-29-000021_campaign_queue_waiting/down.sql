ALTER TABLE campaign_queue DROP COLUMN waiting_until, DROP COLUMN held, DROP COLUMN checked_settings_at;
