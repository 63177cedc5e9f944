-- A conversation shows its direct messages in the order in which WhatsApp accepted them.
CREATE INDEX CONCURRENTLY direct_messages_sent_at_idx
  ON direct_messages (account_id, conversation_id, sent_at DESC, id DESC) WHERE conversation_id IS NOT NULL;
