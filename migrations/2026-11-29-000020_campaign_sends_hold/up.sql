-- `hold_reason`: the setting of the account that holds the message; `held_since`: when it was first held. Null: it was never
-- held, or is tried again. The time until which it is held is `retry_at`. The previous version starts a held message then.
-- `is_marketing`: whether it started as a marketing message. Null: it has not started, or the previous version started it.
ALTER TABLE campaign_sends ADD COLUMN hold_reason text, ADD COLUMN held_since timestamptz,
  ADD COLUMN is_marketing boolean;
