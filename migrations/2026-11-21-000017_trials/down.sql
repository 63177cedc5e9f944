ALTER TABLE message_usage DROP COLUMN tests;
