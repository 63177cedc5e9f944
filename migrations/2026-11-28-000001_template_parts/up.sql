-- Further parts of a template, and what WhatsApp says about it.

ALTER TABLE message_templates
  -- `{ text, has_expiration }`.
  ADD COLUMN limited_time_offer jsonb,
  -- How long WhatsApp tries to deliver a message. Null: WhatsApp's default.
  ADD COLUMN message_send_ttl_seconds bigint,
  -- What WhatsApp recommends to change in a rejected template.
  ADD COLUMN rejection_recommendation text,
  -- The category that WhatsApp considers right, if it is another one.
  ADD COLUMN correct_category text;
