-- Tests of campaigns: messages of the month that no row tells of, so they are counted by themselves.

ALTER TABLE message_usage
  ADD COLUMN test_sends bigint NOT NULL DEFAULT 0 CONSTRAINT message_usage_test_sends_check CHECK (test_sends >= 0);
