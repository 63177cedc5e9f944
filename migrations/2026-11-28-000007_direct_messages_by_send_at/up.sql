-- `direct_messages_sent_at_idx` replaces it.
DROP INDEX CONCURRENTLY direct_messages_conversation_id_idx;
