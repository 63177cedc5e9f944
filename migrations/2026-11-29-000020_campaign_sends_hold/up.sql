-- The setting of the account that holds the message, and when it was first due. Null: it was never held, or has started.
-- The time until which it is held is `retry_at`. The previous version starts a held message then.
ALTER TABLE campaign_sends ADD COLUMN hold_reason text, ADD COLUMN held_since timestamptz;
