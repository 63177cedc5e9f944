-- An erasure finds the other messages that have an upload.
CREATE INDEX CONCURRENTLY direct_messages_media_id_idx ON direct_messages (account_id, media_id)
  WHERE media_id IS NOT NULL;
