-- The price of a conversation's message from WhatsApp's status updates, as in `campaign_sends.pricing`.

ALTER TABLE messages ADD COLUMN pricing jsonb;
