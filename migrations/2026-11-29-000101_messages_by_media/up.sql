-- An erasure finds the other messages that have an upload. GIN compares arrays alone without an extension, so the
-- account is not in the index.
-- safe: a partitioned table has no concurrent index, and before the first release its partitions are empty
CREATE INDEX messages_media_ids_idx ON messages USING gin (media_ids) WHERE media_ids IS NOT NULL;
