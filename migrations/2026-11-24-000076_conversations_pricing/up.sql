-- The same of a message of a conversation.

ALTER TABLE messages ADD COLUMN pricing jsonb;
