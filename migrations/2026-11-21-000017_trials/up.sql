-- Test sends of campaigns: they use the month's quota but have no row of their own, so a counter holds them.

ALTER TABLE message_usage
  ADD COLUMN test_sends bigint NOT NULL DEFAULT 0 CONSTRAINT message_usage_test_sends_check CHECK (test_sends >= 0);
