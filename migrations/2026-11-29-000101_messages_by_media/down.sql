DROP INDEX messages_media_ids_idx;
