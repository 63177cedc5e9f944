ALTER TABLE direct_messages DROP COLUMN failed_at;
