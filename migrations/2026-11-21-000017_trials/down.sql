ALTER TABLE message_usage DROP COLUMN test_sends;
