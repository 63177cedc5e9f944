DROP INDEX CONCURRENTLY message_media_kept_idx;
