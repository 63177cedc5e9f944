-- What WhatsApp's statuses say about the price of a send, without nulls, and which status said it. In no index, so that a
-- status is a heap-only update as before.

ALTER TABLE campaign_sends ADD COLUMN pricing jsonb;
