-- The files of messages that have bytes, or may have some, by the time of their message.
CREATE INDEX CONCURRENTLY message_media_written_idx ON message_media (account_id, written_at)
  WHERE message_id IS NOT NULL AND (state IN ('pending', 'ready') OR abandoned <> '{}');
