-- The price of a send from WhatsApp's status updates, without nulls, and the status that reported it. Not indexed, so
-- that a status update stays a HOT update.

ALTER TABLE campaign_sends ADD COLUMN pricing jsonb;
