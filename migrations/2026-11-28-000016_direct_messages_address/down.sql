ALTER TABLE direct_messages DROP COLUMN by_user_id;
