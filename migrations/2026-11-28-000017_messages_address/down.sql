ALTER TABLE messages DROP COLUMN by_user_id;
