-- When the message failed: from then on the wait of a further attempt counts. Null also for a message that failed
-- before this version: then its last change.
ALTER TABLE direct_messages ADD COLUMN failed_at timestamptz;
