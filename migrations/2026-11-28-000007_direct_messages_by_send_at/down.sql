CREATE INDEX CONCURRENTLY direct_messages_conversation_id_idx
  ON direct_messages (account_id, conversation_id, send_at DESC, id DESC) WHERE conversation_id IS NOT NULL;
