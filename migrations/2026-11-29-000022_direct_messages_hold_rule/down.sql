ALTER TABLE direct_messages DROP COLUMN hold_rule, DROP COLUMN held_settings_at, DROP COLUMN is_marketing;
