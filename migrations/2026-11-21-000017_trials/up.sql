-- Tests of campaigns: messages of the month that no row tells of, so they are counted by themselves.

ALTER TABLE message_usage
  ADD COLUMN tests bigint NOT NULL DEFAULT 0 CONSTRAINT message_usage_tests_check CHECK (tests >= 0);
